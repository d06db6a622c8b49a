//! The background thread that makes the server's time follow corrections of the machine's clock.

use std::{sync::Arc, time::Duration};
use tidegate_core::clock::{Clock, Correction};
use tidegate_threads::{Priority, StartError, StoppableThread};

/// Interval between readings of the wall clock.
const INTERVAL: Duration = Duration::from_secs(1);
/// Smaller corrections, such as NTP makes all the time, are not logged.
const LOGGED_MIN: Duration = Duration::from_millis(100);

/// Starts the thread.
pub(super) fn start(clock: &Arc<dyn Clock>) -> Result<StoppableThread, StartError> {
    let clock = Arc::clone(clock);
    let round = move || clock.follow().into_iter().for_each(log);
    StoppableThread::start_periodic("clock", Priority::Full, INTERVAL, round)
}

fn log(correction: Correction) {
    let (nanos, message) = match correction {
        Correction::Stepped(nanos) => {
            (nanos, "the machine's clock was set forward, or the machine was suspended; time follows")
        }
        Correction::Slowed(nanos) => (
            nanos,
            "the machine's clock was set back; time passes slower by 1 part in 128 until it has caught up, restart to \
             follow at once",
        ),
        Correction::CaughtUp => return tracing::debug!("time has caught up with the machine's clock"),
    };
    let by = Duration::from_nanos(nanos);
    if by >= LOGGED_MIN {
        tracing::warn!(?by, "{message}");
    }
}
