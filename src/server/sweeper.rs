//! Background thread that drops expired counters and counts slots in flight, a few pages at a time, and has freed memory returned to the
//! system.

use super::memory;
use std::{sync::Arc, time::Duration};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_threads::{Priority, StartError, StoppableThread};

/// Interval between sweeps of some shards.
const INTERVAL: Duration = Duration::from_millis(50);
/// Intervals in which every shard is swept once: about five seconds.
const INTERVALS_PER_PASS: usize = 100;
/// Intervals between returns of freed memory: a second.
const INTERVALS_PER_RETURN: usize = 20;
/// Pages swept under one lock, which takes some tens of microseconds.
const PAGES_PER_LOCK: usize = 16;

/// Starts the thread.
pub(super) fn start(limiter: &Arc<Limiter>, clock: &Arc<dyn Clock>) -> Result<StoppableThread, StartError> {
    let (limiter, clock) = (Arc::clone(limiter), Arc::clone(clock));
    let (mut next, mut interval) = (0, 0);
    let round = move || {
        next = sweep_some(&limiter, &*clock, next);
        interval = (interval + 1) % INTERVALS_PER_RETURN;
        if interval == 0 {
            memory::return_freed();
        }
    };
    StoppableThread::start_periodic("sweeper", Priority::Full, INTERVAL, round)
}

/// Sweeps the shards that are due in one interval, starting at `next`; returns the shard after them.
fn sweep_some(limiter: &Limiter, clock: &dyn Clock, next: usize) -> usize {
    let store = limiter.store();
    let due = store.shard_count().div_ceil(INTERVALS_PER_PASS);
    for shard in (next..next + due).map(|shard| shard % store.shard_count()) {
        limiter.sweep(shard, PAGES_PER_LOCK, clock.now());
    }
    (next + due) % store.shard_count()
}
