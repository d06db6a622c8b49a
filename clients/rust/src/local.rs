//! Limits that are counted in this process: for requests without an answer, and in tests of applications. Pure: time is an argument.
//!
//! Invariant: a counter's `used` is at most its limit, in units of one hit times the window, so that a bucket refills exactly.

use crate::{
    client::Tidegate,
    decision::{Decision, Limit, Reason, Status},
    fake::Call,
    lru::Lru,
};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Number of counters; beyond it the least recently used counter is dropped.
const COUNTERS_MAX: usize = 100_000;

/// A limit that is counted in this process: [`Builder::fallback`](crate::Builder::fallback), [`Tidegate::counting`]. It counts exactly, by
/// the algorithm of the server, and does not include other processes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalLimit {
    keys: Vec<String>,
    requests: u32,
    per: Duration,
    is_window: bool,
    name: String,
}

impl LocalLimit {
    /// Creates a token bucket of `requests` that is full again after `per`, for each combination of values of a descriptor with these keys.
    ///
    /// # Panics
    ///
    /// If there is no key, or if the requests or the time are 0: no request could be limited.
    pub fn bucket<K: Into<String>>(keys: impl IntoIterator<Item = K>, requests: u32, per: Duration) -> Self {
        let keys: Vec<String> = keys.into_iter().map(Into::into).collect();
        assert!(
            !keys.is_empty() && requests > 0 && !per.is_zero(),
            "a local limit needs a key, and requests and a time above 0"
        );
        Self { keys, requests, per, is_window: false, name: String::new() }
    }

    /// Creates a limit of `requests` in each window of the clock: of the Unix epoch in tests.
    ///
    /// # Panics
    ///
    /// As [`bucket`](Self::bucket).
    pub fn window<K: Into<String>>(keys: impl IntoIterator<Item = K>, requests: u32, per: Duration) -> Self {
        Self { is_window: true, ..Self::bucket(keys, requests, per) }
    }

    /// Sets the name of the limit in decisions.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    fn capacity(&self) -> u128 {
        self.units(u64::from(self.requests))
    }

    fn units(&self, hits: u64) -> u128 {
        u128::from(hits).saturating_mul(self.per.as_nanos())
    }
}

/// A descriptor of a request: its keys and values, its hits, and whether they are given back.
pub(crate) struct Part<'r> {
    pub(crate) entries: &'r [(String, String)],
    pub(crate) cost: u64,
    pub(crate) gives_back: bool,
}

/// The counters of limits.
pub(crate) struct LocalLimits {
    limits: Vec<LocalLimit>,
    counters: Mutex<Lru<Identity, Counter>>,
}

/// The index of a limit, and the values of the entries.
type Identity = Arc<(usize, Vec<String>)>;

#[derive(Clone, Copy, Default)]
struct Counter {
    /// Time of the clock: since the Unix epoch in tests, since the client's creation in the fallback.
    at: Duration,
    used: u128,
}

impl Counter {
    /// Applies the time since the last use: a bucket refills, a window ends. An earlier time, such as that of a call that another call
    /// overtook, changes nothing.
    fn advanced(self, limit: &LocalLimit, now: Duration) -> Self {
        let (per, now) = (limit.per.as_nanos(), now.max(self.at));
        let used = if limit.is_window {
            if now.as_nanos() / per == self.at.as_nanos() / per { self.used } else { 0 }
        } else {
            let refilled = now.saturating_sub(self.at).as_nanos().saturating_mul(limit.requests.into());
            self.used.saturating_sub(refilled)
        };
        Self { at: now, used }
    }

    fn fits(self, limit: &LocalLimit, cost: u64) -> bool {
        self.used.saturating_add(limit.units(cost)) <= limit.capacity()
    }

    /// The wait of such a request over the limit, or the time until the whole limit is free; None if no wait helps.
    fn reset_after(self, limit: &LocalLimit, cost: u64, is_over: bool) -> Option<Duration> {
        if is_over && cost > limit.requests.into() {
            return None;
        }
        let per = limit.per.as_nanos();
        let nanos = if !limit.is_window {
            let missing = if is_over {
                self.used.saturating_add(limit.units(cost)).saturating_sub(limit.capacity())
            } else {
                self.used
            };
            // Rounded up: waiting that long is long enough.
            missing.div_ceil(limit.requests.into())
        } else if is_over || self.used > 0 {
            per - self.at.as_nanos() % per
        } else {
            0
        };
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let seconds = u64::try_from(seconds).unwrap_or(u64::MAX);
        Some(Duration::new(seconds, u32::try_from(nanos).unwrap_or_default()))
    }
}

impl LocalLimits {
    pub(crate) fn new(limits: Vec<LocalLimit>) -> Self {
        Self { limits, counters: Mutex::new(Lru::new(COUNTERS_MAX)) }
    }

    /// Decides a request, all or nothing, and takes or gives back its hits.
    pub(crate) fn decide<'r>(&self, parts: impl IntoIterator<Item = Part<'r>>, now: Duration) -> Decision {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        let charged: Vec<_> = parts
            .into_iter()
            .map(|part| {
                let keys = part.entries.iter().map(|(key, _)| key);
                let index = self.limits.iter().position(|limit| limit.keys.iter().eq(keys.clone()))?;
                let identity =
                    Arc::new((index, part.entries.iter().map(|(_, value)| value.clone()).collect()));
                let limit = &self.limits[index];
                let counter = counters.get(&identity).copied().unwrap_or_default().advanced(limit, now);
                counters.insert(Arc::clone(&identity), counter);
                let is_over = !part.gives_back && !counter.fits(limit, part.cost.max(1));
                Some((identity, part, is_over))
            })
            .collect();
        let allowed = !charged.iter().flatten().any(|(.., is_over)| *is_over);
        let unlimited =
            Status { over_limit: false, limit: None, remaining: 0, reset_after: None, mode: None };
        let mut status = |(identity, part, is_over): (Identity, Part<'_>, bool)| {
            let limit = &self.limits[identity.0];
            let mut counter = counters.get(&identity).copied().unwrap_or_default();
            if part.gives_back {
                counter.used = counter.used.saturating_sub(limit.units(part.cost));
            } else if allowed {
                counter.used = counter.used.saturating_add(limit.units(part.cost));
            }
            counters.insert(identity, counter);
            let free = limit.capacity().saturating_sub(counter.used) / limit.per.as_nanos();
            Status {
                over_limit: is_over,
                limit: Some(Limit {
                    requests: limit.requests,
                    unit: None,
                    name: limit.name.clone(),
                    window: Some(limit.per),
                }),
                remaining: u32::try_from(free).unwrap_or(u32::MAX),
                reset_after: counter.reset_after(limit, part.cost.max(1), is_over),
                mode: None,
            }
        };
        let statuses =
            charged.into_iter().map(|charge| charge.map_or_else(|| unlimited.clone(), &mut status));
        Decision::new(allowed, Reason::Decided, statuses.collect())
    }
}

impl Tidegate {
    /// Creates a client for tests of applications that counts as a server with these limits does. The clock of the test is the time since
    /// the Unix epoch.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tidegate_client::{LocalLimit, Tidegate};
    /// let limit = LocalLimit::bucket(["user"], 5, Duration::from_secs(60));
    /// let client = Tidegate::counting([limit], || Duration::from_secs(1_700_000_000));
    /// ```
    pub fn counting(
        limits: impl IntoIterator<Item = LocalLimit>,
        clock: impl Fn() -> Duration + Send + Sync + 'static,
    ) -> Self {
        let local = LocalLimits::new(limits.into_iter().collect());
        Self::fake(move |Call { descriptors, costs, gives_back, .. }: Call| {
            let parts = descriptors.iter().zip(&costs);
            let parts =
                parts.map(|(descriptor, &cost)| Part { entries: descriptor.entries(), cost, gives_back });
            local.decide(parts, clock())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn admits(limits: &LocalLimits, user: &str, now: Duration) -> bool {
        let entries = [("user".to_owned(), user.to_owned())];
        limits.decide([Part { entries: &entries, cost: 1, gives_back: false }], now).allowed
    }

    #[test]
    fn a_flood_of_values_drops_the_least_recently_used_counter_alone() {
        let (limits, counters) = (vec![LocalLimit::bucket(["user"], 1, HOUR)], Mutex::new(Lru::new(3)));
        let limits = LocalLimits { limits, counters };
        assert!(admits(&limits, "unused", HOUR) && admits(&limits, "used", HOUR));
        for value in 0..10 {
            assert!(admits(&limits, &value.to_string(), HOUR));
            assert!(!admits(&limits, "used", HOUR), "{value}");
        }
        assert!(admits(&limits, "unused", HOUR));
    }

    #[test]
    fn an_earlier_time_lifts_no_limit() {
        for limit in [LocalLimit::window(["user"], 1, HOUR), LocalLimit::bucket(["user"], 1, HOUR)] {
            let limits = LocalLimits::new(vec![limit.clone()]);
            let admitted = [2 * HOUR, 2 * HOUR - Duration::from_secs(1), HOUR, 2 * HOUR]
                .map(|now| admits(&limits, "a", now));
            assert_eq!(admitted, [true, false, false, false], "{limit:?}");
        }
    }
}
