//! The thread of quotas: takes in reports of clients that enforce limits by themselves, and divides the limits among them.

use super::ServeError;
use crate::{priority, service::Quotas};
use std::{sync::Arc, thread::JoinHandle};
use tidegate_core::{clock::Clock, limiter::Limiter};

/// The running thread.
pub(super) struct QuotaThread {
    quotas: Quotas,
    thread: JoinHandle<()>,
}

impl QuotaThread {
    pub(super) fn start(
        quotas: &Quotas,
        limiter: &Arc<Limiter>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServeError> {
        let (of_thread, limiter, clock) = (quotas.clone(), Arc::clone(limiter), Arc::clone(clock));
        let run = move || {
            priority::lower_priority_of_awaited();
            of_thread.run(&limiter, &*clock);
        };
        let thread = std::thread::Builder::new().name("quotas".into()).spawn(run);
        let thread = thread.map_err(|source| ServeError::Start { what: "the thread of quotas", source })?;
        Ok(Self { quotas: quotas.clone(), thread })
    }

    pub(super) fn stop(self) {
        self.quotas.stop();
        // A panic was printed when it happened, and does not prevent the stop.
        let _ = self.thread.join();
    }
}
