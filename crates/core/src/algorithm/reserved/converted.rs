//! The reservations of a counter under another algorithm, or under a clock that was set back.

use super::{Algorithm, Reservation, Reserved, State, dated::Drain};
use crate::{algorithm::state::Open, limit::Timestamp};

impl Reserved {
    /// The counter under another algorithm: hits that are used count as taken now, and so do the estimates of reservations whose hits
    /// still count, `most` hits in all. The reservations stay open, each with one hit at least.
    #[cold]
    pub(in crate::algorithm) fn take_over(
        mut self,
        algorithm: &Algorithm,
        former: &Algorithm,
        most: u64,
        now: Timestamp,
    ) -> State {
        self.expire(former, now);
        let settled = algorithm.take_over(former, self.settled_in_window(former, now), most, now);
        let mut taken = Box::new(Self::of(settled));
        if algorithm.can_reserve() {
            let mut room = most.saturating_sub(algorithm.used(&taken.settled, now));
            for open in self.open.iter().filter(|open| self.still_counts(open, former, now)) {
                let hits = room.clamp(1, open.reservation.hits.into());
                room = room.saturating_sub(hits);
                taken.start(algorithm, Reservation { hits: hits as u32, ..open.reservation }, now);
            }
        }
        taken.into_state()
    }

    /// The counter of a clock that was set back: see [`Algorithm::set_back`]. Reservations whose hits no longer count stay open at a place
    /// in the past, since their ends differ from the ends of reservations that never were.
    #[cold]
    pub(in crate::algorithm) fn set_back(
        mut self,
        algorithm: &Algorithm,
        at: Timestamp,
        now: Timestamp,
    ) -> State {
        self.expire(algorithm, at);
        let settled = algorithm.set_back(self.settled_in_window(algorithm, at), at, now);
        let mut moved = Box::new(Self::of(settled));
        for open in &self.open {
            let deadline = now.saturating_add(open.reservation.deadline.since(at));
            let reservation = Reservation { deadline, ..open.reservation };
            if self.still_counts(open, algorithm, at) {
                moved.start(algorithm, reservation, now);
                continue;
            }
            let back = |drain: Drain| drain.clock(at).saturating_sub(drain.clock(now));
            let place = algorithm.drain().map_or(0, |drain| open.place.saturating_sub(back(drain)));
            moved.open.push(Open { reservation, place });
        }
        moved.into_state()
    }

    /// The settled hits, but for those of a past window from the first hit.
    fn settled_in_window(&self, algorithm: &Algorithm, now: Timestamp) -> State {
        match self.is_window_past(algorithm, now) {
            true => State::EMPTY,
            false => algorithm.of_window(self.settled.clone(), &self.seen),
        }
    }

    /// Whether the hits of an open reservation count now.
    fn still_counts(&self, open: &Open, algorithm: &Algorithm, now: Timestamp) -> bool {
        let Open { reservation: Reservation { hits, .. }, place } = *open;
        let hits = hits.into();
        let alone = match algorithm.drain() {
            None => algorithm.insert(State::EMPTY, hits, place, now),
            Some(drain) => drain.latest(State::EMPTY, place.saturating_add(drain.weight(hits)), now),
        };
        !self.is_window_past(algorithm, now)
            && algorithm.is_in_window(place, &self.seen)
            && algorithm.used(&alone, now) > 0
    }

    /// Whether windows begin with their first hit, and the last is past. None of its hits counts then, though they might open another
    /// window if its first cost nothing.
    fn is_window_past(&self, algorithm: &Algorithm, now: Timestamp) -> bool {
        algorithm.is_from_first_hit() && algorithm.used(&self.seen, now) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            Ended,
            tests::{algorithms, at, reservation},
        },
        *,
    };

    /// In the order of their starts, estimates take the room that used hits leave. Each keeps a hit, so that its ticket stays valid.
    #[test]
    fn a_bound_on_used_hits_under_another_algorithm_holds_for_open_reservations() {
        for former in algorithms() {
            for algorithm in algorithms() {
                for (most, used) in [(u64::MAX, [3, 7, 11]), (8, [3, 7, 8]), (6, [3, 6, 7]), (2, [2, 3, 4])] {
                    let mut state = former.add(State::EMPTY, 3, at(0));
                    for id in 1..=2 {
                        (state, _) = former.reserve(state, reservation(id, 4, at(60)), at(0));
                    }
                    let mut state = algorithm.take_over(&former, state, most, at(0));
                    for (id, used) in [(2, used[2]), (1, used[1])] {
                        assert_eq!(algorithm.used(&state, at(0)), used, "{former:?} {algorithm:?} {most}");
                        let ended;
                        (state, ended, _) = algorithm.end_reservation(state, id, |_| 0, most, at(0));
                        assert!(matches!(ended, Ended::Reserved(_)), "{former:?} {algorithm:?} {most}");
                    }
                    assert_eq!(algorithm.used(&state, at(0)), used[0], "{former:?} {algorithm:?} {most}");
                }
            }
        }
    }
}
