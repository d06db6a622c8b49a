//! Random traces: requests at moments that hurt, of which some wait and some give up, with changed rules, restarts and sweeps
//! between them.

use crate::{
    naive::{Asked, Hits, Naive, Status, Told},
    rng::Rng,
    rules::Rules,
    world::Settings,
};

/// Something that happens at a moment. Moments may go back, but within a process never to before its start: what had
/// expired then was left out, and is on the disk until its page is written again.
#[derive(Clone, Debug)]
pub struct Step {
    /// In nanoseconds since the epoch.
    pub now: u64,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    /// A request, whose caller waits no longer than so many nanoseconds.
    Ask {
        asked: Vec<Asked>,
        patience: u64,
    },
    /// One of those who wait goes away. Any number is somebody's; if nobody waits, nothing happens.
    GiveUp(usize),
    /// Those whose turn has come are answered.
    Answer,
    /// The end is near: after so many nanoseconds no answer is given any more, and who cannot have one before is told so.
    End(u64),
    ChangeRules(Rules),
    /// What changed is written to the snapshot.
    Snapshot,
    /// A clean stop, and another process that starts at that moment.
    Restart(u64),
    /// The same without a last snapshot.
    Crash(u64),
    /// What is expired is forgotten.
    Sweep,
}

/// 10 January 2024: what the oracle knows of the calendar lies around it.
pub const START: u64 = 1_704_844_800_000_000_000;

/// No trace goes beyond: the oracle knows the calendar up to here.
const END: u64 = START + 300 * 86_400_000_000_000;

/// Values of a key: few, so that counters are met again.
const VALUES: u64 = 3;

/// How requests come.
#[derive(Clone, Copy)]
enum Pace {
    /// At a steady distance, in nanoseconds.
    Steady(u64),
    /// All at one moment.
    Burst,
    /// Around multiples of a length.
    Edges(u64),
    /// Around the moment that the last answer told.
    Resets,
    /// Around the next turn of one who waits.
    Turns,
    /// After up to so long.
    Random(u64),
}

pub fn random(rng: &mut Rng, settings: Settings, rules: &Rules) -> Vec<Step> {
    let (mut rules, mut naive) = (rules.clone(), Naive::new(settings, rules.clone()));
    let (mut now, mut reset, mut started) = (START + rng.below(1 << 40), 0, START);
    let mut trace = Vec::new();
    let mut pace = Pace::Burst;
    for _ in 0..rng.between(10, 80) {
        if rng.once_in(8) {
            pace = random_pace(rng, settings, &rules);
        }
        let turn = naive.waits(now).into_iter().min().unwrap_or(0);
        now = moved(rng, pace, now, [reset, turn]).min(END);
        if rng.once_in(40) {
            now = set_back(rng, &rules, now).max(started);
        }
        let step = Step { now, what: random_step(rng, settings, &rules, &naive, now) };
        let told = naive.play(&step);
        if let Some(longest) = told.iter().filter_map(longest_reset).max() {
            reset = longest;
        }
        match &step.what {
            What::ChangeRules(changed) => rules = changed.clone(),
            What::Restart(start) | What::Crash(start) => (now, started) = (*start, *start),
            _ => {}
        }
        trace.push(step);
    }
    trace
}

fn random_step(rng: &mut Rng, settings: Settings, rules: &Rules, naive: &Naive, now: u64) -> What {
    let (waiting, length) = (naive.waits(now).len() as u64, rules.some_length(rng));
    if waiting > 0 && rng.once_in(5) {
        return match rng.below(8) {
            0 => What::ChangeRules(rules.with_one_limit_changed(rng, settings)),
            1..4 => What::Answer,
            _ => What::GiveUp(rng.below(waiting) as usize),
        };
    }
    match rng.below(40) {
        0 => What::ChangeRules(rules.with_one_limit_changed(rng, settings)),
        1 => What::Sweep,
        2 => What::Snapshot,
        3 => What::Restart(random_start(rng, rules, now)),
        4 => What::Crash(random_start(rng, rules, now)),
        5 if rng.once_in(8) => What::End(rng.below(2 * length)),
        _ => {
            let asked = random_request(rng, settings, rules);
            let patience = random_patience(rng, rules, naive, &asked, now);
            What::Ask { asked, patience }
        }
    }
}

/// The longest wait that an answer tells; none if it is no answer.
fn longest_reset(told: &Told) -> Option<u64> {
    let Told::Answer(_, statuses) = told else { return None };
    let reset = |status: &Status| status.limit.as_ref()?.reset.known();
    Some(statuses.iter().filter_map(reset).max().unwrap_or(0))
}

/// A clock that is set back.
fn set_back(rng: &mut Rng, rules: &Rules, now: u64) -> u64 {
    now.saturating_sub(rules.some_length(rng)).max(START)
}

/// When a process starts after another: at once, later, or by a clock that was set back.
fn random_start(rng: &mut Rng, rules: &Rules, now: u64) -> u64 {
    let length = rules.some_length(rng);
    match rng.below(4) {
        0 => set_back(rng, rules, now),
        1 => (now + rng.below(2 * length + 1)).min(END),
        _ => now,
    }
}

fn random_pace(rng: &mut Rng, settings: Settings, rules: &Rules) -> Pace {
    // Queues fill up when more comes than leaks.
    let length = rules.some_length(rng) / if settings.is_about_queues { rng.pick(&[8, 1, 30]) } else { 1 };
    match rng.below(7) {
        0 => Pace::Steady(length / rng.between(1, 12)),
        1 | 2 => Pace::Burst,
        3 => Pace::Edges(length),
        4 => Pace::Resets,
        5 => Pace::Turns,
        _ => Pace::Random(2 * length),
    }
}

fn moved(rng: &mut Rng, pace: Pace, now: u64, [reset, turn]: [u64; 2]) -> u64 {
    let around = |moment: u64, rng: &mut Rng| (moment + rng.below(3)).saturating_sub(1).max(now);
    match pace {
        Pace::Steady(distance) => now + distance,
        Pace::Burst => now,
        Pace::Edges(length) => around((now / length + rng.below(3)) * length, rng),
        Pace::Resets => around(now.saturating_add(reset).min(END), rng),
        Pace::Turns => around(now.saturating_add(turn).min(END), rng),
        Pace::Random(longest) => now + rng.below(longest + 1),
    }
}

fn random_request(rng: &mut Rng, settings: Settings, rules: &Rules) -> Vec<Asked> {
    let has_own = rng.once_in(12);
    let descriptor = |rng: &mut Rng| {
        let most = if settings.is_about_queues {
            rng.pick(&[1, 1, 1, 1, 2, 6])
        } else {
            rng.pick(&[1, 1, 1, 2, 6, 30])
        };
        // Now and then one that no rule is for.
        let names = rules.0.len() as u64 + u64::from(rng.once_in(20));
        Asked {
            rule: first_or_any(rng, names),
            value: first_or_any(rng, VALUES),
            hits: match rng.below(10) {
                0 => Hits::Peek,
                1 => Hits::GiveBack(rng.between(1, most)),
                _ => Hits::Take(rng.between(1, most)),
            },
            own: has_own.then(|| rng.between(0, 6) as u32),
        }
    };
    (0..rng.pick(&[1, 1, 1, 2, 3])).map(|_| descriptor(rng)).collect()
}

/// A number below the bound. The first most often: so the same counters are met again.
fn first_or_any(rng: &mut Rng, bound: u64) -> usize {
    if rng.once_in(2) { 0 } else { rng.below(bound) as usize }
}

/// How long a caller waits: not at all, for ever, for some time, or to the nanosecond until its turn, or one less.
fn random_patience(rng: &mut Rng, rules: &Rules, naive: &Naive, asked: &[Asked], now: u64) -> u64 {
    let length = rules.some_length(rng);
    match rng.below(8) {
        0 => 0,
        1 => rng.below(2 * length),
        2 | 3 => {
            let mut ahead = naive.clone();
            match ahead.ask(asked, u64::MAX, now) {
                Told::Held => ahead.waits(now).pop().unwrap_or(0).saturating_sub(rng.below(2)),
                Told::Answer(..) => u64::MAX,
            }
        }
        _ => u64::MAX,
    }
}
