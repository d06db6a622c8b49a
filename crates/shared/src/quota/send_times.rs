//! Times at which a client was sent assignments, in few bytes: each of 10,000 clients may have a hundred of these.
//!
//! Times are relative to the last assignment, in whole milliseconds. Each is rounded so that more may be in force: the last change, and the
//! end of what was sent before it, are no earlier than they were.

use std::time::Duration;
use tidegate_core::limit::Timestamp;

/// The longest time for which an assignment may be in force.
pub(super) const LIFE_MAX: Duration = Duration::from_millis(u16::MAX as u64);

/// Times of assignments.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
pub(super) struct SendTimes {
    last: Timestamp,
    /// Time from the last change to the last assignment. A change differs from the assignment before it.
    unchanged: u16,
    /// Time from the last assignment to the end of all that was sent before the last change.
    former: u16,
}

impl SendTimes {
    /// No assignment before this time.
    pub(super) fn new(now: Timestamp) -> Self {
        Self { last: now, unchanged: 0, former: 0 }
    }

    /// Time of the last assignment.
    pub(super) fn last(&self) -> Timestamp {
        self.last
    }

    /// Time of the last change, or later.
    pub(super) fn changed(&self) -> Timestamp {
        let unchanged = u64::from(self.unchanged) * 1_000_000;
        Timestamp::from_nanos(self.last().as_nanos().saturating_sub(unchanged))
    }

    /// Time from which no assignment before the last change is in force, or later.
    pub(super) fn outlasted(&self) -> Timestamp {
        self.last().saturating_add(Duration::from_millis(self.former.into()))
    }

    /// Notes that the last assignment is sent again.
    pub(super) fn renew(&mut self, now: Timestamp) {
        let unchanged = now.since(self.changed()).as_millis();
        self.replace(u16::try_from(unchanged).unwrap_or(u16::MAX), self.outlasted(), now);
    }

    /// Notes that a changed assignment is sent. Those before it end at `former_end`.
    pub(super) fn change(&mut self, former_end: Timestamp, now: Timestamp) {
        self.replace(0, self.outlasted().max(former_end), now);
    }

    fn replace(&mut self, unchanged: u16, former_end: Timestamp, now: Timestamp) {
        let former = former_end.since(now).as_nanos().div_ceil(1_000_000);
        let former = u16::try_from(former).unwrap_or(u16::MAX);
        *self = Self { last: now, unchanged, former };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIFE: Duration = Duration::from_secs(16);

    proptest! {
        #[test]
        fn times_are_never_earlier_than_they_were_and_hardly_later(
            steps in prop::collection::vec((0..20_000_000_000_u64, any::<bool>()), 1..20)
        ) {
            let mut now = Timestamp::from_nanos(1_000_000_000_000);
            let mut times = SendTimes::new(now);
            let (mut changed, mut outlasted, mut last) = (now, now, now);
            let slack = Duration::from_millis(steps.len() as u64);
            for (pause, is_change) in steps {
                now = now.saturating_add(Duration::from_nanos(pause));
                if is_change {
                    (changed, outlasted) = (now, outlasted.max(last.saturating_add(LIFE)));
                    times.change(last.saturating_add(LIFE), now);
                } else {
                    times.renew(now);
                }
                last = now;
                prop_assert_eq!(times.last(), now);
                prop_assert!(times.changed() >= changed);
                prop_assert!(times.changed() <= changed.saturating_add(slack) || now.since(changed) > LIFE_MAX);
                prop_assert!(times.outlasted() >= outlasted.max(now));
                prop_assert!(times.outlasted() <= outlasted.saturating_add(slack).max(now));
            }
        }
    }
}
