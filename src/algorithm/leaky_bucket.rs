//! The leaky bucket as a meter (GCRA): hits fill it, it leaks at a steady rate, and what would not fit is not admitted.
//!
//! With a [`Queue`], hits that do not fit may wait for their turn: they take their place in the meter at once, above
//! the burst, and are admitted at the moment at which the level, theirs included, has sunk to the burst. Whoever comes
//! later stands behind them. Here is only the arithmetic of places; holding the answer until the turn is the caller's.
//!
//! Invariant: the level never exceeds the burst and what the queue may hold, unless hits are counted in any case.

use super::{
    State,
    meter::{self, Rate},
};
use crate::limit::{Reset, Timestamp};
use std::time::Duration;

/// A bucket that leaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LeakyBucket {
    /// Hits that fit at once. With 1, hits are admitted one by one, evenly spaced.
    pub burst: u32,
    /// How fast it leaks.
    pub rate: Rate,
    /// Whether hits that do not fit may wait for their turn.
    pub queue: Option<Queue>,
}

/// How many may wait, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Queue {
    /// The longest wait.
    pub wait_max: Duration,
    /// The most hits that wait at once. What has leaked of hits that wait is not counted any more.
    pub hits_max: u32,
}

/// When hits would be admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// At once.
    Now,
    /// When this place's turn comes.
    Queued(Position),
    /// Not this time: the queue is full, or the wait would be too long.
    Full,
    /// Never: they are more than the bucket can hold.
    Never,
}

/// A place in the queue: the level of the meter, as the moment at which it would run dry, with its hits on top.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    dry: u128,
}

impl LeakyBucket {
    /// When `hits` that come now would be admitted, for one who waits no longer than `patience`. The hits are to be
    /// counted with `add` unless they are turned away.
    pub fn admission(&self, state: &State, hits: u64, patience: Duration, now: Timestamp) -> Admission {
        if hits > u64::from(self.burst) {
            return Admission::Never;
        }
        if hits <= self.remaining(state, now) {
            return Admission::Now;
        }
        let Some(queue) = self.queue else {
            return Admission::Full;
        };
        let dry = self.dry_with(state, hits, now);
        let place = Position { dry };
        let fits = self.rate.level(dry, now) <= self.most(queue);
        let wait_max = queue.wait_max.min(patience);
        if fits && self.release_at(place).since(now) <= wait_max {
            Admission::Queued(place)
        } else {
            Admission::Full
        }
    }

    /// The least wait after which `hits` would be admitted or would have a place, if nothing else came; zero if they
    /// are or have now.
    pub fn until_accepted(&self, state: &State, hits: u64, patience: Duration, now: Timestamp) -> Reset {
        let until_admits = self.until_admits(state, hits, now);
        let (Some(queue), Reset::After(wait)) = (self.queue, until_admits) else {
            return until_admits;
        };
        let until_room = self.rate.moment(self.dry_with(state, hits, now).saturating_sub(self.most(queue)));
        let until_near = wait.saturating_sub(queue.wait_max.min(patience));
        Reset::After(until_room.since(now).max(until_near))
    }

    /// The place of the hits that were counted last.
    pub fn last_position(&self, state: &State) -> Position {
        Position { dry: meter::dry_at(state) }
    }

    /// The moment at which the place is admitted.
    pub fn release_at(&self, place: Position) -> Timestamp {
        self.rate.moment(place.dry.saturating_sub(self.rate.weight(u64::from(self.burst))))
    }

    /// The place after `hits` before it gave theirs up, which is a `give_back` on the state: it moves up.
    pub fn advanced(&self, place: Position, hits: u64) -> Position {
        Position { dry: place.dry.saturating_sub(self.rate.weight(hits)) }
    }

    /// How many of the `hits` of a place are still in the bucket. One that has begun to leak is not.
    pub fn left_at(&self, place: Position, hits: u64, now: Timestamp) -> u64 {
        self.rate.whole_hits(place.dry, now).min(hits)
    }

    /// When the bucket would have run dry with `hits` more.
    fn dry_with(&self, state: &State, hits: u64, now: Timestamp) -> u128 {
        meter::dry_at(state).max(self.rate.parts(now)) + self.rate.weight(hits)
    }

    /// The highest level with a full queue. A meter holds no more than `u32::MAX` hits: beyond, places would be lost.
    fn most(&self, queue: Queue) -> u128 {
        self.rate.weight(u64::from(self.burst.saturating_add(queue.hits_max)))
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        self.rate.used(state, now)
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.burst).saturating_sub(self.used(state, now))
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.rate.add(&state, hits, now)
    }

    /// The bucket with hits taken out.
    pub fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.rate.give_back(&state, hits, now)
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        match u64::from(self.burst).checked_sub(hits) {
            None => Reset::Never,
            Some(target) => Reset::After(self.rate.until_at_most(state, target, now)),
        }
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.rate.until_at_most(state, 0, now)
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        self.rate.dries(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Window;
    use std::num::NonZeroU32;

    /// One hit a second, with room for `burst`.
    fn one_a_second(burst: u32, queue: Option<Queue>) -> LeakyBucket {
        let rate = Rate::new(NonZeroU32::MIN, Window::from_secs(1).unwrap());
        LeakyBucket { burst, rate, queue }
    }

    fn queue(hits_max: u32, wait_max_millis: u64) -> Option<Queue> {
        Some(Queue { wait_max: Duration::from_millis(wait_max_millis), hits_max })
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    /// field.md, worked case: as a meter it is GCRA. What does not fit is rejected, and room comes at a steady rate.
    #[test]
    fn what_does_not_fit_is_rejected_until_as_much_has_leaked() {
        let bucket = one_a_second(3, None);
        let full = bucket.add(State::EMPTY, 3, at(0));
        assert_eq!(bucket.admission(&full, 1, Duration::MAX, at(0)), Admission::Full);
        assert_eq!(bucket.remaining(&full, at(999)), 0);
        assert_eq!(bucket.remaining(&full, at(1_000)), 1);
        assert_eq!(bucket.until_admits(&full, 2, at(500)), Reset::After(Duration::from_millis(1_500)));
        assert_eq!(bucket.admission(&full, 4, Duration::MAX, at(0)), Admission::Never);
    }

    #[test]
    fn a_burst_of_one_spaces_hits_evenly() {
        let bucket = one_a_second(1, None);
        let mut state = State::EMPTY;
        let mut admitted = Vec::new();
        for tenth in 0..50 {
            if bucket.remaining(&state, at(100 * tenth)) >= 1 {
                state = bucket.add(state, 1, at(100 * tenth));
                admitted.push(100 * tenth);
            }
        }
        assert_eq!(admitted, [0, 1_000, 2_000, 3_000, 4_000]);
    }

    /// Comes, and takes its place if there is one.
    fn come(bucket: &LeakyBucket, state: &mut State, hits: u64, now: Timestamp) -> Admission {
        let turn = bucket.admission(state, hits, Duration::MAX, now);
        if matches!(turn, Admission::Now | Admission::Queued(_)) {
            *state = bucket.add(std::mem::take(state), hits, now);
        }
        turn
    }

    fn release_at(bucket: &LeakyBucket, turn: Admission) -> Timestamp {
        let Admission::Queued(place) = turn else { panic!("{turn:?}") };
        bucket.release_at(place)
    }

    /// field.md, worked case: hold the request until its turn instead of denying it, with a bounded queue.
    #[test]
    fn who_does_not_fit_waits_for_a_turn_in_the_order_of_coming() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let mut state = State::EMPTY;
        assert_eq!(come(&bucket, &mut state, 1, at(0)), Admission::Now);
        for place in 1..=3 {
            let turn = come(&bucket, &mut state, 1, at(0));
            assert_eq!(release_at(&bucket, turn), at(1_000 * place));
        }
        assert_eq!(come(&bucket, &mut state, 1, at(0)), Admission::Full);
        // One turn later there is a place again, behind the others.
        let turn = come(&bucket, &mut state, 1, at(1_000));
        assert_eq!(release_at(&bucket, turn), at(4_000));
    }

    #[test]
    fn nobody_waits_longer_than_the_longest_wait() {
        let bucket = one_a_second(1, queue(100, 2_500));
        let mut state = State::EMPTY;
        come(&bucket, &mut state, 1, at(0));
        assert_eq!(release_at(&bucket, come(&bucket, &mut state, 1, at(0))), at(1_000));
        assert_eq!(release_at(&bucket, come(&bucket, &mut state, 1, at(0))), at(2_000));
        assert_eq!(come(&bucket, &mut state, 1, at(0)), Admission::Full);
        assert_eq!(come(&bucket, &mut state, 1, at(499)), Admission::Full);
        assert_eq!(release_at(&bucket, come(&bucket, &mut state, 1, at(500))), at(3_000));
    }

    #[test]
    fn a_place_that_is_given_up_goes_to_the_next() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let mut state = State::EMPTY;
        come(&bucket, &mut state, 1, at(0));
        let first = come(&bucket, &mut state, 1, at(0));
        let Admission::Queued(second) = come(&bucket, &mut state, 1, at(0)) else { panic!("no place") };
        assert_eq!((release_at(&bucket, first), bucket.release_at(second)), (at(1_000), at(2_000)));
        state = bucket.give_back(state, 1, at(300));
        assert_eq!(bucket.release_at(bucket.advanced(second, 1)), at(1_000));
        // Who comes then stands right behind.
        let third = come(&bucket, &mut state, 1, at(300));
        assert_eq!(release_at(&bucket, third), at(2_000));
    }

    #[test]
    fn hits_that_come_together_have_their_turn_when_all_of_them_fit() {
        let bucket = one_a_second(3, queue(10, 60_000));
        let mut state = State::EMPTY;
        assert_eq!(come(&bucket, &mut state, 2, at(0)), Admission::Now);
        assert_eq!(release_at(&bucket, come(&bucket, &mut state, 3, at(0))), at(2_000));
        // One hit would fit after a second; it does not overtake.
        assert_eq!(release_at(&bucket, come(&bucket, &mut state, 1, at(1_000))), at(3_000));
        assert_eq!(come(&bucket, &mut state, 4, at(1_000)), Admission::Never);
    }

    #[test]
    fn who_waits_no_longer_than_some_time_has_no_place_beyond_it() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let full = bucket.add(State::EMPTY, 2, at(0));
        let turn = |patience| bucket.admission(&full, 1, Duration::from_millis(patience), at(0));
        assert_eq!(turn(1_999), Admission::Full);
        assert_eq!(release_at(&bucket, turn(2_000)), at(2_000));
    }

    #[test]
    fn who_comes_again_after_the_told_wait_has_a_place_and_a_nanosecond_earlier_has_none() {
        // Full by number, by the longest wait, and by the patience of who comes; and without a queue.
        for (queue, patience_millis) in [
            (queue(2, 60_000), 60_000),
            (queue(100, 2_500), 60_000),
            (queue(100, 60_000), 700),
            (None, 60_000),
        ] {
            let bucket = one_a_second(3, queue);
            let patience = Duration::from_millis(patience_millis);
            for (used, hits) in [(5, 1), (5, 2), (7, 3), (40, 1)] {
                let state = bucket.add(State::EMPTY, used, at(0));
                let Reset::After(wait) = bucket.until_accepted(&state, hits, patience, at(0)) else {
                    panic!()
                };
                let then = Timestamp::from_nanos(at(0).as_nanos() + wait.as_nanos() as u64);
                let is_turned_away = |now| bucket.admission(&state, hits, patience, now) == Admission::Full;
                assert!(!is_turned_away(then), "{bucket:?} {used} {hits}");
                let is_exact = wait.is_zero() || is_turned_away(Timestamp::from_nanos(then.as_nanos() - 1));
                assert!(is_exact, "{bucket:?} {used} {hits}");
            }
            assert_eq!(bucket.until_accepted(&State::EMPTY, 4, patience, at(0)), Reset::Never);
        }
    }

    #[test]
    fn a_queue_behind_the_largest_burst_hands_out_no_place_twice() {
        let bucket = one_a_second(u32::MAX, queue(10, u64::MAX));
        let full = bucket.add(State::EMPTY, u64::from(u32::MAX), at(0));
        assert_eq!(bucket.admission(&full, 1, Duration::MAX, at(0)), Admission::Full);
    }

    #[test]
    fn hits_that_began_to_leak_are_not_left() {
        let bucket = one_a_second(3, None);
        let state = bucket.add(bucket.add(State::EMPTY, 1, at(0)), 2, at(0));
        let left = |now| bucket.left_at(bucket.last_position(&state), 2, at(now));
        assert_eq!([0, 1_000, 1_001, 2_000, 2_001, 3_000].map(left), [2, 2, 1, 1, 0, 0]);
    }
}
