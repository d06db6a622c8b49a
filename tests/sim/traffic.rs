//! Random traces: requests at moments that hurt, with changed rules, restarts and sweeps between them.

use crate::{
    naive::{Asked, Hits, Naive},
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
    Ask(Vec<Asked>),
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
            pace = random_pace(rng, &rules);
        }
        now = moved(rng, pace, now, reset).min(END);
        if rng.once_in(40) {
            now = set_back(rng, &rules, now).max(started);
        }
        let what = match rng.below(40) {
            0 => {
                rules = rules.with_one_limit_changed(rng, settings.is_reference);
                What::ChangeRules(rules.clone())
            }
            1 => What::Sweep,
            2 => What::Snapshot,
            3 => What::Restart(random_start(rng, &rules, now)),
            4 => What::Crash(random_start(rng, &rules, now)),
            _ => What::Ask(random_request(rng, &rules)),
        };
        let step = Step { now, what };
        if let Some((_, statuses)) = naive.play(&step) {
            let resets = statuses.iter().filter_map(|status| status.limit.as_ref()?.reset.known());
            reset = resets.max().unwrap_or(0);
        }
        if let What::Restart(start) | What::Crash(start) = step.what {
            (now, started) = (start, start);
        }
        trace.push(step);
    }
    trace
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

fn random_pace(rng: &mut Rng, rules: &Rules) -> Pace {
    let length = rules.some_length(rng);
    match rng.below(5) {
        0 => Pace::Steady(length / rng.between(1, 12)),
        1 => Pace::Burst,
        2 => Pace::Edges(length),
        3 => Pace::Resets,
        _ => Pace::Random(2 * length),
    }
}

fn moved(rng: &mut Rng, pace: Pace, now: u64, reset: u64) -> u64 {
    let around = |moment: u64, rng: &mut Rng| (moment + rng.below(3)).saturating_sub(1).max(now);
    match pace {
        Pace::Steady(distance) => now + distance,
        Pace::Burst => now,
        Pace::Edges(length) => around((now / length + rng.below(3)) * length, rng),
        Pace::Resets => around(now.saturating_add(reset).min(END), rng),
        Pace::Random(longest) => now + rng.below(longest + 1),
    }
}

fn random_request(rng: &mut Rng, rules: &Rules) -> Vec<Asked> {
    // Requests' own limits of one counter are taken to be one limit.
    let own = rng.once_in(12).then(|| rng.between(0, 6) as u32);
    let descriptor = |rng: &mut Rng| {
        let most = rng.pick(&[1, 1, 1, 2, 6, 30]);
        // Now and then one that no rule is for.
        let names = rules.0.len() as u64 + u64::from(rng.once_in(20));
        Asked {
            rule: rng.below(names) as usize,
            value: rng.below(VALUES) as usize,
            hits: match rng.below(10) {
                0 => Hits::Peek,
                1 => Hits::GiveBack(rng.between(1, most)),
                _ => Hits::Take(rng.between(1, most)),
            },
            own,
        }
    };
    (0..rng.pick(&[1, 1, 1, 1, 2, 3])).map(|_| descriptor(rng)).collect()
}
