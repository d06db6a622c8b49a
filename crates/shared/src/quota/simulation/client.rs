//! A client that behaves as Envoy 1.40: an instance with one bucket.

use super::super::{Assignment, Settings, StreamId, Usage};
use crate::lease::simulation::rng::Rng;

pub(super) const MILLIS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MILLIS;

/// The time between two reports, which is fixed in Envoy.
pub(super) const INTERVAL: u64 = 5 * SECOND;

/// How it decides requests.
#[derive(Clone, Copy, Debug)]
enum Strategy {
    Deny,
    Bucket { max: u32, per_fill: u32, secs: u64, salt: u32, tokens: f64, filled: u64 },
}

/// An instance.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) stream: Option<StreamId>,
    /// Time of the next report.
    pub(super) reports_at: u64,
    /// Whether requests have made the bucket.
    has_bucket: bool,
    assigned: Option<(Strategy, u64)>,
    usage: Usage,
    /// Requests per second.
    pub(super) demand: f64,
    /// Number of requests that arrive at once.
    pub(super) clump: u64,
    pub(super) admitted: u64,
}

impl Client {
    pub(super) fn new(demand: f64, clump: u64, now: u64) -> Self {
        Self {
            stream: None,
            reports_at: now + INTERVAL,
            has_bucket: false,
            assigned: None,
            usage: Usage::default(),
            demand,
            clump,
            admitted: 0,
        }
    }

    /// Requests that arrive in `nanos`.
    pub(super) fn arrivals(&self, nanos: u64, rng: &mut Rng) -> u64 {
        let clumps = self.demand * nanos as f64 / SECOND as f64 / self.clump as f64;
        let chance = rng.below(1 << 30) as f64 / (1_u64 << 30) as f64;
        (clumps + chance).floor() as u64 * self.clump
    }

    /// Decides requests. Returns how many it admits, and whether the first of them made the bucket, which is then reported at once.
    pub(super) fn decide(&mut self, requests: u64, now: u64) -> (u64, bool) {
        if requests == 0 {
            return (0, false);
        }
        if self.assigned.is_some_and(|(_, end)| end <= now) {
            self.assigned = None;
        }
        let admitted = match &mut self.assigned {
            Some((Strategy::Bucket { max, per_fill, secs, tokens, filled, .. }, _)) => {
                let fill = f64::from(*per_fill) / *secs as f64 * (now - *filled) as f64 / SECOND as f64;
                (*tokens, *filled) = ((*tokens + fill).min(f64::from(*max)), now);
                let admitted = (*tokens as u64).min(requests);
                *tokens -= admitted as f64;
                admitted
            }
            Some((Strategy::Deny, _)) | None => 0,
        };
        self.usage.allowed += admitted;
        self.usage.denied += requests - admitted;
        self.admitted += admitted;
        let is_first = !std::mem::replace(&mut self.has_bucket, true);
        self.usage.is_first |= is_first;
        (admitted, is_first)
    }

    /// Its report, if it has the bucket.
    pub(super) fn report(&mut self) -> Option<Usage> {
        self.has_bucket.then(|| std::mem::take(&mut self.usage))
    }

    /// Takes an assignment. Only whole seconds of the life count. The bucket is a new one only if its numbers or the nanoseconds of its
    /// interval have changed. A new bucket is filled to the ratio of the former one.
    pub(super) fn act(&mut self, assignment: Assignment, now: u64) {
        if !self.has_bucket {
            return;
        }
        let ttl = Settings::default().ttl.as_secs() * SECOND;
        let former = self.assigned.filter(|&(_, end)| end > now).map(|(strategy, _)| strategy);
        match assignment {
            Assignment::AllowAll => unreachable!("a limit divides the bucket"),
            Assignment::Abandon => (self.has_bucket, self.assigned) = (false, None),
            Assignment::DenyAll => self.assigned = Some((Strategy::Deny, now + ttl)),
            Assignment::Tokens { max_tokens, tokens_per_fill, fill_interval } => {
                let (secs, salt) = (fill_interval.as_secs(), fill_interval.subsec_nanos());
                let strategy = match former {
                    Some(Strategy::Bucket { max, per_fill, salt: before, .. })
                        if (max, per_fill, before) == (max_tokens, tokens_per_fill, salt) =>
                    {
                        former.expect("it is a bucket")
                    }
                    former => {
                        let tokens = match former {
                            Some(Strategy::Bucket { max, per_fill, secs, tokens, filled, .. }) => {
                                let fill =
                                    f64::from(per_fill) / secs as f64 * (now - filled) as f64 / SECOND as f64;
                                let tokens = (tokens + fill).min(f64::from(max));
                                (f64::from(max_tokens) * tokens / f64::from(max)).floor()
                            }
                            _ => f64::from(max_tokens),
                        };
                        Strategy::Bucket {
                            max: max_tokens,
                            per_fill: tokens_per_fill,
                            secs,
                            salt,
                            tokens,
                            filled: now,
                        }
                    }
                };
                self.assigned = Some((strategy, now + ttl));
            }
        }
    }
}
