//! The priority of threads whose work must not delay decisions.

mod idle_at_first;
mod idle_thread;

#[cfg(feature = "server")]
pub(crate) use idle_at_first::IdleAtFirst;

use crate::clock::Clock;
use idle_thread::IdleThread;
use std::{
    sync::{Arc, mpsc},
    time::Duration,
};

/// Niceness of such threads: on a busy processor, about a tenth of the share that a thread with decisions has.
const NICE: i32 = 10;

/// Time that the yields of one work take at most, but for the last of them.
const YIELDS_MAX: Duration = Duration::from_millis(1);

/// Niceness for work of seconds. A thread of [`NICE`] takes so much of a core that one with decisions, after a burst of them, waits for
/// the rest of a tick (4 ms at 250 Hz), which makes the next burst; one of this niceness does so less often.
const NICE_LONG: i32 = 19;

/// Runs work of seconds on a thread of its own, and waits for its end. If the system has no further thread, it runs on this one.
///
/// Decisions wait least beside a thread of the idle class, which has next to no time on a core that they saturate; so after `patience`
/// it leaves the class, for [`NICE`]. That needs a permission: `CAP_SYS_NICE`, or `RLIMIT_NICE` for [`NICE`]. Without it, the thread
/// is of [`NICE_LONG`] instead.
pub(crate) fn run_long<R: Send>(name: &str, patience: Duration, work: impl FnOnce() -> R + Send) -> R {
    let (mut work, mut result) = (Some(work), None);
    std::thread::scope(|scope| {
        let (began, thread_began) = mpsc::channel();
        let (work, result) = (&mut work, &mut result);
        let run = move || {
            let _ = rustix::process::setpriority_process(None, NICE_LONG);
            // Disconnected at the end of the work.
            let idle = IdleThread::enter(NICE);
            if idle.is_none() {
                let _ = rustix::process::setpriority_process(None, NICE_LONG);
            }
            let _began = began.send(idle).map(|()| began);
            *result = work.take().map(|work| work());
        };
        let thread = std::thread::Builder::new().name(name.into()).spawn_scoped(scope, run);
        if let Ok(Some(idle)) = thread_began.recv()
            && matches!(thread_began.recv_timeout(patience), Err(mpsc::RecvTimeoutError::Timeout))
        {
            idle.leave();
        }
        // Its end is awaited by the scope. Not earlier: until then the thread can be referred to.
        drop(thread);
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
    if !idle_thread::enter_for_ever() {
        lower_priority();
    }
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
    #[cfg(all(feature = "server", target_os = "linux"))]
    use thread_priority::{
        NormalThreadSchedulePolicy::{Idle, Other},
        ThreadSchedulePolicy::Normal,
        unix,
    };

    /// Each reading is a millisecond after the one before.
    struct Steps(AtomicU64);

    impl Clock for Steps {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(self.0.fetch_add(1, Ordering::Relaxed))
        }
    }

    pub(super) fn priority() -> i32 {
        rustix::process::getpriority_process(None).unwrap()
    }

    /// Whether threads here may raise their priority, as those of root may.
    pub(super) fn may_raise_priority(nice: i32) -> bool {
        let raise = move || {
            rustix::process::setpriority_process(None, NICE_LONG).unwrap();
            rustix::process::setpriority_process(None, nice).is_ok()
        };
        std::thread::spawn(raise).join().unwrap()
    }

    #[test]
    fn long_work_has_a_low_priority_and_its_caller_keeps_its_own() {
        let before = priority();
        let expected = if may_raise_priority(NICE) && cfg!(all(feature = "server", target_os = "linux")) {
            NICE
        } else {
            NICE_LONG
        };
        assert_eq!(run_long("long", Duration::MAX, priority), expected);
        assert_eq!(priority(), before);
        assert!(before < NICE_LONG);
    }

    #[cfg(all(feature = "server", target_os = "linux"))]
    #[test]
    fn long_work_is_in_the_idle_class_until_it_has_taken_too_long() {
        let policy = || unix::thread_schedule_policy().unwrap();
        if !may_raise_priority(NICE) {
            assert_eq!(run_long("long", Duration::ZERO, policy), Normal(Other));
            return;
        }
        assert_eq!(run_long("patient", Duration::MAX, policy), Normal(Idle));
        let until_it_has_left = || {
            while policy() == Normal(Idle) {
                std::thread::yield_now();
            }
            priority()
        };
        let before = priority();
        assert_eq!(run_long("impatient", Duration::ZERO, until_it_has_left), NICE);
        assert_eq!(priority(), before);
    }

    #[test]
    fn a_panic_of_long_work_reaches_its_caller() {
        let work = || run_long("panics", Duration::MAX, || panic!("at work"));
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
