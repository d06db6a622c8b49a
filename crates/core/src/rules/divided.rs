//! A limit as clients of quotas (RLQS) share it: how it is divided, and how much of it they get at worst.

use super::RuleLimit;
use std::time::Duration;

/// Interval between two reports of Envoy, which it does not read from its configuration.
pub const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// A limit whose window, or time to fill a bucket, is at least so many nanoseconds is divided by slices of the hits that are left. A
/// limit with a shorter window is divided by rates: hits that others spend would be known too late.
pub const SLICED_FROM: u128 = Duration::from_secs(600).as_nanos();

/// Windows of fewer hits than this are divided by slices from a shorter time on. By rates, a client has few tokens and loses much to
/// chance: in simulation ten clients admit half as much of 100 requests in 30 s as by slices, and as much of 1,000 requests in 60 s.
const FEW_HITS: u64 = 1_000;
const FEW_HITS_SLICED_FROM: u128 = Duration::from_secs(30).as_nanos();

/// The fewest hits that are divided by slices.
pub const SLICED_MIN: u32 = 10;

/// Time of demand for which a client has a slice.
const SLICE: Duration = Duration::from_secs(15);

/// Most tokens of a bucket that is suggested as a remedy.
const SIZE_MAX: u64 = 1 << 24;

/// Whether a window is divided by slices of the hits that are left, and not by rates.
pub fn is_window_sliced(hits: u64, nanos: u128) -> bool {
    nanos >= SLICED_FROM || hits < FEW_HITS && nanos >= FEW_HITS_SLICED_FROM
}

/// Hits that all clients of a window together may spend at once. They are missing from its rate; but with half as many tokens a client
/// loses twice as many requests by chance. Both together are least if the burst grows with the square root of the hits.
pub fn burst_of_window(hits: u64) -> u64 {
    (hits / 4).min(3 * hits.isqrt()).max(hits / 32)
}

/// A limit that is divided among clients.
#[derive(Clone, Copy, Debug)]
pub(super) struct Divided {
    requests: u64,
    /// Nanoseconds in which `requests` are admitted.
    window: u128,
    /// The most requests at once.
    capacity: u64,
    /// Whether it is a bucket whose hits drain one by one.
    drains_evenly: bool,
}

/// Whether each client can have a part of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Division {
    Fits,
    /// Divided by rates, each client would have less than one request between two reports.
    LowRate,
    /// Divided by slices of the hits that are left, it has too few.
    FewHits,
}

impl Divided {
    pub(super) fn new(limit: &RuleLimit) -> Self {
        Self {
            requests: limit.requests.into(),
            window: limit.window.duration().as_nanos(),
            capacity: limit.capacity.into(),
            drains_evenly: limit.algorithm.drains_evenly(),
        }
    }

    /// Whether it admits nothing, which needs no division.
    pub(super) fn is_zero(self) -> bool {
        self.requests == 0
    }

    /// Nanoseconds in which a bucket fills, or of a window.
    fn fills_in(self) -> u128 {
        match self.drains_evenly {
            true => self.window * u128::from(self.capacity) / u128::from(self.requests).max(1),
            false => self.window,
        }
    }

    /// Whether it is divided by slices of the hits that are left.
    pub(super) fn is_sliced(self) -> bool {
        let is_slow = u128::from(self.requests) * REPORT_INTERVAL.as_nanos() < self.window;
        let is_sliced_window = !self.drains_evenly && is_window_sliced(self.capacity, self.fills_in());
        is_sliced_window || self.fills_in() >= SLICED_FROM || is_slow
    }

    /// Whether each of `clients` can have a part of it.
    pub(super) fn division(self, clients: u32) -> Division {
        if self.is_zero() {
            return Division::Fits;
        }
        if self.is_sliced() {
            let has_enough = self.capacity >= clients.max(SLICED_MIN).into();
            return if has_enough { Division::Fits } else { Division::FewHits };
        }
        let burst = if self.drains_evenly { 0 } else { burst_of_window(self.requests).max(1) };
        let steady = u128::from(self.requests.saturating_sub(burst));
        let is_enough = steady * REPORT_INTERVAL.as_nanos() >= u128::from(clients) * self.window;
        if is_enough { Division::Fits } else { Division::LowRate }
    }

    /// The part that `clients` together get of it at worst, in hundredths. They demand all of it, independently of each other, each about
    /// its share.
    pub(super) fn part_at_worst(self, clients: u32) -> u64 {
        let (requests, clients) = (self.requests.max(1), u64::from(clients));
        if self.is_sliced() {
            // Hits in slices, for 15 s of demand, and hits left in them by chance.
            let nanos = self.fills_in().max(2 * SLICE.as_nanos());
            let thousandths = 1_000 - (SLICE.as_nanos() * 1_000 / nanos) as u64;
            let deviations = (self.capacity * 10_000 / clients).isqrt().max(180);
            return thousandths * (deviations - 100) / deviations / 10;
        }
        let burst = if self.drains_evenly { self.capacity } else { burst_of_window(requests).max(1) };
        let burst = (burst - burst / 8).max(1);
        // Hits that clients may spend at once are missing from the rate of a window.
        let in_burst = if self.drains_evenly { 0 } else { burst + requests / 128 };
        let steady = requests.saturating_sub(in_burst) * 1_000 / requests;
        // Of random requests, one in twice a client's tokens is lost.
        let tokens = ((burst - burst / 4) / (clients + clients / 16 + 1)).max(1);
        // Clients without a token get nothing meanwhile.
        let served = clients.min((burst / 2).max(1));
        // The fewer requests a client's report has, the less it shows of the client's demand.
        let reported = (5 * u128::from(requests) * REPORT_INTERVAL.as_nanos() / self.window.max(1)) as u64;
        let known = reported.saturating_sub(3 * clients);
        let thousandths = steady * (2 * tokens - 1) / (2 * tokens) * served / clients;
        thousandths * known / reported.max(1) / 10
    }

    /// The least size of a token bucket with the same rate of which `clients` get `part` at worst, if there is one.
    pub(super) fn size_for(self, clients: u32, part: u64) -> Option<u64> {
        let bucket = |capacity| Self { capacity, drains_evenly: true, ..self };
        let is_enough = |size: u64| bucket(size).part_at_worst(clients) >= part;
        let mut most = 1;
        while !is_enough(most) {
            most *= 2;
            if most > SIZE_MAX || bucket(most).is_sliced() {
                return None;
            }
        }
        let (mut least, mut most) = (most / 2 + 1, most);
        while least < most {
            let middle = least.midpoint(most);
            if is_enough(middle) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        (bucket(most).division(clients) == Division::Fits).then_some(most)
    }
}
