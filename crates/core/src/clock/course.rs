//! The course by which the process's time follows a wall clock that is corrected. Pure: readings in, a course out.
//!
//! Invariants: time never runs backwards; while the wall clock is not corrected, it passes as fast as the monotonic clock.
//!
//! - The wall clock is ahead (set forward, or the machine was suspended): time steps forward to it. A step of more than
//!   [`SMALL_NANOS`] is taken only once [`READINGS_BEFORE_STEP`] readings in a row agree on it, since it cannot be taken
//!   back: a clock that is set wrongly and corrected at once moves nothing.
//! - The wall clock is behind (set back): time passes slower by one part in [`SLOWER_BY`] until the wall clock has caught up.

/// Differences below this are the noise of reading two clocks one after the other.
const NOISE_NANOS: u64 = 1_000_000;
/// Steps up to this are taken at once.
const SMALL_NANOS: u64 = 1_000_000_000;
/// Readings that have to agree on a larger step.
const READINGS_BEFORE_STEP: u32 = 10;
/// Slowed time passes slower than the monotonic clock by one part in this many: an hour is caught up in five days, and a
/// client that waits 10 s for a reset may have to wait 80 ms more.
pub(super) const SLOWER_BY: u64 = 128;
/// Time from a decision to slow down until it applies, so that every thread reads the new course by then.
const NOTICE_NANOS: u64 = 1_000_000_000;

/// Time as a function of the monotonic clock, both in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Course {
    /// The monotonic clock's reading at which this course begins. It may lie ahead; until then time passes at full speed.
    pub(super) since: u64,
    /// The time at that reading, since the Unix epoch.
    pub(super) time: u64,
    /// Whether time passes slower from then on.
    pub(super) is_slowed: bool,
}

/// A correction of the wall clock that is being followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Correction {
    /// Time was set forward by so many nanoseconds.
    Stepped(u64),
    /// Time is so many nanoseconds ahead of the wall clock, and passes slower until it no longer is.
    Slowed(u64),
    /// The wall clock has caught up.
    CaughtUp,
}

impl Course {
    /// Time at a reading of the monotonic clock.
    #[inline]
    pub(super) fn at(self, monotonic: u64) -> u64 {
        match monotonic.checked_sub(self.since) {
            Some(elapsed) if self.is_slowed => self.time.saturating_add(elapsed - elapsed / SLOWER_BY),
            Some(elapsed) => self.time.saturating_add(elapsed),
            None => self.time - (self.since - monotonic).min(self.time),
        }
    }
}

/// Decides on corrections from readings of both clocks, taken at regular intervals.
#[derive(Debug)]
pub(super) struct Steering {
    course: Course,
    /// Readings in a row that were ahead by more than a small step.
    ahead_readings: u32,
}

impl Steering {
    pub(super) fn new(course: Course) -> Self {
        Self { course, ahead_readings: 0 }
    }

    /// The course from now on and what has changed, if the reading changes anything.
    pub(super) fn steer(&mut self, monotonic: u64, wall: u64) -> Option<(Course, Correction)> {
        let time = self.course.at(monotonic);
        let (ahead, behind) = (wall.saturating_sub(time), time.saturating_sub(wall));
        self.ahead_readings = if ahead > SMALL_NANOS { self.ahead_readings + 1 } else { 0 };
        let is_slowed = self.course.is_slowed;
        let changed = if ahead > SMALL_NANOS && self.ahead_readings < READINGS_BEFORE_STEP {
            return None;
        } else if ahead > NOISE_NANOS {
            (Course { since: monotonic, time: wall, is_slowed: false }, Correction::Stepped(ahead))
        } else if behind > NOISE_NANOS && !is_slowed {
            let since = monotonic.saturating_add(NOTICE_NANOS);
            (Course { since, time: self.course.at(since), is_slowed: true }, Correction::Slowed(behind))
        } else if behind == 0 && is_slowed {
            (Course { since: monotonic, time, is_slowed: false }, Correction::CaughtUp)
        } else {
            return None;
        };
        self.ahead_readings = 0;
        self.course = changed.0;
        Some(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const SECOND: u64 = 1_000_000_000;
    const START: u64 = 1_700_000_000 * SECOND;

    fn steering() -> Steering {
        Steering::new(Course { since: 0, time: START, is_slowed: false })
    }

    /// One reading a second for `seconds`, with a wall clock that is off by `offset`; the last change and its second.
    fn run(steering: &mut Steering, seconds: std::ops::Range<u64>, offset: i64) -> Option<(u64, Correction)> {
        let mut last = None;
        for second in seconds {
            let wall = (START + second * SECOND).saturating_add_signed(offset);
            last = steering.steer(second * SECOND, wall).map(|(_, change)| (second, change)).or(last);
        }
        last
    }

    #[test]
    fn a_clock_that_is_not_corrected_changes_nothing() {
        let mut steering = steering();
        assert_eq!(run(&mut steering, 0..1_000, 0), None);
        assert_eq!(run(&mut steering, 1_000..2_000, NOISE_NANOS as i64), None);
        assert_eq!(run(&mut steering, 2_000..3_000, -(NOISE_NANOS as i64)), None);
    }

    #[test]
    fn small_steps_forward_are_taken_at_once_and_large_ones_when_ten_readings_agree() {
        let mut steering = steering();
        let small = SECOND / 2;
        assert_eq!(run(&mut steering, 1..2, small as i64), Some((1, Correction::Stepped(small))));
        assert_eq!(steering.course.at(5 * SECOND), START + 5 * SECOND + small);
        let hour = 3_600 * SECOND;
        let (second, change) = run(&mut steering, 2..60, hour as i64).expect("the step is taken");
        assert_eq!((second, change), (11, Correction::Stepped(hour - small)));
        assert_eq!(steering.course.at(60 * SECOND), START + 60 * SECOND + hour);
    }

    #[test]
    fn a_wrong_setting_that_is_corrected_within_nine_readings_moves_nothing() {
        let mut steering = steering();
        let year = 365 * 86_400 * SECOND as i64;
        assert_eq!(run(&mut steering, 1..10, year), None);
        assert_eq!(run(&mut steering, 10..100, 0), None);
    }

    #[test]
    fn a_clock_that_was_set_back_is_caught_up_with_in_the_stated_time() {
        let mut steering = steering();
        let behind = 60 * SECOND;
        let change = run(&mut steering, 1..2, -(behind as i64));
        assert_eq!(change, Some((1, Correction::Slowed(behind))));
        let (second, change) = run(&mut steering, 2..20_000, -(behind as i64)).expect("it is caught up with");
        assert_eq!(change, Correction::CaughtUp);
        // 60 s at one part in 128, after a second of notice.
        assert_eq!(second, 60 * SLOWER_BY + 2);
        let left = steering.course.at(20_000 * SECOND).abs_diff(START + 20_000 * SECOND - behind);
        assert!(left < SECOND / SLOWER_BY, "{left}");
    }

    proptest! {
        #[test]
        fn time_never_runs_backwards_whatever_the_wall_clock_reads(
            readings in vec((0..5 * SECOND, -4 * SECOND as i64..4 * SECOND as i64, 0..20u8), 1..300),
        ) {
            let mut steering = steering();
            let (mut monotonic, mut offset, mut last) = (0, 0_i64, 0);
            for (elapsed, jump, is_jump) in readings {
                monotonic += elapsed;
                if is_jump == 0 {
                    offset += 1_000 * jump;
                } else if is_jump < 4 {
                    offset += jump;
                }
                let before = steering.course.at(monotonic);
                prop_assert!(before >= last);
                let wall = (START + monotonic).saturating_add_signed(offset);
                steering.steer(monotonic, wall);
                last = steering.course.at(monotonic);
                prop_assert!(last >= before);
            }
        }

        #[test]
        fn a_correction_that_lasts_is_followed(offset in -3 * SECOND as i64..10_000 * SECOND as i64) {
            let mut steering = steering();
            run(&mut steering, 1..1_000, offset);
            let wall = (START + 1_000 * SECOND).saturating_add_signed(offset);
            prop_assert!(steering.course.at(1_000 * SECOND).abs_diff(wall) <= SECOND / SLOWER_BY + NOISE_NANOS);
        }
    }
}
