//! Counters that a clock reads at an earlier time than it wrote them, because it was set back in between.
//!
//! Hits count as taken at the earlier time: no hits are lost, and no client waits longer than its limit's window. Whatever ends by itself
//! (slots, reservations, bans in force, leases, quota) lasts as long as it had left, under its own id.

use super::{Algorithm, State, facts::Facts};
use crate::limit::Timestamp;

impl Algorithm {
    /// The state at `at`, as if the clock had shown the earlier time `now` instead.
    pub fn set_back(&self, state: State, at: Timestamp, now: Timestamp) -> State {
        match state {
            State::Leased(leased) => leased.set_back(self, at, now).into_state(self, now),
            State::Reserved(reserved) => reserved.set_back(self, at, now),
            state => {
                let moved = each!(self, algorithm => Facts::with_ends_at(algorithm, &state, at, now));
                moved.unwrap_or_else(|| match self.used(&state, at) {
                    0 => State::EMPTY,
                    used => self.add(State::EMPTY, used, now),
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{
            Ban, Concurrency, Ended, FixedWindow, Lease, Leased, Released, Reservation, Schedule, SlidingLog,
            SlidingWindow, SubWindows, TokenBucket,
        },
        limit::Window,
    };
    use std::num::NonZeroU32;

    fn secs(secs: u64) -> Window {
        Window::from_secs(secs).unwrap()
    }

    /// Two days later than [`now`].
    fn at(second: u64) -> Timestamp {
        Timestamp::from_millis((1_700_172_800 + second) * 1_000)
    }

    fn now(second: u64) -> Timestamp {
        Timestamp::from_millis((1_700_000_000 + second) * 1_000)
    }

    #[test]
    fn slots_keep_their_ids_and_the_time_that_they_had_left() {
        let concurrency = Concurrency { limit: 9, max_hold: secs(60), queue: None };
        let (state, _) = concurrency.take(State::EMPTY, 3, 1, at(0));
        let (state, _) = concurrency.take(state, 7, 2, at(50));
        let (state, _) = concurrency.take(state, 8, 4, at(70));
        let algorithm = Algorithm::Concurrency(concurrency);
        let mut state = algorithm.set_back(state, at(80), now(0));
        assert_eq!(algorithm.used(&state, now(0)), 6, "the first has passed its deadline");
        assert_eq!(state.release_slot(8, None, now(1)), (Released::Hits(4), 0));
        assert_eq!((algorithm.used(&state, now(29)), algorithm.used(&state, now(30))), (2, 0));
        assert_eq!(algorithm.expires(&state), now(30));
        assert_eq!(
            concurrency.expected_hold(&state).as_secs(),
            11,
            "from its start, and not from the restart"
        );
    }

    #[test]
    fn a_ban_in_force_lasts_as_long_as_it_had_left() {
        let ban = Algorithm::Ban(Ban { after: 2, within: secs(10), lasts: secs(600), epoch: 0 });
        let banned = ban.add(State::EMPTY, 2, at(0));
        let state = ban.set_back(banned.clone(), at(540), now(0));
        assert_eq!((ban.remaining(&state, now(59)), ban.remaining(&state, now(60))), (0, u64::MAX));
        assert_eq!(ban.set_back(banned, at(600), now(0)), State::EMPTY);
        let denied = ban.set_back(ban.add(State::EMPTY, 1, at(0)), at(5), now(0));
        assert_eq!((ban.used(&denied, now(9)), ban.used(&denied, now(10))), (1, 0));
    }

    /// Of each way of counting reservations, ten hits within ten seconds.
    fn reserving() -> [Algorithm; 7] {
        let ten = NonZeroU32::new(10).unwrap();
        [
            Algorithm::SlidingWindow(SlidingWindow { limit: 10, window: secs(10) }),
            Algorithm::SubWindows(SubWindows::new(10, secs(10), 5)),
            Algorithm::SlidingLog(SlidingLog { limit: 10, window: secs(10) }),
            Algorithm::FixedWindow(FixedWindow::on_the_clock(10, secs(10))),
            Algorithm::FixedWindow(FixedWindow { limit: 10, schedule: Schedule::FirstHit(secs(10)) }),
            Algorithm::TokenBucket(TokenBucket::greedy(10, ten, secs(10))),
            Algorithm::TokenBucket(TokenBucket::by_intervals(10, ten, secs(10))),
        ]
    }

    fn reserved(algorithm: &Algorithm, returns: bool, start: Timestamp) -> State {
        let deadline = start.saturating_add_nanos(60_000_000_000);
        let reservation = Reservation { id: 5, hits: 4, deadline, returns };
        algorithm.reserve(algorithm.add(State::EMPTY, 1, start), reservation, start).0
    }

    #[test]
    fn the_end_of_a_reservation_corrects_its_estimate() {
        for algorithm in reserving() {
            let state = algorithm.set_back(reserved(&algorithm, true, at(0)), at(0), now(0));
            assert_eq!(algorithm.used(&state, now(0)), 5, "{algorithm:?}");
            let (state, ended, _) = algorithm.end_reservation(state, 5, |_| 2, u64::MAX, now(0));
            assert!(matches!(ended, Ended::Reserved(Reservation { hits: 4, .. })), "{algorithm:?}");
            assert_eq!(algorithm.used(&state, now(0)), 3, "{algorithm:?}");
        }
    }

    #[test]
    fn a_reservation_is_open_for_as_long_as_it_was_to_be_and_its_late_end_is_known() {
        for algorithm in reserving() {
            // The hits have left their window or bucket, and the reservation is open for another ten seconds.
            let state = algorithm.set_back(reserved(&algorithm, false, at(0)), at(50), now(0));
            assert_eq!(algorithm.used(&state, now(0)), 0, "{algorithm:?}");
            assert_eq!(algorithm.expires(&state), now(10), "{algorithm:?}");
            let state = algorithm.add(state, 3, now(5));
            let end = |now| algorithm.end_reservation(state.clone(), 5, |_| 9, u64::MAX, now);
            let (ended, unknown) = (end(now(9)), end(now(10)));
            assert!(matches!(ended.1, Ended::Reserved(Reservation { id: 5, .. })), "{algorithm:?}");
            assert_eq!(unknown.1, Ended::Unknown, "{algorithm:?}");
            assert_eq!(
                algorithm.used(&ended.0, now(9)),
                algorithm.used(&unknown.0, now(9)),
                "{algorithm:?}: of past hits nothing counts"
            );
        }
    }

    #[test]
    fn a_lease_stays_outstanding_for_as_long_as_it_had_left() {
        let log = Algorithm::SlidingLog(SlidingLog { limit: 100, window: secs(10) });
        let end = at(8);
        let lease = Lease { node: 1, holder: 2, sequence: 3, settled: 4, outstanding: 40, end, demand: 9 };
        let leased =
            Leased { state: log.add(State::EMPTY, 7, at(0)), leases: vec![lease], ..Leased::default() };
        let state = log.set_back(State::Leased(Box::new(leased)), at(3), now(0));
        let State::Leased(leased) = &state else { panic!("the lease is there") };
        assert_eq!(leased.leases, [Lease { end: now(5), ..lease }]);
        assert_eq!(
            (log.used(&state, now(4)), log.used(&state, now(12)), log.used(&state, now(15))),
            (47, 40, 0)
        );
    }
}
