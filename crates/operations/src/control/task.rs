//! The background thread of the control API.

use super::Control;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval while decisions are streamed or recorded.
const WATCHED_INTERVAL: Duration = Duration::from_millis(50);

/// The running thread.
pub struct ControlTask {
    stop: Arc<AtomicBool>,
    thread: BackgroundThread,
}

impl ControlTask {
    /// Starts the thread.
    pub fn start(control: &Arc<Control>) -> Result<Self, StartError> {
        let stop = Arc::<AtomicBool>::default();
        let (of_thread, stopped) = (Arc::clone(control), Arc::clone(&stop));
        let run = move || {
            let control = of_thread;
            let (mut taken, mut collected) = (Vec::new(), control.now());
            while !stopped.load(Ordering::Relaxed) {
                let live = &control.live;
                let is_watched = live.tail.is_watched() || live.recorder.is_on();
                thread::park_timeout(if is_watched { WATCHED_INTERVAL } else { INTERVAL });
                control.pass_on(&mut taken);
                if control.now().since(collected) >= INTERVAL {
                    collected = control.now();
                    control.each_second();
                }
            }
            control.audit_log.flush();
        };
        let thread = BackgroundThread::start("control", Priority::Low, run)?;
        let _ = control.task.set(thread.handle().clone());
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.handle().unpark();
        self.thread.join();
    }
}
