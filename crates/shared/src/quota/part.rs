//! What a server that shares a store has of a bucket, and the messages by which it changes that.

#[cfg(doc)]
use super::settings::PART_LIFE;
use crate::lease::NodeId;
use std::iter::Sum;
use tidegate_core::{algorithm::Algorithm, store::Key};

/// A part of a bucket, such as that of a server, or what clients may have in force.
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

/// The burst that a server declares if it does not know its part. It keeps what the store has recorded for it; a store without its keys has
/// recorded nothing.
pub const KNOWN_BURST: u64 = u64::MAX;

/// Request of a server for its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartRequest {
    /// The server.
    pub server: NodeId,
    /// Number of the request: rises.
    pub sequence: u64,
    /// What it keeps of its part: all that its clients may have in force, and more if it does not shrink.
    pub kept: Part,
    /// Hits of bursts that it has given up so far, and that may have been spent.
    pub spent: u64,
    /// The part of these that the store has counted, by the last response; none if there was none: whatever the store has of this server may
    /// have been spent.
    pub acknowledged: Option<u64>,
    /// What its part is to be.
    pub wanted: Part,
    /// The highest rate of all parts together.
    pub rate_max: u64,
    /// Microseconds for which each hit of the rate counts, of a window; 0 where the rate counts as time passes.
    pub span: u64,
    /// Demand of its clients, in thousandths of a hit per second; of a limit that is divided by slices, hits in the time for which these last.
    pub demand: u64,
    /// Number of its clients.
    pub clients: u64,
}

/// A request for the part of a counter that counts by an algorithm.
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
    /// What the server has from now on, for [`PART_LIFE`].
    pub part: Part,
    /// What other servers have.
    pub others: Vec<OtherPart>,
    /// Hits by which bursts can grow.
    pub free: u64,
    /// Hits of requests to servers since there are parts, admitted or denied; in a window from the first hit, those admitted in it.
    pub exact: u64,
    /// Hits that the holders of leases demand in one lease length.
    pub leased: u64,
}

/// What another server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherPart {
    /// The part.
    pub part: Part,
    /// Microseconds until its end.
    pub ends_in: u64,
    /// Demand of its clients, in thousandths of a hit per second; of a limit that is divided by slices, hits in the time for which these last.
    pub demand: u64,
    /// Number of its clients.
    pub clients: u64,
}
