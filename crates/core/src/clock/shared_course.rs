//! A course that many threads read and one thread replaces: a sequence lock over atomics, so that reading writes nothing shared.

use super::course::Course;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The course in force.
#[derive(Debug)]
pub(super) struct SharedCourse {
    /// Even while the fields belong together, odd while they are replaced.
    version: AtomicU64,
    since: AtomicU64,
    time: AtomicU64,
    is_slowed: AtomicU64,
}

impl SharedCourse {
    pub(super) fn new(course: Course) -> Self {
        Self {
            version: AtomicU64::new(0),
            since: AtomicU64::new(course.since),
            time: AtomicU64::new(course.time),
            is_slowed: AtomicU64::new(course.is_slowed.into()),
        }
    }

    /// The course, and a reading taken while it was in force.
    #[inline]
    pub(super) fn load_with(&self, read: impl Fn() -> u64) -> (Course, u64) {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let course = Course {
                since: self.since.load(Ordering::Relaxed),
                time: self.time.load(Ordering::Relaxed),
                is_slowed: self.is_slowed.load(Ordering::Relaxed) != 0,
            };
            let reading = read();
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && before == self.version.load(Ordering::Relaxed) {
                return (course, reading);
            }
            std::hint::spin_loop();
        }
    }

    /// Replaces the course. Only one thread at a time may.
    pub(super) fn store(&self, course: Course) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.since.store(course.since, Ordering::Relaxed);
        self.time.store(course.time, Ordering::Relaxed);
        self.is_slowed.store(course.is_slowed.into(), Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }
}
