//! Work that begins in the idle class.

use super::idle_thread::{IdleThread, may_leave};
use crate::sync::Mutex;
use std::sync::OnceLock;

/// One work that is in the idle class until another thread ends that.
#[derive(Default)]
pub(crate) struct IdleAtFirst(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    NotBegun,
    Idle(IdleThread),
    /// It has ended, or has left the class.
    Left,
}

/// Leaves the class at the end of the work, by a panic too.
struct AtWork<'w>(&'w IdleAtFirst);

impl IdleAtFirst {
    /// Niceness of the threads with such work, once they have left the class. On a core that decisions saturate, they have two fifths of
    /// the time: with less, a scrape of ten thousand limits would take too long.
    pub(crate) const NICE: i32 = 2;

    /// Runs the work on the calling thread, which has that niceness and keeps it; in the idle class where the system permits that.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        // The permission does not change, and asking for it takes a thread.
        static MAY_LEAVE: OnceLock<bool> = OnceLock::new();
        let _at_work = AtWork(self);
        if *MAY_LEAVE.get_or_init(|| may_leave(Self::NICE)) {
            let mut state = self.0.lock();
            if let State::NotBegun = *state {
                *state = IdleThread::enter_permitted(Self::NICE).map_or(State::Left, State::Idle);
            }
        }
        work()
    }

    /// From now on the work has the thread's niceness, whether it has begun or not.
    pub(crate) fn leave(&self) {
        // Locked until it has left: the thread cannot end meanwhile.
        let mut state = self.0.lock();
        if let State::Idle(thread) = std::mem::replace(&mut *state, State::Left) {
            thread.leave();
        }
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        if let State::Idle(thread) = std::mem::replace(&mut *self.0.0.lock(), State::Left) {
            thread.leave_here(IdleAtFirst::NICE);
        }
    }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::tests::{may_raise_priority, priority};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use thread_priority::{
        NormalThreadSchedulePolicy::{Idle, Other},
        ThreadSchedulePolicy::{self, Normal},
        unix,
    };

    fn policy() -> ThreadSchedulePolicy {
        unix::thread_schedule_policy().unwrap()
    }

    #[test]
    fn work_is_in_the_idle_class_until_another_thread_ends_that_and_its_thread_keeps_its_niceness() {
        let on_a_thread = || {
            // Not permitted where these tests run with a lower priority.
            let _ = rustix::process::setpriority_process(None, IdleAtFirst::NICE);
            let nice = priority();
            let expected = if may_raise_priority(nice) { Normal(Idle) } else { Normal(Other) };
            assert_eq!(IdleAtFirst::default().run(policy), expected);
            let work = IdleAtFirst::default();
            let until_it_has_left = || {
                std::thread::scope(|scope| _ = scope.spawn(|| work.leave()));
                (policy(), priority())
            };
            assert_eq!(work.run(until_it_has_left), (Normal(Other), nice));
            let panics = || IdleAtFirst::default().run(|| panic!("at work"));
            assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
            assert_eq!((policy(), priority()), (Normal(Other), nice));
            let work = IdleAtFirst::default();
            work.leave();
            assert_eq!(work.run(policy), Normal(Other));
        };
        std::thread::spawn(on_a_thread).join().unwrap();
    }
}
