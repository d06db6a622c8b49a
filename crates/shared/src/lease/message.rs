//! Messages between a node and the store, and the clock of a node.

use std::time::Duration;

/// A moment of a node's monotonic clock, in nanoseconds since any origin. Never compared with the store's time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// The clock's origin.
    pub const ORIGIN: Self = Self(0);

    /// From nanoseconds since the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This moment, that many nanoseconds later.
    #[must_use]
    pub const fn plus_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// This moment, that much later.
    #[must_use]
    pub fn plus(self, wait: Duration) -> Self {
        self.plus_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Nanoseconds since `earlier`; zero if that is later.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Reciprocal of the part by which clocks of nodes and of the store may differ in speed: 0.1 %, twice as much as NTP slews a clock.
const DRIFT_DIVISOR: u64 = 1024;

/// The part of an interval on one clock that has certainly passed on any other.
pub(super) const fn less_drift(nanos: u64) -> u64 {
    nanos - nanos.div_ceil(DRIFT_DIVISOR)
}

/// A node from its start to its end, random. A node that restarts is another node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub u64);

/// Report of a node about one counter, and its claim to credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseRequest {
    /// The sender.
    pub node: NodeId,
    /// Number of the sender's holder of the counter: microseconds of its clock when it was made.
    pub holder: u64,
    /// Ascends with every request of the node for the counter: microseconds of its clock, below 2^53.
    pub sequence: u64,
    /// Hits spent since the holder was made.
    pub spent: u64,
    /// The part of `spent` that a response has acknowledged.
    pub acknowledged: u64,
    /// Nanoseconds from the last of these hits to the sending of the request, by the node's clock.
    pub spent_ago: u64,
    /// Credits that the node goes on to spend, whatever the response is. It has already given up all others.
    pub kept: u64,
    /// Hits that the node expects in one lease length; zero ends the lease.
    pub demand: u64,
}

/// How many credits the store has for nodes that request some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Supply {
    /// Enough: a node whose credits are spent lets the store decide.
    Ample,
    /// Less than demanded: a node whose credits are spent denies until its next request.
    Scarce,
    /// Too few for leases to be worthwhile: the store decides.
    TooSmall,
    /// The store is in a learning phase, and grants nothing.
    Learning,
}

/// The store's response to a [`LeaseRequest`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeaseResponse {
    /// Sequence number of the request.
    pub sequence: u64,
    /// Number of the store's epoch.
    pub epoch: u64,
    /// Total up to which the node may spend: `spent` of the request and all credits.
    pub spend_to: u64,
    /// Validity of the credits, from the moment at which the request was sent.
    pub valid_for: Duration,
    /// See [`Supply`].
    pub supply: Supply,
    /// Time after which the node reports again, from the moment at which the request was sent. A node whose credits do not last reports
    /// earlier. Without credits: time until there are some to grant.
    pub report_after: Duration,
    /// Hits that are neither used nor granted.
    pub free: u64,
    /// Time for which nothing can be granted, even if other nodes return all their credits. Zero if something can be granted.
    pub empty_for: Duration,
    /// Time until the whole limit would be free.
    pub until_full: Duration,
}
