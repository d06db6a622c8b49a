//! The background thread that makes the server's time follow corrections of the machine's clock.

use super::ServeError;
use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tidegate_core::clock::{Clock, Correction};

/// Interval between readings of the wall clock.
const INTERVAL: Duration = Duration::from_secs(1);
/// Smaller corrections, such as NTP makes all the time, are not logged.
const LOGGED_MIN: Duration = Duration::from_millis(100);

/// The running thread.
pub(super) struct ClockFollower {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl ClockFollower {
    pub(super) fn start(clock: &Arc<dyn Clock>) -> Result<Self, ServeError> {
        let (stop, stopped) = mpsc::channel();
        let clock = Arc::clone(clock);
        let thread = std::thread::Builder::new()
            .name("clock".into())
            .spawn(move || {
                while stopped.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
                    if let Some(correction) = clock.follow() {
                        log(correction);
                    }
                }
            })
            .map_err(|source| ServeError::Start { what: "the clock thread", source })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        // A panic of the thread was printed where it happened; stopping continues.
        let _ = self.thread.join();
    }
}

fn log(correction: Correction) {
    match correction {
        Correction::Stepped(nanos) => {
            let by = Duration::from_nanos(nanos);
            if by >= LOGGED_MIN {
                tracing::warn!(
                    ?by,
                    "the machine's clock was set forward, or the machine was suspended; time follows"
                );
            }
        }
        Correction::Slowed(nanos) => {
            let by = Duration::from_nanos(nanos);
            if by >= LOGGED_MIN {
                tracing::warn!(
                    ?by,
                    "the machine's clock was set back; time passes slower by 1 part in 128 until it has caught up, \
                     restart to follow at once"
                );
            }
        }
        Correction::CaughtUp => tracing::debug!("time has caught up with the machine's clock"),
    }
}
