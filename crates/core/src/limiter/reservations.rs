//! The bound on reservations over all counters.
//!
//! A counter may be dropped with its reservations: by an operator, or once all of them are past their deadlines. Reservations are therefore
//! counted by the minute of their deadline, and forgotten when that minute has passed.

use crate::limit::Timestamp;

/// Bound on the reservations open at once, over all counters: some hundred megabytes. Beyond it, estimates are charged that no end
/// corrects. Reservations from a snapshot do not count.
const OPEN_MAX: u64 = 1_000_000;

/// Minutes until the last possible deadline, and the minute that has begun.
const MINUTES: u64 = 24 * 60 + 2;

const MINUTE_NANOS: u64 = 60_000_000_000;

/// Numbers of open reservations by the minutes of their deadlines.
pub(super) struct OpenReservations {
    /// Indexed by the number of the minute, modulo the length.
    by_minute: Box<[u32]>,
    /// Earlier minutes have passed.
    minute: u64,
    total: u64,
}

impl OpenReservations {
    pub(super) fn new() -> Self {
        Self { by_minute: vec![0; MINUTES as usize].into(), minute: 0, total: 0 }
    }

    fn of_deadline(&mut self, deadline: Timestamp) -> &mut u32 {
        &mut self.by_minute[(deadline.as_nanos() / MINUTE_NANOS % MINUTES) as usize]
    }

    /// Forgets the reservations of minutes that have passed.
    fn advance(&mut self, now: Timestamp) {
        let minute = now.as_nanos() / MINUTE_NANOS;
        let first = self.minute.max(minute.saturating_sub(MINUTES));
        for passed in first..minute {
            let number = std::mem::take(&mut self.by_minute[(passed % MINUTES) as usize]);
            self.total -= u64::from(number);
        }
        self.minute = self.minute.max(minute);
    }

    /// Takes room for one more reservation; false if there is none.
    pub(super) fn start(&mut self, deadline: Timestamp, now: Timestamp) -> bool {
        self.advance(now);
        let has_room = self.total < OPEN_MAX;
        if has_room {
            *self.of_deadline(deadline) += 1;
            self.total += 1;
        }
        has_room
    }

    /// Keeps the room of a reservation until another deadline.
    pub(super) fn renew(&mut self, former: Timestamp, deadline: Timestamp) {
        let of_former = self.of_deadline(former);
        if *of_former > 0 {
            *of_former -= 1;
            *self.of_deadline(deadline) += 1;
        }
    }

    /// Frees the room of a reservation.
    pub(super) fn end(&mut self, deadline: Timestamp) {
        // Reservations from a snapshot were not counted.
        let of_deadline = self.of_deadline(deadline);
        if *of_deadline > 0 {
            *of_deadline -= 1;
            self.total -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reservations_are_counted_until_they_end_or_the_minute_of_their_deadline_has_passed() {
        let at = |secs: u64| Timestamp::from_millis(1_700_000_040_000 + 1_000 * secs);
        let mut open = OpenReservations::new();
        assert!(open.start(at(30), at(0)) && open.start(at(90), at(0)) && open.start(at(86_400), at(0)));
        open.end(at(90));
        assert_eq!(open.total, 2);
        open.end(at(90));
        assert_eq!(open.total, 2, "a reservation that was not counted");
        open.advance(at(59));
        assert_eq!(open.total, 2);
        open.advance(at(60));
        assert_eq!(open.total, 1);
        open.advance(at(86_459));
        assert_eq!(open.total, 1);
        open.advance(at(1_000_000));
        assert_eq!(open.total, 0);
        assert!(open.start(at(1_000_001), at(1_000_000)));
        assert_eq!((open.total, open.by_minute.iter().sum::<u32>()), (1, 1));
        open.renew(at(1_000_001), at(1_000_200));
        open.advance(at(1_000_100));
        assert_eq!(open.total, 1);
        open.renew(at(1_000_001), at(1_000_900));
        open.advance(at(1_000_260));
        assert_eq!(
            (open.total, open.by_minute.iter().sum::<u32>()),
            (0, 0),
            "a reservation that was not counted"
        );
    }

    #[test]
    fn there_are_never_more_than_the_bound() {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut open = OpenReservations::new();
        open.total = OPEN_MAX;
        assert!(!open.start(now, now));
        open.total = OPEN_MAX - 1;
        assert!(open.start(now, now));
    }
}
