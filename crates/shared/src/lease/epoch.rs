//! Epochs of the store. An epoch ends when the store loses something that it has acknowledged.

use tidegate_core::limit::Timestamp;

/// An epoch and its learning phase.
///
/// A credit is valid for at most one lease length after the store granted it. When the learning phase ends, every credit of an earlier
/// epoch has therefore expired, or was declared and is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Epoch {
    /// Identity, random.
    pub id: u64,
    /// Time of the first request that the store received in this epoch.
    pub began: Timestamp,
}

impl Epoch {
    /// Whether nothing is granted or admitted yet.
    pub fn is_learning(&self, length_nanos: u64, now: Timestamp) -> bool {
        now <= self.began.saturating_add_nanos(length_nanos)
    }
}
