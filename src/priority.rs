//! The priority of threads whose work must not delay decisions.

use crate::clock::Clock;
use std::{sync::Arc, time::Duration};

/// Niceness of such threads: on a busy processor, about a tenth of the share that a thread with decisions has.
const NICE: i32 = 10;

/// Time that the yields of one work take at most, but for the last of them.
const YIELDS_MAX: Duration = Duration::from_millis(1);

/// Niceness for work of seconds. A thread of [`NICE`] takes so much of a core that one with decisions, after a burst of them, waits for
/// the rest of a tick (4 ms at 250 Hz), which makes the next burst; one of this niceness takes too little for that.
const NICE_LONG: i32 = 19;

/// Runs work of seconds on a thread of its own, of the lowest priority, and waits for its end. If the system has no further thread, it runs
/// on this one.
pub(crate) fn run_at_lowest<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    let (mut work, mut result) = (Some(work), None);
    std::thread::scope(|scope| {
        let run = || {
            let _ = rustix::process::setpriority_process(None, NICE_LONG);
            result = work.take().map(|work| work());
        };
        // Its end is awaited by the scope.
        let _ = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
    });
    result.unwrap_or_else(|| work.take().expect("no thread took the work")())
}

/// Lowers the priority of the calling thread; on Linux a priority belongs to a thread. Where the system refuses, the priority stays.
pub(crate) fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, NICE);
}

/// Puts the calling thread in the idle class: any other thread that becomes ready preempts it at once, while one of low priority runs to
/// the end of its time slice. On a core that others saturate it has less than a hundredth of the time. Where the system refuses, its priority is low.
#[cfg(feature = "server")]
pub(crate) fn run_when_idle() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{NormalThreadSchedulePolicy::Idle, ThreadPriority, ThreadSchedulePolicy, unix};
        let policy = ThreadSchedulePolicy::Normal(Idle);
        if unix::set_thread_priority_and_policy(unix::thread_native_id(), ThreadPriority::Min, policy).is_ok()
        {
            return;
        }
    }
    lower_priority();
}

/// Yields between the pieces of a long work, to threads that have become ready meanwhile.
///
/// Without them, a thread with decisions that wakes up can wait for the rest of a time slice, whatever the priorities. On a core
/// that decisions saturate, each yield takes a time slice instead; so their time is bounded, and the work then has its share.
pub(crate) struct Yields {
    clock: Arc<dyn Clock>,
    left: Duration,
}

impl Yields {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, left: YIELDS_MAX }
    }

    /// Yields the core, unless the yields of this work have taken too long.
    pub(crate) fn yield_now(&mut self) {
        if !self.left.is_zero() {
            let start = self.clock.now();
            std::thread::yield_now();
            self.left = self.left.saturating_sub(self.clock.now().since(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Timestamp;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Each reading is a millisecond after the one before.
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    #[test]
    fn work_of_seconds_has_the_lowest_priority_and_its_caller_another() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        assert_eq!(run_at_lowest("long", priority), NICE_LONG);
        assert_eq!(priority(), before);
        assert!(before < NICE_LONG);
    }

    #[test]
    fn yields_end_once_they_have_taken_too_long() {
        let clock = Arc::new(Steps(AtomicU64::new(0)));
        let mut yields = Yields::new(Arc::clone(&clock) as Arc<dyn Clock>);
        (0..100).for_each(|_| yields.yield_now());
        assert_eq!(clock.0.load(Ordering::Relaxed), 2 * YIELDS_MAX.as_millis() as u64);
    }
}
