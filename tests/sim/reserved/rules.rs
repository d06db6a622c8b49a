//! Random limits that charge estimates, and other limits: as a rule file, and as the oracle's models.

use crate::{
    oracle::Model,
    rng::Rng,
    rules::Rule,
    schedule::{Schedule, is_window},
};
use std::fmt::Write;

/// Nanoseconds of a millisecond.
pub const MILLI: u64 = 1_000_000;

/// The hits that a start charges.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Estimate {
    Hits(u64),
    /// The hits of the request.
    OfRequest,
}

/// An estimate, and what happens to it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Reserve {
    pub estimate: Estimate,
    /// The time until which an end is expected, in nanoseconds.
    pub hold: u64,
    /// Whether the estimate is returned then.
    pub returns: bool,
}

#[derive(Clone, Debug)]
pub struct Limit {
    keys: String,
    counting: Counting,
    pub model: Model,
    pub reserve: Option<Reserve>,
    pub always: bool,
    /// Other numbers at times of the week.
    pub schedule: Option<Schedule>,
    /// Denials and the bans that they begin, as a model of their own.
    pub ban: Option<Model>,
}

/// The way in which a limit counts, whatever number it admits.
#[derive(Clone, Copy, Debug)]
struct Counting {
    algorithm: u64,
    millis: u64,
    precision: u64,
    size: u64,
}

pub type Rules = crate::rules::Rules<Limit>;

impl Rules {
    pub fn with_estimates(rng: &mut Rng) -> Self {
        let rule = |rng: &mut Rng| {
            let (shadow, quota) = (rng.once_in(8), rng.once_in(6));
            let limits = (0..rng.pick(&[1, 1, 2])).map(|_| Limit::random(rng, quota)).collect();
            Rule { limits, shadow, quota }
        };
        Self((0..rng.between(1, 3)).map(|_| rule(rng)).collect())
    }

    /// Whether a request may have a ticket.
    pub fn give_tickets(&self) -> bool {
        self.0.iter().flat_map(|rule| &rule.limits).any(|limit| limit.reserve.is_some())
    }
}

impl AsRef<str> for Limit {
    fn as_ref(&self) -> &str {
        &self.keys
    }
}

impl Counting {
    fn random(rng: &mut Rng) -> Self {
        let (millis, size) = (rng.pick(&[250, 1_000, 10_000]), rng.pick(&[3, 5, 12]));
        Self { algorithm: rng.below(8), millis, precision: rng.pick(&[2, 5, 60]), size }
    }

    fn is_bucket(self) -> bool {
        self.algorithm >= 5
    }

    /// The keys of a limit of this many hits, and its model.
    fn limit(self, limit: u64) -> (String, Model) {
        let Self { algorithm, millis, precision, size } = self;
        let window = millis * MILLI;
        match algorithm {
            0 => {
                ("algorithm: sliding_window".to_owned(), Model::SlidingWindow { limit, window, precision: 1 })
            }
            1 => (format!("precision: {precision}"), Model::SlidingWindow { limit, window, precision }),
            2 => ("algorithm: sliding_log".to_owned(), Model::SlidingLog { limit, window }),
            3 => ("algorithm: fixed_window".to_owned(), Model::FixedWindow { limit, window }),
            4 => {
                let keys = "algorithm: fixed_window, aligned: first_hit".to_owned();
                (keys, Model::FirstHitWindow { limit, window })
            }
            5 => {
                let model = Model::GreedyBucket { size, tokens: limit, interval: window };
                (format!("algorithm: token_bucket, size: {size}"), model)
            }
            6 => {
                let model = Model::IntervalBucket { size, tokens: limit, interval: window };
                (format!("algorithm: token_bucket, refill: intervals, size: {size}"), model)
            }
            _ => {
                let model = Model::LeakyBucket { burst: size, hits: limit, per: window };
                (format!("algorithm: leaky_bucket, burst: {size}"), model)
            }
        }
    }
}

impl Limit {
    fn random(rng: &mut Rng, is_quota: bool) -> Self {
        let counting = Counting::random(rng);
        Self::of(counting, rng, is_quota, false)
    }

    /// A limit that replaces another limit, and often counts in the same way.
    pub fn instead_of(rng: &mut Rng, former: &Self, is_quota: bool) -> Self {
        let counting = if rng.once_in(2) { former.counting } else { Counting::random(rng) };
        // The default of `debt_max` would bound the ends of estimates that are still open, and a list of charges has no such bound.
        Self::of(counting, rng, is_quota, counting.is_bucket())
    }

    /// Quotas have no bans.
    fn of(counting: Counting, rng: &mut Rng, is_quota: bool, may_owe: bool) -> Self {
        let (requests, millis) = (rng.between(1, 9), counting.millis);
        let (other, model) = counting.limit(requests);
        let mut keys = format!("requests_per_unit: {requests}, per: {millis}ms, {other}");
        let reserve = (!rng.once_in(4)).then(|| Reserve::random(rng, millis, requests));
        if let Some(Reserve { estimate, hold, returns }) = reserve {
            let _ = match estimate {
                Estimate::Hits(hits) => write!(keys, ", reserve: {hits}"),
                Estimate::OfRequest => write!(keys, ", reserve: hits"),
            };
            let lost = if returns { "return" } else { "keep" };
            let _ = write!(keys, ", max_hold: {}ms, on_lost_end: {lost}", hold / MILLI);
            // More than a trace owes. A window ends by itself.
            if counting.is_bucket() {
                keys += ", debt_max: 1000";
            }
        }
        let always = reserve.is_none() && (may_owe || rng.once_in(3));
        if always {
            keys += ", charge: always, debt_max: 1000";
        }
        let schedule = (is_window(&model) && rng.once_in(3)).then(|| Schedule::random(rng, &model));
        if let Some(schedule) = &schedule {
            let _ = write!(keys, ", {}, time_zone: {}", schedule.yaml(), schedule.zone());
        }
        let ban = (!is_quota && rng.once_in(4)).then(|| {
            let (after, within, lasts) =
                (rng.between(1, 3), rng.pick(&[250, 4_000]), rng.pick(&[100, 1_000, 20_000]));
            let _ = write!(keys, ", ban: {{after: {after}, within: {within}ms, for: {lasts}ms}}");
            Model::Ban { after, within: within * MILLI, lasts: lasts * MILLI }
        });
        Self { keys, counting, model, reserve, always, schedule, ban }
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
