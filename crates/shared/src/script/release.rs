//! Arguments of the scripts that release slots of requests in flight, and that end reservations.

use super::batch::EncodedRequest;
use smallvec::SmallVec;
use tidegate_core::{limit::Hits, store::Key};

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

/// The end of the reservations of one ticket in counters of one group.
#[derive(Clone, Debug)]
pub struct End {
    id: u64,
    cost: Hits,
    keys: SmallVec<[Key; 1]>,
}

impl End {
    /// Of the reservations of this id in these counters. Negative hits are those by which the cost is less than the estimate.
    pub fn new(id: u64, cost: Hits, keys: impl IntoIterator<Item = Key>) -> Self {
        Self { id, cost, keys: keys.into_iter().collect() }
    }

    /// Of the reservations that a request starts, if it starts any, which cost nothing.
    pub fn of_request(request: &EncodedRequest) -> Option<Self> {
        let counters = request.counters.iter();
        let mut reserved =
            counters.filter_map(|counter| Some((counter.reservation?.id, counter.key))).peekable();
        let (id, _) = *reserved.peek()?;
        Some(Self::new(id, Hits::Peek, reserved.map(|(_, key)| key)))
    }

    /// The keys of the counters.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.keys.iter().copied()
    }

    /// The arguments: the id, and the cost.
    pub fn arguments(&self) -> [Vec<u8>; 2] {
        let cost = match self.cost {
            Hits::Take(hits) => hits.get().min(ALL).to_string(),
            Hits::Peek => "0".to_owned(),
            Hits::GiveBack(hits) => format!("-{}", hits.get().min(ALL)),
        };
        [self.id.to_le_bytes().to_vec(), cost.into_bytes()]
    }
}
