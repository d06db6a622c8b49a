//! The source of time. Everything else takes time as an argument.

mod course;
mod shared_course;

pub use course::Correction;

use crate::limit::Timestamp;
use course::{Course, Steering};
use shared_course::SharedCourse;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Instant, SystemTime},
};

/// A source of time. It never runs backwards within a process.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Follows a correction of the clock behind it; call it about once a second. Returns what has changed.
    fn follow(&self) -> Option<Correction> {
        None
    }
}

/// A pair of clocks: a wall clock, which can be set, and a monotonic clock, which only runs. Both in nanoseconds.
pub trait Readings: Send + Sync + 'static {
    /// Nanoseconds since the Unix epoch by the wall clock, which may be set at any time.
    fn wall(&self) -> u64;
    /// Nanoseconds since some moment, by a clock that never jumps and may stand still while the machine is suspended.
    fn monotonic(&self) -> u64;
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct OsReadings {
    started: Instant,
}

impl OsReadings {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the OS clock")]
    fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Readings for OsReadings {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the OS clock")]
    fn wall(&self) -> u64 {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(epoch.as_nanos()).unwrap_or(u64::MAX)
    }

    #[inline]
    fn monotonic(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The machine's clock: the monotonic clock, steered after the wall clock.
///
/// Setting the wall clock while the process runs moves no window backwards: see [`Clock::follow`] and [`Correction`].
#[derive(Debug)]
pub struct SystemClock<R = OsReadings> {
    readings: R,
    course: SharedCourse,
    steering: Mutex<Steering>,
}

impl SystemClock {
    /// Starts at the wall clock's time.
    pub fn new() -> Self {
        Self::of(OsReadings::new())
    }
}

impl<R: Readings> SystemClock<R> {
    /// As [`SystemClock::new`], on other clocks.
    pub fn of(readings: R) -> Self {
        let course = Course { since: readings.monotonic(), time: readings.wall(), is_slowed: false };
        Self { readings, course: SharedCourse::new(course), steering: Mutex::new(Steering::new(course)) }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: Readings> Clock for SystemClock<R> {
    #[inline]
    fn now(&self) -> Timestamp {
        let (course, monotonic) = self.course.load_with(|| self.readings.monotonic());
        Timestamp::from_nanos(course.at(monotonic))
    }

    fn follow(&self) -> Option<Correction> {
        // Steering is whole after each step, even if a panic ended a step.
        let mut steering = self.steering.lock().unwrap_or_else(PoisonError::into_inner);
        let (course, correction) = steering.steer(self.readings.monotonic(), self.readings.wall())?;
        self.course.store(course);
        Some(correction)
    }
}

/// Nanoseconds since the machine was started, by a clock that is never set and runs on while the machine is suspended.
pub fn since_boot() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// A clock that is moved by its owner, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// Stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(AtomicU64::new(start.as_nanos()))
    }

    /// Moves the clock forward to `now`, or leaves it as it is if that is in the past.
    pub fn advance_to(&self, now: Timestamp) {
        self.0.fetch_max(now.as_nanos(), Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    /// Two clocks that a test sets.
    #[derive(Default)]
    struct Settable {
        wall: AtomicU64,
        monotonic: AtomicU64,
    }

    impl Readings for Arc<Settable> {
        fn wall(&self) -> u64 {
            self.wall.load(Ordering::SeqCst)
        }

        fn monotonic(&self) -> u64 {
            self.monotonic.load(Ordering::SeqCst)
        }
    }

    #[test]
    fn time_lost_in_a_suspended_machine_is_made_up_for() {
        let settable = Arc::new(Settable { wall: START.into(), monotonic: 0.into() });
        let clock = SystemClock::of(Arc::clone(&settable));
        // The monotonic clock stands still for an hour.
        settable.wall.fetch_add(3_600 * SECOND, Ordering::SeqCst);
        for _ in 0..10 {
            settable.wall.fetch_add(SECOND, Ordering::SeqCst);
            settable.monotonic.fetch_add(SECOND, Ordering::SeqCst);
            clock.follow();
        }
        assert_eq!(clock.now().as_nanos(), START + 3_610 * SECOND);
    }

    #[test]
    fn no_thread_sees_time_run_backwards_while_the_wall_clock_is_set() {
        let settable = Arc::new(Settable { wall: START.into(), monotonic: 0.into() });
        let clock = SystemClock::of(Arc::clone(&settable));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = clock.now();
                    while settable.monotonic.load(Ordering::SeqCst) < 2_000 * SECOND {
                        let now = clock.now();
                        assert!(now >= last, "{now:?} after {last:?}");
                        last = now;
                    }
                });
            }
            for step in 0..20_000_u64 {
                settable.monotonic.fetch_add(SECOND / 10, Ordering::SeqCst);
                // Forth and back by up to half a second, in no simple order.
                let offset = (step * 7_919 % 1_000) * 1_000_000;
                settable.wall.store(START + step * SECOND / 10 + offset, Ordering::SeqCst);
                clock.follow();
            }
        });
    }
}
