//! Random limits of requests in flight, and random traffic: requests, their renewals, and their ends, which are lost, repeated, late, partial or
//! forged.

use crate::{machine::Disruption, rng::Rng};
use std::fmt::Write;

/// Rules with a limit of requests in flight; each has [`VALUES`] counters.
pub const RULES: usize = 3;

/// Counters of a rule.
pub const VALUES: usize = 2;

/// All counters: number `n` is of rule `n / VALUES`.
pub const COUNTERS: usize = RULES * VALUES;

/// Hits per day of the window beside these limits: more than a trace takes.
pub const WINDOW: u64 = 1_000_000;

const STEPS: u64 = 1_000;

/// A limit of requests in flight. Times are in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limit {
    pub in_flight: u64,
    pub hold: u64,
    /// The longest wait; 0 denies at once.
    pub wait: u64,
    /// The most hits that wait for one counter.
    pub line: u64,
}

/// The limits of all rules.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits(pub [Limit; RULES]);

#[derive(Clone, Debug)]
pub struct Step {
    /// Milliseconds since the step before.
    pub after: u64,
    pub event: Event,
}

/// An admitted request is identified by the number of requests admitted since.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request for these counters, each with hits. A counter may be there twice.
    Request {
        takes: Vec<(usize, u64)>,
        /// Whether it is counted in the window too.
        has_window: bool,
        /// The time up to which its caller waits.
        patience: u64,
    },
    /// The end of a request, or of this many of its hits. The request may have ended before.
    End {
        back: usize,
        part: Option<u64>,
    },
    /// A renewal of a request, or a peek of a renewal. The request may have ended before.
    Renew {
        back: usize,
        is_peek: bool,
    },
    /// The call of a request was reset.
    Cancel {
        back: usize,
    },
    /// A release with the counters of one ticket and the id of another, in which one bit is changed.
    Forge {
        back: usize,
        other: usize,
        bit: u32,
    },
    /// A waiting request gives up.
    Leave(usize),
    Reset(usize),
    Rules(Limits),
    Disruption(Disruption),
}

impl Limits {
    pub fn random(rng: &mut Rng) -> Self {
        Self(std::array::from_fn(|_| Limit::random(rng)))
    }

    /// The limit of a counter.
    pub fn of(&self, counter: usize) -> &Limit {
        &self.0[counter / VALUES]
    }

    pub fn yaml(&self) -> String {
        let mut yaml = format!(
            "domain: sim
descriptors:
- {{key: window, rate_limit: {{unit: day, requests_per_unit: {WINDOW}, algorithm: fixed_window}}}}
"
        );
        for (number, Limit { in_flight, hold, wait, line }) in self.0.iter().enumerate() {
            let queue = match wait {
                0 => "max_wait: 0s".to_owned(),
                _ => format!("max_wait: {wait}ms, max_queue: {line}"),
            };
            let _ = writeln!(
                yaml,
                "- {{key: k{number}, rate_limit: {{algorithm: concurrency, requests_in_flight: {in_flight}, max_hold: {hold}ms, {queue}}}}}"
            );
        }
        yaml
    }
}

impl Limit {
    fn random(rng: &mut Rng) -> Self {
        Self {
            in_flight: rng.between(0, 5),
            hold: rng.pick(&[40, 200, 1_000]),
            wait: rng.pick(&[0, 20, 100, 2_000]),
            line: rng.between(1, 6),
        }
    }
}

/// A trace of about [`STEPS`] events.
pub fn random(rng: &mut Rng, limits: Limits) -> Vec<Step> {
    let mut limits = limits;
    (0..STEPS)
        .map(|_| Step { after: rng.pick(&[0, 0, 1, 3, 10, 50]), event: event(rng, &mut limits) })
        .collect()
}

fn event(rng: &mut Rng, limits: &mut Limits) -> Event {
    match rng.below(100) {
        0..45 => {
            let takes = 0..rng.pick(&[1, 1, 1, 2, 2, 3]);
            let take = |rng: &mut Rng| (rng.below(COUNTERS as u64) as usize, rng.pick(&[1, 1, 1, 2, 3]));
            let takes = takes.map(|_| take(rng)).collect();
            Event::Request { takes, has_window: rng.once_in(3), patience: rng.pick(&[0, 15, 80, 5_000]) }
        }
        45..55 => Event::Renew { back: back(rng), is_peek: rng.once_in(5) },
        55..80 => {
            let part = rng.once_in(5).then(|| rng.between(1, 3));
            Event::End { back: back(rng), part }
        }
        80..87 => Event::Forge { back: back(rng), other: back(rng), bit: rng.below(64) as u32 },
        87..91 => Event::Cancel { back: back(rng) },
        91 => Event::Reset(rng.below(COUNTERS as u64) as usize),
        92..95 => {
            let rule = rng.below(RULES as u64) as usize;
            limits.0[rule] = Limit::random(rng);
            Event::Rules(*limits)
        }
        // Each of these visits every shard of the store.
        95 => Event::Disruption(rng.pick(&[
            Disruption::Sweep,
            Disruption::Snapshot,
            Disruption::Restart,
            Disruption::Crash,
        ])),
        _ => Event::Leave(rng.below(4) as usize),
    }
}

/// Mostly one of the last requests, which are in flight.
fn back(rng: &mut Rng) -> usize {
    let most = rng.pick(&[4, 8, 8, 16]);
    rng.below(most) as usize
}
