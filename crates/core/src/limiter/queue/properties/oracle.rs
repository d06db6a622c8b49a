//! A naive model of queues: a list of arrivals, from which every release time is computed anew.

use std::time::Duration;

/// The verdict on a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OracleVerdict {
    Now,
    /// Queued until then, in nanoseconds.
    Later(u64),
    No,
}

/// The arrivals at one queue, and its parameters.
#[derive(Clone, Debug)]
pub(super) struct OracleLine {
    pub(super) burst: u32,
    pub(super) requests: u32,
    pub(super) per_millis: u64,
    pub(super) wait_millis: u64,
    pub(super) hits_max: u32,
    /// In the order of arrival. The hits are those that were not given back.
    pub(super) entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    number: usize,
    arrived: u64,
    hits: u64,
}

impl OracleLine {
    /// The queue as a limit in a rule file.
    pub(super) fn yaml(&self) -> String {
        let Self { burst, requests, per_millis, wait_millis, hits_max, .. } = self;
        format!(
            "{{requests_per_unit: {requests}, per: {per_millis}ms, algorithm: leaky_bucket, burst: {burst}, \
             max_wait: {wait_millis}ms, max_queue: {hits_max}}}"
        )
    }

    /// Time is counted in parts of a nanosecond, so many that each hit takes a whole number of them.
    fn parts(&self, nanos: u64) -> u128 {
        u128::from(nanos) * u128::from(self.requests)
    }

    fn weight(&self, hits: u64) -> u128 {
        u128::from(hits) * u128::from(self.per_millis * 1_000_000)
    }

    /// Whether so many hits may be released within so many nanoseconds.
    pub(super) fn admits_within(&self, hits: u64, nanos: u64) -> bool {
        self.weight(hits) <= self.weight(self.burst.into()) + self.parts(nanos)
    }

    /// Time at which the hits of all entries have leaked, one after the other.
    fn dry<'e>(&self, entries: impl IntoIterator<Item = &'e Entry>) -> u128 {
        let standing = entries.into_iter().filter(|entry| entry.hits > 0);
        standing.fold(0, |dry, entry| dry.max(self.parts(entry.arrived)) + self.weight(entry.hits))
    }

    /// The first nanosecond at which what leaks until `dry` is no more than the burst.
    fn release_at(&self, dry: u128) -> u64 {
        let parts = dry.saturating_sub(self.weight(self.burst.into()));
        u64::try_from(parts.div_ceil(u128::from(self.requests))).expect("within the century")
    }

    fn up_to(&self, number: usize) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take_while(move |entry| entry.number <= number)
    }

    fn release_time(&self, number: usize) -> u64 {
        self.release_at(self.dry(self.up_to(number)))
    }

    fn decide(&self, hits: u64, wait_max: Duration, now: u64) -> OracleVerdict {
        let arrival = Entry { number: usize::MAX, arrived: now, hits };
        let dry = self.dry(self.entries.iter().chain([&arrival]));
        let (level, release) = (dry - self.parts(now), self.release_at(dry));
        let fits = |most: u32| level <= self.weight(most.into());
        let wait_max = wait_max.min(Duration::from_millis(self.wait_millis));
        if hits > u64::from(self.burst) {
            OracleVerdict::No
        } else if fits(self.burst) {
            OracleVerdict::Now
        } else if fits(self.burst + self.hits_max) && Duration::from_nanos(release - now) <= wait_max {
            OracleVerdict::Later(release)
        } else {
            OracleVerdict::No
        }
    }

    /// Takes off what has not begun to leak.
    fn cancel(&mut self, number: usize, now: u64) {
        let level = self.dry(self.up_to(number)).saturating_sub(self.parts(now));
        let left = u64::try_from(level / self.weight(1)).expect("few hits");
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.number == number) {
            entry.hits -= left.min(entry.hits);
        }
    }
}

/// Two queues, and a counter that starts anew with the day.
pub(super) struct Naive {
    lines: [OracleLine; 2],
    day_max: u64,
    /// The hits of every request that was not denied, by number. A cancelled request has none in the day's counter.
    requests: Vec<[u64; 3]>,
}

impl Naive {
    pub(super) fn new(lines: [OracleLine; 2], day_max: u64) -> Self {
        Self { lines, day_max, requests: Vec::new() }
    }

    pub(super) fn arrive(&mut self, hits: [u64; 3], wait_max: Duration, now: u64) -> OracleVerdict {
        let day: u64 = self.requests.iter().map(|taken| taken[2]).sum();
        let mut verdict = if day + hits[2] > self.day_max { OracleVerdict::No } else { OracleVerdict::Now };
        for (line, &hits) in self.lines.iter().zip(&hits).filter(|(_, hits)| **hits > 0) {
            verdict = match (verdict, line.decide(hits, wait_max, now)) {
                (OracleVerdict::No, _) | (_, OracleVerdict::No) => OracleVerdict::No,
                (OracleVerdict::Now, other) | (other, OracleVerdict::Now) => other,
                (OracleVerdict::Later(one), OracleVerdict::Later(other)) => {
                    OracleVerdict::Later(one.max(other))
                }
            };
        }
        if verdict != OracleVerdict::No {
            let number = self.requests.len();
            self.requests.push(hits);
            for (line, &hits) in self.lines.iter_mut().zip(&hits) {
                line.entries.push(Entry { number, arrived: now, hits });
            }
        }
        verdict
    }

    /// The number of the last request that was not denied.
    pub(super) fn newest(&self) -> usize {
        self.requests.len() - 1
    }

    pub(super) fn hits_in_first(&self, number: usize) -> u64 {
        self.requests[number][0]
    }

    /// The latest of the release times in its queues.
    pub(super) fn release_time(&self, number: usize) -> u64 {
        let named = self.lines.iter().zip(self.requests[number]).filter(|(_, hits)| *hits > 0);
        named.map(|(line, _)| line.release_time(number)).max().expect("a queued request is in a queue")
    }

    pub(super) fn cancel(&mut self, number: usize, now: u64) {
        self.lines.iter_mut().for_each(|line| line.cancel(number, now));
        self.requests[number][2] = 0;
    }
}
