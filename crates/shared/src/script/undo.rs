//! Arguments of the script that takes hits back.

use super::{batch::EncodedCounter, microseconds::NANOS, reserved::RESERVED};
use tidegate_core::{
    algorithm::{SLOT_SIGNATURE, StoredBytes},
    limit::Timestamp,
    store::Key,
};

/// The script that takes hits back, which were charged for a request that was denied elsewhere.
pub const UNDO_SCRIPT: &str = concat!(
    include_str!("clock.lua"),
    include_str!("slots.lua"),
    include_str!("arithmetic.lua"),
    include_str!("lease.lua"),
    include_str!("reserved.lua"),
    include_str!("write.lua"),
    include_str!("undo.lua")
);

/// Hits to be taken back from counters of one group.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Time of the charge, by the store's clock.
    pub(super) at: Timestamp,
    pub(super) counters: Vec<UndoneCounter>,
}

/// Hits to be taken back from one counter.
#[derive(Clone, Debug)]
pub(super) struct UndoneCounter {
    pub(super) key: Key,
    pub(super) limit: StoredBytes,
    /// Its state before the charge; of a limit of requests in flight the signature and the id of the slot, of one that reserves a
    /// byte and the id of the reservation.
    pub(super) before: Vec<u8>,
    pub(super) hits: u64,
}

impl UndoneCounter {
    /// These hits of a counter, whose state was `before`.
    pub(super) fn new(counter: &EncodedCounter, before: &[u8], hits: u64) -> Self {
        let before = match (counter.slot, counter.reservation) {
            (0, None) => before.to_vec(),
            (0, Some(reservation)) => [&[RESERVED], &reservation.id.to_le_bytes()[..]].concat(),
            (slot, _) => [SLOT_SIGNATURE, &slot.to_le_bytes()[..]].concat(),
        };
        Self { key: counter.key, limit: counter.limit.clone(), before, hits }
    }
}

impl Undo {
    /// The keys of the counters. The script's first key is that of the token, and the last ones are the counters' marks.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.counters.iter().map(|counter| counter.key)
    }

    /// The arguments: the time of the charge, then one for each counter. After them comes the number of milliseconds for which
    /// the token is kept.
    pub fn arguments(&self) -> Vec<Vec<u8>> {
        let at = (self.at.as_nanos() / NANOS).to_string().into_bytes();
        let counters = self.counters.iter().map(|UndoneCounter { limit, before, hits, .. }| {
            let mut argument = (*hits as f64).to_le_bytes().to_vec();
            let length = u16::try_from(limit.len()).expect("the parameters of a limit are short");
            argument.extend_from_slice(&length.to_le_bytes());
            argument.extend_from_slice(limit);
            argument.extend_from_slice(before);
            argument
        });
        std::iter::once(at).chain(counters).collect()
    }
}
