//! What clients are sent.

use super::action::Action;
use tidegate_core::store::Key;

/// A client: one stream of reports.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StreamId(pub u64);

/// What one client is to be sent about one bucket. Those of a client are sent in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Push {
    /// The client.
    pub stream: StreamId,
    /// Key of the counter.
    pub bucket: Key,
    /// What it does from now on.
    pub action: Action,
    /// Whether it is what the client was sent last.
    pub is_renewal: bool,
}
