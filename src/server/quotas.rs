//! The thread of quotas: takes in reports of clients that enforce limits by themselves, and divides the limits among them. With a shared
//! store, another one requests this server's parts of its limits.

use super::ServeError;
use std::{sync::Arc, thread::JoinHandle};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_operations::priority;
use tidegate_service::Quotas;
use tidegate_shared::store::{PartThread, SharedStore};

/// The running thread.
pub(super) struct QuotaThread {
    quotas: Quotas,
    thread: JoinHandle<()>,
    parts: Option<PartThread>,
}

impl QuotaThread {
    pub(super) fn start(
        quotas: &Quotas,
        limiter: &Arc<Limiter>,
        clock: &Arc<dyn Clock>,
        store: Option<&SharedStore>,
    ) -> Result<Self, ServeError> {
        let start = |source| ServeError::Start { what: "the thread of quotas", source };
        let (parts, calls) = match store {
            None => (None, None),
            Some(store) => {
                let of_thread = quotas.clone();
                let granted = move |bucket, sequence, grant| of_thread.granted(bucket, sequence, grant);
                let (thread, calls) = PartThread::start(store, clock, granted).map_err(start)?;
                (Some(thread), Some((store.holders().node(), calls)))
            }
        };
        let (of_thread, limiter, clock) = (quotas.clone(), Arc::clone(limiter), Arc::clone(clock));
        let run = move || {
            priority::lower_priority_of_awaited();
            of_thread.run(&limiter, &*clock, calls);
        };
        let thread = std::thread::Builder::new().name("quotas".into()).spawn(run);
        Ok(Self { quotas: quotas.clone(), thread: thread.map_err(start)?, parts })
    }

    pub(super) fn stop(self) {
        self.quotas.stop();
        // A panic was printed when it happened, and does not prevent the stop.
        let _ = self.thread.join();
        if let Some(parts) = self.parts {
            parts.stop();
        }
    }
}
