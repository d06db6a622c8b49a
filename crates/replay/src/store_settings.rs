//! The store of a replay.

use tidegate_core::store::{OnFull, Seed, StoreSettings};

/// The settings of a replay's store.
pub(super) fn store_settings(counters_max: usize) -> StoreSettings {
    StoreSettings { seed: Seed::from_bytes(SEED), counters_max, on_full: OnFull::Deny }
}

/// A constant, so that a replay is repeatable. It needs no protection: no client chooses values while a replay runs.
const SEED: [u8; 16] = [0; 16];
