//! The result of taking hits, and the numbers of a status.

use super::State;
use crate::limit::{Reset, Timestamp};
use std::time::Duration;

/// A counter at one time, with the numbers of a status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing<S = State> {
    /// The state, or the two words of one.
    pub state: S,
    /// See [`Algorithm::expires`](super::Algorithm::expires).
    pub expires: Timestamp,
    /// See [`Algorithm::remaining`](super::Algorithm::remaining).
    pub remaining: u64,
    /// See [`Algorithm::until_full`](super::Algorithm::until_full).
    pub until_full: Duration,
}

/// The result of [`Algorithm::take`](super::Algorithm::take).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The hits fit, and are counted.
    Admitted(Standing<[u64; 2]>),
    /// The hits do not fit; none is counted.
    Over {
        /// See [`Algorithm::remaining`](super::Algorithm::remaining).
        remaining: u64,
        /// See [`Algorithm::until_admits`](super::Algorithm::until_admits).
        until_admits: Reset,
    },
}

/// Wait until `hits` fit under `limit`, given the wait until at most a number are used; never for more than the limit.
#[inline]
pub(super) fn until_room(limit: u32, hits: u64, until_at_most: impl FnOnce(u64) -> Duration) -> Reset {
    match u64::from(limit).checked_sub(hits) {
        None => Reset::Never,
        Some(target) => Reset::After(until_at_most(target)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Algorithm, FixedWindow, LeakyBucket, Rate, Schedule, SlidingWindow, TokenBucket},
        limit::Window,
    };
    use proptest::prelude::*;
    use std::num::NonZeroU32;

    /// Every algorithm whose states are two words.
    fn of_words() -> impl Strategy<Value = Algorithm> {
        let limit = prop_oneof![0..50u32, Just(u32::MAX)];
        let rate = prop_oneof![1..50u32, Just(u32::MAX)];
        let length = prop_oneof![Window::NANOS_MIN..5_000_000_000u64, Just(Window::NANOS_MAX)];
        (0..6, limit, rate, length).prop_map(|(kind, limit, rate, length)| {
            let (rate, window) = (NonZeroU32::new(rate).unwrap(), Window::from_nanos(length).unwrap());
            match kind {
                0 => Algorithm::SlidingWindow(SlidingWindow { limit, window }),
                1 => Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
                2 => Algorithm::FixedWindow(FixedWindow { limit, schedule: Schedule::FirstHit(window) }),
                3 => Algorithm::TokenBucket(TokenBucket::greedy(limit, rate, window)),
                4 => Algorithm::TokenBucket(TokenBucket::by_intervals(limit, rate, window)),
                _ => Algorithm::LeakyBucket(LeakyBucket {
                    burst: limit,
                    rate: Rate::new(rate, window),
                    queue: None,
                }),
            }
        })
    }

    /// Times, not in order, as clocks are set back, and the hits that are taken then, whether they fit or not.
    fn steps() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let nanos = prop_oneof![9 => 0..5_000_000_000u64, 1 => Just(u64::MAX)];
        let hits = prop_oneof![9 => 1..40u64, 1 => Just(u64::MAX)];
        prop::collection::vec((nanos, hits), 1..20)
    }

    proptest! {
        #[test]
        fn hits_taken_in_one_step_are_those_that_are_evaluated_counted_and_read_one_after_another(
            algorithm in of_words(),
            start in prop_oneof![Just([0, 0]), any::<[u64; 2]>()],
            steps in steps(),
        ) {
            let mut state = State::Words(start);
            for (nanos, hits) in steps {
                let now = Timestamp::from_nanos(nanos);
                let charged = algorithm.add(state.clone(), hits, now);
                let standing = Standing {
                    expires: algorithm.expires(&charged),
                    remaining: algorithm.remaining(&charged, now),
                    until_full: algorithm.until_full(&charged, now),
                    state: charged,
                };
                prop_assert_eq!(algorithm.charge(state.clone(), hits, now), standing.clone());
                let remaining = algorithm.remaining(&state, now);
                let expected = if hits <= remaining {
                    let Standing { expires, remaining, until_full, ref state } = standing;
                    Taken::Admitted(Standing { state: state.words(), expires, remaining, until_full })
                } else {
                    Taken::Over { remaining, until_admits: algorithm.until_admits(&state, hits, now) }
                };
                prop_assert_eq!(algorithm.take(state.words(), hits, now), Some(expected));
                state = standing.state;
            }
        }
    }
}
