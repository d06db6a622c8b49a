//! Background thread that drops expired counters and counts slots in flight, a few pages at a time, and has freed memory returned to the
//! system.

use super::{ServeError, memory};
use std::{
    sync::{Arc, mpsc},
    thread::JoinHandle,
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter};

/// Interval between sweeps of some shards.
const INTERVAL: Duration = Duration::from_millis(50);
/// Intervals in which every shard is swept once: about five seconds.
const INTERVALS_PER_PASS: usize = 100;
/// Intervals between returns of freed memory: a second.
const INTERVALS_PER_RETURN: usize = 20;
/// Pages swept under one lock, which takes some tens of microseconds.
const PAGES_PER_LOCK: usize = 16;

/// The running sweeper.
pub(super) struct Sweeper {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Sweeper {
    pub(super) fn start(limiter: &Arc<Limiter>, clock: &Arc<dyn Clock>) -> Result<Self, ServeError> {
        let (stop, stopped) = mpsc::channel();
        let (limiter, clock) = (Arc::clone(limiter), Arc::clone(clock));
        let thread = std::thread::Builder::new()
            .name("sweeper".into())
            .spawn(move || {
                let mut next = 0;
                for interval in 1.. {
                    if stopped.recv_timeout(INTERVAL) != Err(mpsc::RecvTimeoutError::Timeout) {
                        break;
                    }
                    next = sweep_some(&limiter, &*clock, next);
                    if interval % INTERVALS_PER_RETURN == 0 {
                        memory::return_freed();
                    }
                }
            })
            .map_err(|source| ServeError::Start { what: "the sweeper thread", source })?;
        Ok(Self { stop, thread })
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        // A panic of the sweeper was printed when it happened, and does not prevent the stop.
        let _ = self.thread.join();
    }
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
