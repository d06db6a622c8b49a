//! Background thread that logs what leaves requests without a limit, and what denies them for another reason than a limit.

use std::{sync::Arc, time::Duration};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_operations::telemetry::{Notice, Notices};
use tidegate_service::Meters;
use tidegate_threads::{Priority, StartError, StoppableThread};

const INTERVAL: Duration = Duration::from_secs(1);

/// Starts the thread.
pub(super) fn start(
    limiter: &Arc<Limiter>,
    meters: &Arc<Meters>,
    clock: &Arc<dyn Clock>,
) -> Result<StoppableThread, StartError> {
    let (limiter, meters, clock) = (Arc::clone(limiter), Arc::clone(meters), Arc::clone(clock));
    let (mut notices, memory_max) = (Notices::default(), super::available_memory().map(|(bytes, _)| bytes));
    let round = move || {
        let now = clock.now();
        let (unlimited, _) = meters.unlimited.read(now);
        let (unknown_days, _) = meters.unknown_days.read(now);
        let paths = (&unlimited[..], &unknown_days[..]);
        let due = notices.round(paths, &limiter.rules(), (limiter.store(), memory_max), now);
        due.iter().for_each(Notice::log);
    };
    StoppableThread::start_periodic("notices", Priority::Full, INTERVAL, round)
}
