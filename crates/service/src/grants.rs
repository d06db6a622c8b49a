//! The granter of leases of a server.

use super::lease_callers::LeaseCallers;
use std::sync::{Arc, OnceLock};
use tidegate_core::limit::Timestamp;
use tidegate_shared::granter::Granter;

/// The granter of a server; none until it decides. Clones share it.
#[derive(Clone, Default)]
pub struct Grants {
    granter: Arc<OnceLock<Granter>>,
    callers: Arc<LeaseCallers>,
}

impl Grants {
    /// The granter, once the server decides.
    pub fn granter(&self) -> Option<&Granter> {
        self.granter.get()
    }

    /// The callers of nodes.
    pub(super) fn callers(&self) -> &LeaseCallers {
        &self.callers
    }

    /// Begins to grant. Only the first call has an effect.
    pub(super) fn begin(&self, now: Timestamp) {
        self.granter.get_or_init(|| {
            let mut id = [0; 8];
            // Without random numbers, the time still differs from that of any former process.
            let id = getrandom::fill(&mut id).map_or(now.as_nanos(), |()| u64::from_le_bytes(id));
            Granter::new(id, now)
        });
    }
}
