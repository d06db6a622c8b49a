//! The leaky bucket as a meter (GCRA): hits fill it, it leaks at a steady rate, and hits that do not fit are not admitted.
//!
//! With a [`Queue`], hits that do not fit may be queued: they are added to the meter at once, above the burst, and released when the level,
//! theirs included, has sunk to the burst. Later hits are behind them. This is only the arithmetic of positions; `limiter::queue` keeps the
//! requests.
//!
//! Invariant: the level never exceeds the burst plus the queue, except by `charge: always`.

use super::{
    Freeing, NotShareable, State, StoredBytes, StoredNumbers,
    facts::Facts,
    meter::{self, Rate, hits_per_window},
    stored::{PlaceScale, Stored},
    taken::{Taken, until_room},
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A bucket that leaks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LeakyBucket {
    /// Hits that fit at once. With 1, hits are admitted one by one, evenly spaced.
    pub burst: u32,
    /// Rate of leaking.
    pub rate: Rate,
    /// The queue for hits that do not fit, if there is one.
    pub queue: Option<Queue>,
}

/// Bounds of a queue of one counter: of a leaky bucket, or of requests that wait for a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Queue {
    /// The longest wait.
    pub wait_max: Duration,
    /// The most hits in the queue at once. The part of them that has leaked does not count.
    pub hits_max: u32,
}

/// Whether hits are admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// At once.
    Now,
    /// Once this position is released.
    Queued(Position),
    /// Not now: the queue is full, or the wait would be too long.
    Full,
    /// Never: they are more than the bucket can hold.
    Never,
}

/// A position in the queue: the time at which a meter with these hits on top would run dry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Position {
    dry: u128,
}

impl LeakyBucket {
    /// Whether `hits` that arrive now are admitted or queued, for a caller that waits up to `wait_max`. If so, they must be
    /// counted with `add`.
    pub fn admission(&self, state: &State, hits: u64, wait_max: Duration, now: Timestamp) -> Admission {
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
        let wait_max = queue.wait_max.min(wait_max);
        if fits && self.release_at(place).since(now) <= wait_max {
            Admission::Queued(place)
        } else {
            Admission::Full
        }
    }

    /// The least wait until `hits` would be admitted or queued, if no others arrived; zero if they would be now.
    pub fn until_accepted(&self, state: &State, hits: u64, wait_max: Duration, now: Timestamp) -> Reset {
        let until_admits = self.until_admits(state, hits, now);
        let (Some(queue), Reset::After(wait)) = (self.queue, until_admits) else {
            return until_admits;
        };
        let until_room = self.rate.moment(self.dry_with(state, hits, now).saturating_sub(self.most(queue)));
        let until_near = wait.saturating_sub(queue.wait_max.min(wait_max));
        Reset::After(until_room.since(now).max(until_near))
    }

    /// The position of the hits that were counted last.
    pub fn last_position(&self, state: &State) -> Position {
        Position { dry: meter::dry_at(state) }
    }

    /// The time at which the position is released.
    pub fn release_at(&self, place: Position) -> Timestamp {
        self.rate.moment(place.dry.saturating_sub(self.rate.weight(u64::from(self.burst))))
    }

    /// The position after `hits` before it were given back, which is a `give_back` on the state.
    pub fn advanced(&self, place: Position, hits: u64) -> Position {
        Position { dry: place.dry.saturating_sub(self.rate.weight(hits)) }
    }

    /// The number of the `hits` of a position that are still in the bucket. A hit that has begun to leak is not.
    pub fn left_at(&self, place: Position, hits: u64, now: Timestamp) -> u64 {
        self.rate.whole_hits(place.dry, now).min(hits)
    }

    /// Time at which the bucket would be empty with `hits` more.
    fn dry_with(&self, state: &State, hits: u64, now: Timestamp) -> u128 {
        meter::dry_at(state).max(self.rate.parts(now)) + self.rate.weight(hits)
    }

    /// The highest level with a full queue. A meter holds no more than `u32::MAX` hits: beyond, positions would be lost.
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

    /// See [`Algorithm::take`](super::Algorithm::take).
    #[inline(always)]
    pub(super) fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        self.rate.take(self.burst, words, hits, now)
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let added = self.rate.add(&state, hits, now);
        state.discard();
        added
    }

    /// The bucket with hits taken out.
    pub fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.rate.give_back(&state, hits, now)
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        until_room(self.burst, hits, |target| self.rate.until_at_most(state, target, now))
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.rate.until_at_most(state, 0, now)
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        self.rate.dries(state)
    }
}

impl Stored for LeakyBucket {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.push(b'L');
        self.rate.write_signature(out);
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        (letter == b'L').then_some(())?;
        Some(Self { burst: u32::MAX, rate: Rate::of_signature(parameters)?, queue: None })
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        self.rate.read_level(numbers)
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        self.rate.write_level(state, out)
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(self.rate.scale())
    }
}

impl Facts for LeakyBucket {
    const NAME: &'static str = "leaky_bucket";
    const KEEPS_WORDS: bool = true;

    #[inline]
    fn capacity(&self) -> Option<u32> {
        Some(self.burst)
    }

    fn freeing(&self) -> Freeing {
        Freeing::Evenly(self.rate)
    }

    fn reads_as(&self, other: &Self) -> bool {
        self.rate == other.rate
    }

    fn with_requests(&self, requests: u32, former: u32, window: Window) -> Self {
        let burst = if self.burst == former { requests } else { self.burst };
        Self { burst, rate: Rate::new(hits_per_window(requests), window), queue: self.queue }
    }

    fn replaced(&self, limit: u32, window: Window, size: u32) -> Option<Self> {
        Some(Self { burst: size, rate: Rate::new(hits_per_window(limit), window), queue: self.queue })
    }

    fn in_microseconds(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        if self.queue.is_some() {
            return Err(NotShareable::Queue);
        }
        meter::drains(self.rate, most(self.burst)).map(|()| *self)
    }

    fn numbers(&self, length: fn(Duration) -> String) -> String {
        format!("{}, drained by {}", self.burst, self.rate.text(length))
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

    /// field.md, worked case: as a meter it is GCRA. Hits that do not fit are rejected, and room is freed at a steady rate.
    #[test]
    fn hits_that_do_not_fit_are_rejected_until_as_many_have_leaked() {
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

    /// Hits arrive, and are counted if they are admitted or queued.
    fn arrive(bucket: &LeakyBucket, state: &mut State, hits: u64, now: Timestamp) -> Admission {
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

    /// field.md, worked case: queue requests instead of denying them, with a bounded queue.
    #[test]
    fn hits_that_do_not_fit_are_released_in_the_order_of_arrival() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let mut state = State::EMPTY;
        assert_eq!(arrive(&bucket, &mut state, 1, at(0)), Admission::Now);
        for place in 1..=3 {
            let turn = arrive(&bucket, &mut state, 1, at(0));
            assert_eq!(release_at(&bucket, turn), at(1_000 * place));
        }
        assert_eq!(arrive(&bucket, &mut state, 1, at(0)), Admission::Full);
        // After one release there is room again, behind the others.
        let turn = arrive(&bucket, &mut state, 1, at(1_000));
        assert_eq!(release_at(&bucket, turn), at(4_000));
    }

    #[test]
    fn no_hits_are_queued_longer_than_the_longest_wait() {
        let bucket = one_a_second(1, queue(100, 2_500));
        let mut state = State::EMPTY;
        arrive(&bucket, &mut state, 1, at(0));
        assert_eq!(release_at(&bucket, arrive(&bucket, &mut state, 1, at(0))), at(1_000));
        assert_eq!(release_at(&bucket, arrive(&bucket, &mut state, 1, at(0))), at(2_000));
        assert_eq!(arrive(&bucket, &mut state, 1, at(0)), Admission::Full);
        assert_eq!(arrive(&bucket, &mut state, 1, at(499)), Admission::Full);
        assert_eq!(release_at(&bucket, arrive(&bucket, &mut state, 1, at(500))), at(3_000));
    }

    #[test]
    fn a_position_that_is_given_back_is_taken_by_the_next() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let mut state = State::EMPTY;
        arrive(&bucket, &mut state, 1, at(0));
        let first = arrive(&bucket, &mut state, 1, at(0));
        let Admission::Queued(second) = arrive(&bucket, &mut state, 1, at(0)) else { panic!("no place") };
        assert_eq!((release_at(&bucket, first), bucket.release_at(second)), (at(1_000), at(2_000)));
        state = bucket.give_back(state, 1, at(300));
        assert_eq!(bucket.release_at(bucket.advanced(second, 1)), at(1_000));
        // Hits that arrive then are right behind.
        let third = arrive(&bucket, &mut state, 1, at(300));
        assert_eq!(release_at(&bucket, third), at(2_000));
    }

    #[test]
    fn hits_of_one_request_are_released_when_all_of_them_fit() {
        let bucket = one_a_second(3, queue(10, 60_000));
        let mut state = State::EMPTY;
        assert_eq!(arrive(&bucket, &mut state, 2, at(0)), Admission::Now);
        assert_eq!(release_at(&bucket, arrive(&bucket, &mut state, 3, at(0))), at(2_000));
        // One hit would fit after a second; it does not overtake.
        assert_eq!(release_at(&bucket, arrive(&bucket, &mut state, 1, at(1_000))), at(3_000));
        assert_eq!(arrive(&bucket, &mut state, 4, at(1_000)), Admission::Never);
    }

    #[test]
    fn hits_are_not_queued_beyond_the_wait_of_their_caller() {
        let bucket = one_a_second(1, queue(3, 60_000));
        let full = bucket.add(State::EMPTY, 2, at(0));
        let turn = |patience| bucket.admission(&full, 1, Duration::from_millis(patience), at(0));
        assert_eq!(turn(1_999), Admission::Full);
        assert_eq!(release_at(&bucket, turn(2_000)), at(2_000));
    }

    #[test]
    fn hits_are_accepted_after_the_returned_wait_and_not_a_nanosecond_earlier() {
        // Full by number, by the longest wait, and by the wait of the caller; and without a queue.
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
    fn a_queue_behind_the_largest_burst_gives_no_position_twice() {
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
