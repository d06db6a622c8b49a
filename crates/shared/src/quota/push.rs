//! Assignments on their way to clients.

use super::{assignment::Assignment, ceilings::RuleId};
use crate::PeerId;
use tidegate_core::rules::Percent;

/// A client: one stream of reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// A client that reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reporter {
    /// The client.
    pub stream: StreamId,
    /// The number of the bucket among those of the client. Low numbers are used again.
    pub place: u32,
    /// Its peer.
    pub peer: PeerId,
    /// The most that clients of its peer may have of the limit together.
    pub share_max: Percent,
    /// The rule of the bucket.
    pub rule: RuleId,
    /// The most that all clients have of the limit together if no process records what it assigns.
    pub unrecorded: Percent,
}

impl Reporter {
    /// Its peer; none if the peer may have all of the limit.
    pub(super) fn peer_to_bound(&self) -> PeerId {
        if self.share_max == Percent::ALL { PeerId::NONE } else { self.peer }
    }
}

/// An assignment to send to one client for one bucket. Assignments to a client are sent in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Push {
    /// The client.
    pub stream: StreamId,
    /// The number of the bucket among the client's.
    pub place: u32,
    /// How the client decides from now on.
    pub assignment: Assignment,
    /// Whether it is the assignment that the client was sent last.
    pub is_renewal: bool,
}
