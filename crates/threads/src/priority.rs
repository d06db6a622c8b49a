//! The priority of threads whose work must not delay decisions, and their yields.
//!
//! On Linux, each thread has its own priority. If the system refuses to lower it, it stays.

use std::{sync::Arc, time::Duration};
use tidegate_core::clock::Clock;

/// Niceness of such threads: on a busy processor, they get about a tenth of the share of a deciding thread.
const NICE: i32 = 10;

/// Niceness of threads with a waiting client, such as a scrape of ten thousand limits: on a core that decisions saturate, they get two
/// fifths of the time.
const NICE_AWAITED: i32 = 2;

/// The longest time of all yields of one work, not counting the last.
const YIELDS_MAX: Duration = Duration::from_millis(1);

/// The priority of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Priority {
    /// That of deciding threads.
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

/// Runs work on a thread of low priority, and waits for its end. It has its own thread, since raising a priority again needs a permission.
/// If the system cannot start another thread, the work runs on this one.
pub fn run_at_low_priority<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    let (mut work, mut result) = (Some(work), None);
    std::thread::scope(|scope| {
        let (work, result) = (&mut work, &mut result);
        let run = move || {
            Priority::Low.apply();
            *result = work.take().map(|work| work());
        };
        // The scope joins the thread. After an error, `work` is not taken.
        let _ = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
    });
    result.unwrap_or_else(|| work.take().expect("no thread took the work")())
}

/// Yields between the pieces of a long work to threads that have become ready.
///
/// Without yields, a deciding thread that wakes up may wait for the rest of a time slice, whatever the priorities are. On a core that
/// decisions saturate, each yield takes a time slice instead. The time of all yields is therefore bounded, and the work then gets its
/// share.
pub struct Yields {
    clock: Arc<dyn Clock>,
    left: Duration,
}

impl Yields {
    /// The yields of one work.
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

    /// Each reading is a millisecond after the last.
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
        // The priority is not raised if these tests already run with a lower one.
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
