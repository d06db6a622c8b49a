//! The part of a bucket that a server has in a shared store, and the messages that change it.

#[cfg(doc)]
use super::settings::PART_LIFE;
use crate::lease::NodeId;
use std::iter::Sum;
use tidegate_core::{algorithm::Algorithm, store::Key};

/// A part of a bucket. Examples: the part of a server, and what may be in force at clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Thousandths of a hit per second.
    pub rate: u64,
    /// The most hits at once.
    pub burst: u64,
}

impl Part {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { rate: self.rate.saturating_add(other.rate), burst: self.burst.saturating_add(other.burst) }
    }

    pub(super) fn minus(self, other: Self) -> Self {
        Self { rate: self.rate.saturating_sub(other.rate), burst: self.burst.saturating_sub(other.burst) }
    }

    pub(super) fn min(self, other: Self) -> Self {
        Self { rate: self.rate.min(other.rate), burst: self.burst.min(other.burst) }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), burst: self.burst.max(other.burst) }
    }
}

impl Sum for Part {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::default(), Self::plus)
    }
}

/// The burst in the request of a server that has lost its part. The server then keeps the part that the store has recorded for it. A store
/// without its keys has recorded nothing.
pub const KNOWN_BURST: u64 = u64::MAX;

/// Request of a server for its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRequest {
    /// The server.
    pub server: NodeId,
    /// Number of the request, ascending.
    pub sequence: u64,
    /// The part that the server keeps: all that may be in force at its clients, and more if it does not shrink.
    pub kept: Part,
    /// Hits of bursts that the server has given up so far, and that may have been spent.
    pub spent: u64,
    /// The part of `spent` that the store has counted, by the last response. None before the first response: whatever the store has of this
    /// server may have been spent.
    pub acknowledged: Option<u64>,
    /// The part that it should get.
    pub wanted: Part,
    /// The highest rate of all parts together.
    pub rate_max: u64,
    /// In a window, microseconds for which each hit of the rate counts. 0 if the rate counts as time passes.
    pub span: u64,
    /// Demand of its clients, in thousandths of a hit per second. For a limit that is divided by slices: hits in the time for which a slice
    /// lasts.
    pub demand: u64,
    /// Number of its clients.
    pub clients: u64,
}

/// A request for the part of a counter, with the counter's algorithm.
#[derive(Clone, Debug)]
pub struct PartCall {
    /// Key of the counter.
    pub bucket: Key,
    /// Algorithm of its limit.
    pub algorithm: Algorithm,
    /// The request.
    pub request: PartRequest,
}

/// Response of the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartGrant {
    /// The part of the server from now on, for [`PART_LIFE`].
    pub part: Part,
    /// The parts of other servers.
    pub others: Vec<OtherPart>,
    /// Hits by which bursts can grow.
    pub free: u64,
    /// Hits of requests to servers since there are parts, admitted or denied. In a window from the first hit, only admitted hits of this
    /// window.
    pub exact: u64,
    /// Hits that holders of leases demand in one lease length.
    pub leased: u64,
}

/// The part of another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherPart {
    /// The part.
    pub part: Part,
    /// Microseconds until its end.
    pub ends_in: u64,
    /// Demand of its clients, in thousandths of a hit per second. For a limit that is divided by slices: hits in the time for which a slice
    /// lasts.
    pub demand: u64,
    /// Number of its clients.
    pub clients: u64,
}
