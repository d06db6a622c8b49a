//! Random limits that charge estimates, and random traffic: starts, their ends, which are lost, repeated or late, and requests that give hits
//! back.

use crate::{
    oracle::Model,
    outcome::{DescriptorHits, Hits},
    rng::Rng,
    schedule::{Schedule, is_window},
};
use std::fmt::Write;

/// Values of a key.
pub const VALUES: usize = 2;

const STEPS: u64 = 60;

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// The hits that a start is charged.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Estimate {
    Hits(u64),
    /// Those of the request.
    OfRequest,
}

/// An estimate, and what becomes of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reserve {
    pub estimate: Estimate,
    /// The time until which an end is awaited, in nanoseconds.
    pub hold: u64,
    /// Whether the estimate is returned then.
    pub returns: bool,
}

#[derive(Clone, Debug)]
pub struct Limit {
    keys: String,
    pub model: Model,
    pub reserve: Option<Reserve>,
    pub always: bool,
    /// Other numbers at times of the week.
    pub schedule: Option<Schedule>,
    /// Denials and the bans that they begin, as a model of their own.
    pub ban: Option<Model>,
}

#[derive(Clone, Debug)]
pub struct Rule {
    pub limits: Vec<Limit>,
    pub shadow: bool,
    pub quota: bool,
}

/// Rule number `n` matches the key `kn`.
#[derive(Clone, Debug)]
pub struct Rules(pub Vec<Rule>);

#[derive(Clone, Debug)]
pub struct Step {
    /// Nanoseconds since the step before.
    pub after: u64,
    pub event: Event,
}

/// Requests with a ticket are named by how many had one since.
#[derive(Clone, Debug)]
pub enum Event {
    Request(Vec<DescriptorHits>),
    /// The actual cost; it may be the second end.
    End {
        back: usize,
        cost: u64,
    },
    /// As much of the estimate is given back.
    GiveBack {
        back: usize,
        hits: u64,
    },
    /// A renewal, or a peek of one. It may have ended before.
    Renew {
        back: usize,
        is_peek: bool,
    },
    Sweep,
    Snapshot,
    /// A stop, with a snapshot, and a start.
    Restart,
    /// A start from the last snapshot.
    Crash,
}

impl Rules {
    pub fn random(rng: &mut Rng) -> Self {
        let rule = |rng: &mut Rng| {
            let (shadow, quota) = (rng.once_in(8), rng.once_in(6));
            let limits = (0..rng.pick(&[1, 1, 2])).map(|_| Limit::random(rng, quota)).collect();
            Rule { limits, shadow, quota }
        };
        Self((0..rng.between(1, 3)).map(|_| rule(rng)).collect())
    }

    pub fn yaml(&self) -> String {
        let mut yaml = String::from("domain: sim\ndescriptors:\n");
        for (number, Rule { limits, shadow, quota }) in self.0.iter().enumerate() {
            let _ = writeln!(
                yaml,
                "- key: k{number}\n  shadow_mode: {shadow}\n  quota_mode: {quota}\n  rate_limits:"
            );
            for (limit, Limit { keys, .. }) in limits.iter().enumerate() {
                let _ = writeln!(yaml, "  - {{name: l{limit}, {keys}}}");
            }
        }
        yaml
    }
}

impl Limit {
    /// Quotas have no bans.
    fn random(rng: &mut Rng, is_quota: bool) -> Self {
        let (limit, millis) = (rng.between(1, 9), rng.pick(&[250, 1_000, 10_000]));
        let (window, size) = (millis * MILLI, rng.pick(&[3, 5, 12]));
        let (other, model) = match rng.below(7) {
            0 => {
                ("algorithm: sliding_window".to_owned(), Model::SlidingWindow { limit, window, precision: 1 })
            }
            1 => {
                let precision = rng.pick(&[2, 5, 60]);
                (format!("precision: {precision}"), Model::SlidingWindow { limit, window, precision })
            }
            2 => ("algorithm: sliding_log".to_owned(), Model::SlidingLog { limit, window }),
            3 => ("algorithm: fixed_window".to_owned(), Model::FixedWindow { limit, window }),
            4 => {
                let model = Model::GreedyBucket { size, tokens: limit, interval: window };
                (format!("algorithm: token_bucket, size: {size}"), model)
            }
            5 => {
                let model = Model::IntervalBucket { size, tokens: limit, interval: window };
                (format!("algorithm: token_bucket, refill: intervals, size: {size}"), model)
            }
            _ => {
                let model = Model::LeakyBucket { burst: size, hits: limit, per: window };
                (format!("algorithm: leaky_bucket, burst: {size}"), model)
            }
        };
        let mut keys = format!("requests_per_unit: {limit}, per: {millis}ms, {other}");
        let reserve = (!rng.once_in(4)).then(|| Reserve::random(rng, millis, limit));
        if let Some(Reserve { estimate, hold, returns }) = reserve {
            let _ = match estimate {
                Estimate::Hits(hits) => write!(keys, ", reserve: {hits}"),
                Estimate::OfRequest => write!(keys, ", reserve: hits"),
            };
            let lost = if returns { "return" } else { "keep" };
            let _ = write!(keys, ", max_hold: {}ms, on_lost_end: {lost}", hold / MILLI);
            // More than a trace owes. A window ends by itself.
            if matches!(
                model,
                Model::GreedyBucket { .. } | Model::IntervalBucket { .. } | Model::LeakyBucket { .. }
            ) {
                keys += ", debt_max: 1000";
            }
        }
        let always = reserve.is_none() && rng.once_in(3);
        if always {
            keys += ", charge: always, debt_max: 1000";
        }
        // A log joins hits by the number that applies then, which a list of charges does not have.
        let has_schedule = is_window(&model) && !matches!(model, Model::SlidingLog { .. }) && rng.once_in(3);
        let schedule = has_schedule.then(|| Schedule::random(rng, &model));
        if let Some(schedule) = &schedule {
            let _ = write!(keys, ", {}, time_zone: {}", schedule.yaml(), schedule.zone());
        }
        let ban = (!is_quota && rng.once_in(4)).then(|| {
            let (after, within, lasts) =
                (rng.between(1, 3), rng.pick(&[250, 4_000]), rng.pick(&[100, 1_000, 20_000]));
            let _ = write!(keys, ", ban: {{after: {after}, within: {within}ms, for: {lasts}ms}}");
            Model::Ban { after, within: within * MILLI, lasts: lasts * MILLI }
        });
        Self { keys, model, reserve, always, schedule, ban }
    }
}

impl Reserve {
    fn random(rng: &mut Rng, millis: u64, limit: u64) -> Self {
        let estimate =
            if rng.once_in(3) { Estimate::OfRequest } else { Estimate::Hits(rng.between(1, limit.min(3))) };
        let hold = rng.pick(&[millis / 2, millis, 3 * millis, 7]) * MILLI;
        Self { estimate, hold, returns: rng.once_in(2) }
    }
}

pub fn random(rng: &mut Rng, rules: &Rules) -> Vec<Step> {
    let gaps = [0, 0, MILLI, 7 * MILLI, 50 * MILLI, 120 * MILLI + 1, 900 * MILLI, 4_000 * MILLI];
    let after = |rng: &mut Rng| match rng.below(60) {
        // Up to the next hour, at which numbers change.
        0 => rng.between(1, 3_600_000) * MILLI,
        _ => rng.pick(&gaps),
    };
    (0..rng.between(5, STEPS)).map(|_| Step { after: after(rng), event: event(rng, rules) }).collect()
}

fn event(rng: &mut Rng, rules: &Rules) -> Event {
    let latest = rng.pick(&[1, 3, 6]);
    let back = rng.below(latest) as usize;
    match rng.below(43) {
        0..24 => Event::Request((0..rng.pick(&[1, 1, 2, 3])).map(|_| descriptor(rng, rules)).collect()),
        24..34 => Event::End { back, cost: rng.pick(&[0, 1, 2, 3, 7, 15]) },
        34 => Event::GiveBack { back, hits: rng.between(1, 4) },
        35 => Event::Sweep,
        36 | 37 => Event::Snapshot,
        38 => Event::Restart,
        39..42 => Event::Renew { back, is_peek: rng.once_in(5) },
        _ => Event::Crash,
    }
}

fn descriptor(rng: &mut Rng, rules: &Rules) -> DescriptorHits {
    let hits = match rng.below(8) {
        0 => Hits::Peek,
        1 | 2 => Hits::GiveBack(rng.between(1, 4)),
        _ => Hits::Take(rng.pick(&[1, 1, 2, 5])),
    };
    let (rule, value) = (rng.below(rules.0.len() as u64) as usize, rng.below(VALUES as u64) as usize);
    DescriptorHits { rule, value, hits, own: None }
}
