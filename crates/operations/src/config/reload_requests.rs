//! Requests to read files again (rule files, tokens, and the certificates of each port with TLS), and to reopen the audit log.

use super::watch::WatchHandle;
use std::sync::Arc;
use tidegate_core::sync::Mutex;

type Receiver = Box<dyn Fn() + Send>;

/// Requests to read files again. They may be made before anything watches files. Clones share the receivers.
#[derive(Clone, Default)]
pub struct ReloadRequests(Arc<Mutex<Vec<Receiver>>>);

impl ReloadRequests {
    /// Passes requests to this watch from now on.
    pub fn register(&self, watch: WatchHandle) {
        self.on_request(move || watch.request());
    }

    /// Calls `receiver` at every request from now on. It must not block.
    pub fn on_request(&self, receiver: impl Fn() + Send + 'static) {
        self.0.lock().push(Box::new(receiver));
    }

    /// Passes a request to all receivers. False if there is none.
    pub fn request(&self) -> bool {
        let receivers = self.0.lock();
        receivers.iter().for_each(|receiver| receiver());
        !receivers.is_empty()
    }
}

impl std::fmt::Debug for ReloadRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReloadRequests")
    }
}
