//! Arguments of the script that releases slots of requests in flight.

use super::batch::EncodedRequest;
use smallvec::SmallVec;
use tidegate_core::store::Key;

/// More hits than a slot has.
const ALL: u64 = 1 << 32;

/// Slots of one ticket in counters of one group.
#[derive(Clone, Debug)]
pub struct Release {
    id: u64,
    /// Hits at most of each; none for all of them.
    hits: Option<u64>,
    keys: SmallVec<[Key; 1]>,
}

impl Release {
    /// Of the slots of this id in these counters.
    pub fn new(id: u64, hits: Option<u64>, keys: impl IntoIterator<Item = Key>) -> Self {
        Self { id, hits, keys: keys.into_iter().collect() }
    }

    /// Of the slots that a request takes, if it takes any.
    pub fn of_request(request: &EncodedRequest) -> Option<Self> {
        let slots = || request.counters.iter().filter(|counter| counter.slot != 0);
        let id = slots().next()?.slot;
        Some(Self::new(id, None, slots().map(|counter| counter.key)))
    }

    /// Whether a second one changes nothing: it releases all hits.
    pub fn is_repeatable(&self) -> bool {
        self.hits.is_none()
    }

    /// The keys of the counters.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.keys.iter().copied()
    }

    /// The arguments: the id, and the hits.
    pub fn arguments(&self) -> [Vec<u8>; 2] {
        let hits = self.hits.unwrap_or(ALL).min(ALL);
        [self.id.to_le_bytes().to_vec(), hits.to_string().into_bytes()]
    }
}
