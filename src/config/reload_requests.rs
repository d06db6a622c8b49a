//! Requests to read files again: the rule files, and the certificates of each port with TLS.

use super::watch::WatchHandle;
use crate::sync::Mutex;
use std::sync::Arc;

/// Requests to read files again, which may be made before anything watches any. Clones share the watches.
#[derive(Clone, Default)]
pub struct ReloadRequests(Arc<Mutex<Vec<WatchHandle>>>);

impl ReloadRequests {
    /// Passes requests on to this watch from now on.
    pub fn register(&self, watch: WatchHandle) {
        self.0.lock().push(watch);
    }

    /// Requests that every registered watch reads its files; false if there is none.
    pub fn request(&self) -> bool {
        let watches = self.0.lock();
        watches.iter().for_each(WatchHandle::request);
        !watches.is_empty()
    }
}

impl std::fmt::Debug for ReloadRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReloadRequests")
    }
}
