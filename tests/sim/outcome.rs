//! Requests and their outcomes, in the terms of the naive limiter.

/// The longest search for a moment at which a schedule admits, in nanoseconds: no window is longer than a month, and schedules repeat after a
/// week. Limits in several time zones may admit together only when the clocks of one of them have changed, which may be later.
pub const SEARCHED: u64 = 60 * 86_400_000_000_000;

/// A descriptor of a request, and its hits.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DescriptorHits {
    /// Number of the rule; the number of rules means that no rule matches.
    pub rule: usize,
    /// Number of the value.
    pub value: usize,
    pub hits: Hits,
    /// A limit sent with the descriptor, per second.
    pub own: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Hits {
    Take(u64),
    Peek,
    GiveBack(u64),
}

/// Result of a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome {
    /// Queued until its release.
    Queued,
    /// Whether it is over its limits, and the status of each descriptor.
    Decided(bool, Vec<Status>),
}

impl Outcome {
    /// Whether the outcome that was found is the expected outcome.
    pub fn is_met_by(&self, found: &Self) -> bool {
        let is_met = |(expected, found): (&Status, &Status)| match (&expected.limit, &found.limit) {
            (Some(Tightest { remaining, reset: Wait::Late }), Some(limit)) => {
                let is_late = match limit.reset {
                    Wait::After(nanos) => nanos >= SEARCHED,
                    reset => reset == Wait::Never,
                };
                is_late && *remaining == limit.remaining && expected.is_over == found.is_over
            }
            _ => expected == found,
        };
        match (self, found) {
            (Self::Decided(is_over, expected), Self::Decided(found_over, found)) => {
                is_over == found_over
                    && expected.len() == found.len()
                    && expected.iter().zip(found).all(is_met)
            }
            _ => self == found,
        }
    }
}

/// Status of one descriptor.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    pub is_over: bool,
    /// The tightest limit; none if no limit applies to the descriptor.
    pub limit: Option<Tightest>,
}

impl Status {
    /// The status of a descriptor, from whether each of its limits is over and from what it reports: the first of the tightest limits.
    /// Denials come before admissions, then the longest wait, or the least that remains.
    pub fn of_limits(limits: impl Iterator<Item = (bool, Tightest)>) -> Self {
        let mut status = Self { is_over: false, limit: None };
        for (is_over, next) in limits {
            let is_tighter = match &status.limit {
                None => true,
                Some(_) if is_over != status.is_over => is_over,
                Some(tightest) if is_over => next.reset > tightest.reset,
                Some(tightest) => next.remaining < tightest.remaining,
            };
            if is_tighter {
                status = Self { is_over, limit: Some(next) };
            }
        }
        status
    }
}

#[derive(Clone, PartialEq, Debug)]
pub struct Tightest {
    pub remaining: u64,
    pub reset: Wait,
}

/// Time until a reset, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Wait {
    /// Until there is room for a counter; the time is unknown.
    Unknown,
    /// In nanoseconds.
    After(u64),
    /// Later than the searched time, or never.
    Late,
    Never,
}

impl Wait {
    pub fn known(self) -> Option<u64> {
        if let Self::After(nanos) = self { Some(nanos) } else { None }
    }
}

pub fn takes(hits: Hits) -> u64 {
    if let Hits::Take(hits) = hits { hits } else { 0 }
}

pub fn gives(hits: Hits) -> u64 {
    if let Hits::GiveBack(hits) = hits { hits } else { 0 }
}
