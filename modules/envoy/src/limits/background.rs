//! The thread of the module: renews slots, drops expired counters, follows the machine's clock, reads rule files again, publishes figures.

use super::{
    RuleSource,
    full::FullLog,
    shared::{Shared, checked, elapsed, read},
};
use crate::metrics::HeldCounts;
use std::{
    sync::{Arc, Weak},
    time::Duration,
};
use tidegate_core::{clock::Clock as _, limit::Window};
use tidegate_envoy_abi::{LogLevel, log};
use tidegate_threads::{Priority, StartError, StoppableThread};

/// Interval between the steps of the thread.
const INTERVAL: Duration = Duration::from_millis(50);
/// Steps in which every shard is swept once.
const STEPS_PER_PASS: usize = 100;
/// Steps between publications of figures, and between readings of the wall clock: a second.
const STEPS_PER_SECOND: usize = 20;
/// Steps between readings of rule files: five seconds.
const STEPS_PER_READING: usize = 100;
/// Pages swept under one lock, which takes some tens of microseconds.
const PAGES_PER_LOCK: usize = 16;

/// Starts the thread. Dropping it waits for its end: no code of the module may run after its last configuration.
pub(super) fn start(shared: &Arc<Shared>) -> Result<StoppableThread, StartError> {
    let shared = Arc::clone(shared);
    let (mut last_error, mut step, mut full) = (String::new(), 0_usize, FullLog::default());
    let round = move || {
        shared.renew();
        shared.sweep(step);
        if step % STEPS_PER_SECOND == 0 {
            shared.clock.follow();
            shared.publish();
            full.line(shared.limiter.store(), elapsed())
                .into_iter()
                .for_each(|line| log(LogLevel::Warn, &line));
        }
        if step % STEPS_PER_READING == STEPS_PER_READING - 1 {
            shared.read_again(&mut last_error);
        }
        step = step.wrapping_add(1);
    };
    StoppableThread::start_periodic("tidegate", Priority::Full, INTERVAL, round)
}

impl Shared {
    /// Renews the slots and estimates of requests in progress. A `max_hold` of a few intervals expires before.
    fn renew(&self) {
        for (_, held) in self.renewals.due(usize::MAX, elapsed()) {
            let nanos = u64::try_from(held.hold.as_nanos()).unwrap_or(u64::MAX);
            if let Ok(hold) = Window::from_nanos(nanos) {
                self.limiter.keep_held(&held.ticket, hold, self.clock.now());
            }
        }
    }

    /// Drops expired counters in the shards that are due; slots that expire with them are counted.
    fn sweep(&self, step: usize) {
        let store = self.limiter.store();
        let due = store.shard_count().div_ceil(STEPS_PER_PASS);
        for shard in (step * due..(step + 1) * due).map(|shard| shard % store.shard_count()) {
            self.limiter.sweep(shard, PAGES_PER_LOCK, self.clock.now());
        }
    }

    pub(super) fn publish(&self) {
        let mut all = self.metrics.lock();
        // Counters are common to all configurations: the newest configuration has their slots and reservations, since it stays the longest.
        if let Some(metrics) = all.iter().rev().find_map(Weak::upgrade) {
            let (mut published, now) = (self.held.lock(), HeldCounts::of(&self.limiter));
            metrics.count_held(&published, &now);
            *published = now;
        }
        all.retain(|metrics| {
            let metrics = metrics.upgrade();
            metrics.inspect(|metrics| metrics.schedule()).is_some()
        });
    }

    /// Reads the rule files again. After an error the rules in force stay; each error is logged once.
    fn read_again(&self, last_error: &mut String) {
        let Some(source @ RuleSource::Files(_)) = self.rules.lock().source().cloned() else { return };
        let result = read(&source).and_then(|sources| {
            if self.rules.lock().read == sources {
                return Ok(false);
            }
            checked(&sources)?;
            self.put_in_force(sources)
        });
        match result {
            Ok(is_new) => {
                last_error.clear();
                if is_new {
                    log(LogLevel::Info, "tidegate: rules reloaded");
                }
            }
            Err(error) if error != *last_error => {
                log(LogLevel::Error, &format!("tidegate: rules not reloaded; those in force stay: {error}"));
                *last_error = error;
            }
            Err(_) => {}
        }
    }
}
