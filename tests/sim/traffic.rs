//! Random traces: requests near the times at which results change, some queued and some cancelled, with rule changes,
//! restarts and sweeps in between.

use crate::{
    naive::Naive,
    outcome::{DescriptorHits, Hits, Outcome, Status},
    rng::Rng,
    rules::Rules,
    world::{Kind, Settings},
};

/// An event and its time. Times may run backwards, but within a process never to before its start: counters that had expired then were left
/// out, and are on the disk until their page is written again.
#[derive(Clone, Debug)]
pub struct Step {
    /// In nanoseconds since the epoch.
    pub now: u64,
    pub event: Event,
}

#[derive(Clone, Debug)]
pub enum Event {
    /// A request; its caller waits at most `max_wait` nanoseconds.
    Request {
        descriptors: Vec<DescriptorHits>,
        max_wait: u64,
    },
    /// Cancels a queued request: the request at this index, modulo their number. No effect if none is queued.
    Cancel(usize),
    /// Releases the queued requests that are due.
    Release,
    /// Queueing ends after this many nanoseconds; requests that cannot be released before that are decided at once.
    EndQueues(u64),
    ChangeRules(Rules),
    /// Rules are built, and put in force after the steps that occur meanwhile: these steps are under the former rules. None if the files
    /// have an error, so that the rules stay. A crash meanwhile starts with the new rules.
    Reload {
        rules: Option<Rules>,
        meanwhile: Vec<Step>,
    },
    /// Numbers of limits that nothing uses are freed.
    FreeLimits,
    /// Changes are written to the snapshot.
    Snapshot,
    /// A clean stop, and a start of the next process at this time.
    Restart(u64),
    /// The same without a last snapshot.
    Crash(u64),
    /// Expired counters are dropped.
    Sweep,
}

impl Step {
    /// The start time of the process that runs after this event, if it ends a process.
    fn start(&self) -> Option<u64> {
        match &self.event {
            Event::Restart(start) | Event::Crash(start) => Some(*start),
            Event::Reload { meanwhile, .. } => meanwhile.iter().rev().find_map(Self::start),
            _ => None,
        }
    }

    /// The time of the last event.
    pub fn end(&self) -> u64 {
        match &self.event {
            Event::Reload { meanwhile, .. } => meanwhile.last().map_or(self.now, |step| step.now),
            _ => self.now,
        }
    }
}

/// 10 January 2024, within the oracle's calendar.
pub const START: u64 = 1_704_844_800_000_000_000;

/// The latest time in a trace: the end of the oracle's calendar.
const END: u64 = START + 300 * 86_400_000_000_000;

const SECOND: u64 = 1_000_000_000;

/// Number of values of a key: few, so that requests share counters.
const VALUES: u64 = 3;

/// Distribution of the gaps between requests.
#[derive(Clone, Copy)]
enum Pace {
    /// At equal distances, in nanoseconds.
    Steady(u64),
    /// All at the same time.
    Burst,
    /// Around multiples of a length.
    Edges(u64),
    /// Around the reset of the last decision.
    Resets,
    /// Around the next release of a queued request.
    Releases,
    /// After at most this many nanoseconds.
    Random(u64),
}

pub fn random(rng: &mut Rng, settings: Settings, rules: &Rules) -> Vec<Step> {
    let (mut rules, mut naive) = (rules.clone(), Naive::new(settings, rules.clone()));
    let (mut now, mut reset, mut started) = (random_time(rng, settings), 0, START);
    let mut trace = Vec::new();
    let mut pace = Pace::Burst;
    for _ in 0..rng.between(10, 80) {
        if rng.once_in(8) {
            pace = random_pace(rng, settings, &rules);
        }
        let release = naive.remaining_waits(now).into_iter().min().unwrap_or(0);
        now = moved(rng, pace, now, [reset, release]).min(END);
        if rng.once_in(40) {
            now = set_back(rng, &rules, now).max(started);
        }
        let event = match settings.kind == Kind::Reloads && rng.once_in(5) {
            true => random_reload(rng, settings, &rules, &naive, now),
            false => random_step(rng, settings, &rules, &naive, now),
        };
        let step = Step { now, event };
        now = step.end();
        let outcomes = naive.play(&step);
        if let Some(longest) = outcomes.iter().filter_map(longest_reset).max() {
            reset = longest;
        }
        if let Event::ChangeRules(changed) | Event::Reload { rules: Some(changed), .. } = &step.event {
            rules = changed.clone();
        }
        if let Some(start) = step.start() {
            (now, started) = (start, start);
        }
        trace.push(step);
    }
    trace
}

/// The time of the first event. With schedules it is often some hours before clocks change in one of the zones, or before a leap day.
fn random_time(rng: &mut Rng, settings: Settings) -> u64 {
    if settings.kind != Kind::Times {
        return START + rng.below(1 << 40);
    }
    let eves = [
        START / SECOND,
        1_709_157_600,
        1_710_046_800,
        1_711_836_000,
        1_712_408_400,
        1_728_136_800,
        1_729_980_000,
        1_730_606_400,
    ];
    rng.pick(&eves) * SECOND + rng.below(1 << 44)
}

fn random_step(rng: &mut Rng, settings: Settings, rules: &Rules, naive: &Naive, now: u64) -> Event {
    let (waiting, length) = (naive.remaining_waits(now).len() as u64, rules.some_length(rng));
    if waiting > 0 && rng.once_in(5) {
        return match rng.below(8) {
            0 => Event::ChangeRules(rules.changed(rng, settings)),
            1..4 => Event::Release,
            _ => Event::Cancel(rng.below(waiting) as usize),
        };
    }
    match rng.below(40) {
        0 => Event::ChangeRules(rules.changed(rng, settings)),
        1 => Event::Sweep,
        2 => Event::Snapshot,
        3 => Event::Restart(random_start(rng, rules, now)),
        4 => Event::Crash(random_start(rng, rules, now)),
        5 if rng.once_in(8) => Event::EndQueues(rng.below(2 * length)),
        _ => {
            let descriptors = random_request(rng, settings, rules);
            let max_wait = random_max_wait(rng, rules, naive, &descriptors, now);
            Event::Request { descriptors, max_wait }
        }
    }
}

/// A reload, and up to three steps while the rules are built.
fn random_reload(rng: &mut Rng, settings: Settings, rules: &Rules, naive: &Naive, mut now: u64) -> Event {
    if rng.once_in(8) {
        return Event::FreeLimits;
    }
    let changed = (!rng.once_in(4)).then(|| rules.changed(rng, settings));
    let (mut naive, mut meanwhile) = (naive.clone(), Vec::new());
    for _ in 0..rng.below(4) {
        let length = rules.some_length(rng);
        now = (now + rng.below(length)).min(END);
        let event = match random_step(rng, settings, rules, &naive, now) {
            Event::ChangeRules(_) | Event::Restart(_) | Event::Crash(_) => Event::Snapshot,
            event => event,
        };
        let step = Step { now, event };
        naive.play(&step);
        meanwhile.push(step);
    }
    if changed.is_some() && rng.once_in(8) {
        meanwhile.push(Step { now, event: Event::Crash(now) });
    }
    Event::Reload { rules: changed, meanwhile }
}

/// The longest reset of a decision; none if the request was queued.
fn longest_reset(outcome: &Outcome) -> Option<u64> {
    let Outcome::Decided(_, statuses) = outcome else { return None };
    let reset = |status: &Status| status.limit.as_ref()?.reset.known();
    Some(statuses.iter().filter_map(reset).max().unwrap_or(0))
}

/// A time at or before `now`, like that of a clock that was set back.
fn set_back(rng: &mut Rng, rules: &Rules, now: u64) -> u64 {
    now.saturating_sub(rules.some_length(rng)).max(START)
}

/// Start time of the next process: at once, later, or by a clock that was set back.
fn random_start(rng: &mut Rng, rules: &Rules, now: u64) -> u64 {
    let length = rules.some_length(rng);
    match rng.below(4) {
        0 => set_back(rng, rules, now),
        1 => (now + rng.below(2 * length + 1)).min(END),
        _ => now,
    }
}

fn random_pace(rng: &mut Rng, settings: Settings, rules: &Rules) -> Pace {
    // Queues fill up if more hits arrive than leak.
    let length = rules.some_length(rng) / if settings.is_about_queues { rng.pick(&[8, 1, 30]) } else { 1 };
    match rng.below(7) {
        0 => Pace::Steady(length / rng.between(1, 12)),
        1 | 2 => Pace::Burst,
        3 => Pace::Edges(length),
        4 => Pace::Resets,
        5 => Pace::Releases,
        _ => Pace::Random(2 * length),
    }
}

fn moved(rng: &mut Rng, pace: Pace, now: u64, [reset, release]: [u64; 2]) -> u64 {
    let around = |moment: u64, rng: &mut Rng| (moment + rng.below(3)).saturating_sub(1).max(now);
    match pace {
        Pace::Steady(distance) => now + distance,
        Pace::Burst => now,
        Pace::Edges(length) => around((now / length + rng.below(3)) * length, rng),
        Pace::Resets => around(now.saturating_add(reset).min(END), rng),
        Pace::Releases => around(now.saturating_add(release).min(END), rng),
        Pace::Random(longest) => now + rng.below(longest + 1),
    }
}

fn random_request(rng: &mut Rng, settings: Settings, rules: &Rules) -> Vec<DescriptorHits> {
    let has_own = rng.once_in(12);
    let descriptor = |rng: &mut Rng| {
        let most = if settings.is_about_queues {
            rng.pick(&[1, 1, 1, 1, 2, 6])
        } else {
            rng.pick(&[1, 1, 1, 2, 6, 30])
        };
        // Now and then a name that no rule matches.
        let names = rules.0.len() as u64 + u64::from(rng.once_in(20));
        DescriptorHits {
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

/// A number below the bound, mostly 0, so that requests share counters.
fn first_or_any(rng: &mut Rng, bound: u64) -> usize {
    if rng.once_in(2) { 0 } else { rng.below(bound) as usize }
}

/// The time that a caller waits: none, forever, some time, exactly until its release, or a nanosecond less.
fn random_max_wait(
    rng: &mut Rng,
    rules: &Rules,
    naive: &Naive,
    descriptors: &[DescriptorHits],
    now: u64,
) -> u64 {
    let length = rules.some_length(rng);
    match rng.below(8) {
        0 => 0,
        1 => rng.below(2 * length),
        2 | 3 => {
            let mut ahead = naive.clone();
            match ahead.decide(descriptors, u64::MAX, now) {
                Outcome::Queued => ahead.remaining_waits(now).pop().unwrap_or(0).saturating_sub(rng.below(2)),
                Outcome::Decided(..) => u64::MAX,
            }
        }
        _ => u64::MAX,
    }
}
