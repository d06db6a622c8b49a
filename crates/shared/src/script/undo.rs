//! Arguments of the script that takes back hits.

use super::{batch::EncodedCounter, command::Command, microseconds::NANOS, reserved::RESERVED, text::Script};
use tidegate_core::{
    algorithm::{SLOT_SIGNATURE, StoredBytes},
    limit::Timestamp,
    store::Key,
};

/// Hits to take back from counters of one group.
#[derive(Clone, Debug)]
pub struct Undo {
    /// Time of the charge, by the store's clock.
    pub(super) at: Timestamp,
    pub(super) counters: Vec<UndoneCounter>,
}

/// Hits to take back from one counter.
#[derive(Clone, Debug)]
pub(super) struct UndoneCounter {
    pub(super) key: Key,
    pub(super) limit: StoredBytes,
    /// Its state before the charge. For a limit of requests in flight: the signature and the id of the slot. For a limit that reserves: a
    /// byte and the id of the reservation.
    pub(super) before: Vec<u8>,
    pub(super) hits: u64,
}

impl UndoneCounter {
    /// Takes back `hits` of a counter whose state was `before`.
    pub(super) fn new(counter: &EncodedCounter, before: &[u8], hits: u64) -> Self {
        let before = match (counter.slot, counter.reservation) {
            (0, None) => before.to_vec(),
            (0, Some(reservation)) => [&[RESERVED], &reservation.id.to_le_bytes()[..]].concat(),
            (slot, _) => [SLOT_SIGNATURE, &slot.to_le_bytes()[..]].concat(),
        };
        Self { key: counter.key, limit: counter.limit.clone(), before, hits }
    }
}

/// Milliseconds for which the token of hits that were taken back is kept: longer than all attempts.
const TOKEN_MS: u64 = 120_000;

impl Undo {
    /// The command that takes the hits back, once for each token.
    pub fn command(&self, token: u128) -> Command {
        let at = (self.at.as_nanos() / NANOS).to_string().into_bytes();
        let hits = self.counters.iter().map(|UndoneCounter { limit, before, hits, .. }| {
            let mut argument = (*hits as f64).to_le_bytes().to_vec();
            let length = u16::try_from(limit.len()).expect("the parameters of a limit are short");
            argument.extend_from_slice(&length.to_le_bytes());
            argument.extend_from_slice(limit);
            argument.extend_from_slice(before);
            argument
        });
        let arguments = std::iter::once(at).chain(hits).chain([TOKEN_MS.to_string().into_bytes()]).collect();
        let counters = self.counters.iter().map(|counter| counter.key).collect();
        Command { script: Script::Undo, counters, token: Some(token), arguments }
    }
}
