//! Background thread that logs what leaves requests without a limit, and what denies them for another reason than a limit.

use super::ServeError;
use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_operations::telemetry::{Notice, Notices};
use tidegate_service::Meters;

const INTERVAL: Duration = Duration::from_secs(1);

/// The running thread.
pub(super) struct NoticesThread {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl NoticesThread {
    pub(super) fn start(
        limiter: &Arc<Limiter>,
        meters: &Arc<Meters>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServeError> {
        let (stop, stopped) = mpsc::channel();
        let (limiter, meters, clock) = (Arc::clone(limiter), Arc::clone(meters), Arc::clone(clock));
        let run = move || {
            let (mut notices, memory) = (Notices::default(), super::available_memory());
            let memory_max = memory.map(|(bytes, _)| bytes);
            while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = clock.now();
                let (unlimited, _) = meters.unlimited.read(now);
                let due = notices.round(&unlimited, &limiter.rules(), (limiter.store(), memory_max), now);
                due.iter().for_each(Notice::log);
            }
        };
        let thread = std::thread::Builder::new().name("notices".into()).spawn(run);
        let thread = thread.map_err(|source| ServeError::Start { what: "the notices thread", source })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        // A panic of the thread was printed where it happened; stopping continues.
        let _ = self.thread.join();
    }
}
