//! The priority of threads whose work must not delay decisions, and their yields.
//!
//! On Linux a priority belongs to a thread. Where the system refuses to lower it, it stays.

use std::{sync::Arc, time::Duration};
use tidegate_core::clock::Clock;

/// Niceness of such threads: on a busy processor, about a tenth of the share that a thread with decisions has.
const NICE: i32 = 10;

/// Niceness of threads whose work somebody waits for, such as a scrape of ten thousand limits: on a core that decisions saturate, they have
/// two fifths of the time.
const NICE_AWAITED: i32 = 2;

/// Time that the yields of one work take at most, but for the last of them.
const YIELDS_MAX: Duration = Duration::from_millis(1);

/// The priority of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// That of threads with decisions.
    Full,
    /// A little lower: a client waits for the work.
    Awaited,
    /// Low: the work must not delay decisions.
    Low,
}

impl Priority {
    /// Gives the calling thread this priority.
    pub fn apply(self) {
        let nice = match self {
            Self::Full => return,
            Self::Awaited => NICE_AWAITED,
            Self::Low => NICE,
        };
        let _ = rustix::process::setpriority_process(None, nice);
    }
}

/// Runs work on a thread of low priority, and waits for its end. A thread of its own, since raising a priority again needs a permission;
/// if the system has no further thread, the work runs on this one.
pub fn run_at_low_priority<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    let (mut work, mut result) = (Some(work), None);
    std::thread::scope(|scope| {
        let (work, result) = (&mut work, &mut result);
        let run = move || {
            Priority::Low.apply();
            *result = work.take().map(|work| work());
        };
        // Joined by the scope. An error leaves the work untaken.
        let _ = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
    });
    result.unwrap_or_else(|| work.take().expect("no thread took the work")())
}

/// Yields between the pieces of a long work, to threads that have become ready meanwhile.
///
/// Without them, a thread with decisions that wakes up can wait for the rest of a time slice, whatever the priorities. On a core
/// that decisions saturate, each yield takes a time slice instead; so their time is bounded, and the work then has its share.
pub struct Yields {
    clock: Arc<dyn Clock>,
    left: Duration,
}

impl Yields {
    /// Yields of one work.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, left: YIELDS_MAX }
    }

    /// Yields the core, unless the yields of this work have taken too long.
    pub fn yield_now(&mut self) {
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
    use std::sync::atomic::{AtomicU64, Ordering};
    use tidegate_core::limit::Timestamp;

    /// Each reading is a millisecond after the one before.
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    fn priority() -> i32 {
        rustix::process::getpriority_process(None).expect("the priority of this thread")
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn work_has_a_low_priority_and_its_caller_keeps_its_own() {
        let before = priority();
        // Not raised where these tests run with a lower one already.
        assert_eq!(run_at_low_priority("low", priority), NICE.max(before));
        assert_eq!(priority(), before);
    }

    #[test]
    fn a_panic_of_work_at_low_priority_reaches_its_caller() {
        let work = || run_at_low_priority("panics", || panic!("at work"));
        assert!(std::panic::catch_unwind(work).is_err());
    }

    #[test]
    fn yields_end_once_they_have_taken_too_long() {
        let clock = Arc::new(Steps(AtomicU64::new(0)));
        let mut yields = Yields::new(Arc::clone(&clock) as Arc<dyn Clock>);
        (0..100).for_each(|_| yields.yield_now());
        assert_eq!(clock.0.load(Ordering::Relaxed), 2 * YIELDS_MAX.as_millis() as u64);
    }
}
