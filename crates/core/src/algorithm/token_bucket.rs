//! The token bucket: up to `size` tokens, refilled at a rate; each hit takes one.
//!
//! The state counts missing tokens. They are refilled one by one, each as soon as its share of the interval has passed
//! (greedy), or all of an interval's at once, at its end. Bursts are up to `size`; in any stretch of time, no more hits are
//! admitted than `size` and the tokens refilled meanwhile.

use super::{
    Freeing, NotShareable, State, StoredBytes, StoredNumbers,
    facts::Facts,
    fixed_window::saturating_count,
    meter::{self, Rate, hits_per_window},
    microseconds,
    stored::{self, PlaceScale, Stored},
    taken::{Standing, Taken, until_room},
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, time::Duration};

/// A bucket of `size` tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TokenBucket {
    /// Tokens in a full bucket: the largest burst.
    pub size: u32,
    /// Schedule of refills.
    pub refill: Refill,
}

/// Schedule of refills.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refill {
    /// One by one, evenly over time.
    Greedy(Rate),
    /// `tokens` at once, at every multiple of `interval` since the Unix epoch.
    Intervals {
        /// Tokens refilled at once.
        tokens: NonZeroU32,
        /// Time from one refill to the next.
        interval: Window,
    },
}

/// Missing tokens, where they are refilled by whole intervals.
#[derive(Clone, Copy)]
struct Missing {
    /// Interval number: start / length. Never decreases.
    number: u64,
    /// Saturates: more cannot matter, as no bucket is larger than `u32::MAX`.
    tokens: u32,
}

impl Missing {
    /// The missing tokens as of `now`; at an earlier time, as of the interval of the state.
    #[inline]
    fn read(state: &State, refill: NonZeroU32, interval: Window, now: Timestamp) -> Self {
        Self::of_words(state.words(), refill, interval, now)
    }

    #[inline]
    fn of_words([number, tokens]: [u64; 2], refill: NonZeroU32, interval: Window, now: Timestamp) -> Self {
        let current = now.as_nanos() / interval.nanos();
        let came_back = current.saturating_sub(number).saturating_mul(u64::from(refill.get()));
        Self {
            number: current.max(number),
            tokens: u64::from(tokens as u32).saturating_sub(came_back) as u32,
        }
    }

    fn pack(self) -> State {
        if self.tokens == 0 { State::EMPTY } else { State::Words(self.words()) }
    }

    fn words(self) -> [u64; 2] {
        [self.number, u64::from(self.tokens)]
    }

    /// Time from which at most `target` tokens are missing.
    fn at_most(self, target: u64, refill: NonZeroU32, interval: Window) -> Timestamp {
        let intervals = u64::from(self.tokens).saturating_sub(target).div_ceil(u64::from(refill.get()));
        if intervals == 0 {
            return Timestamp::EPOCH;
        }
        Timestamp::from_nanos(self.number.saturating_add(intervals).saturating_mul(interval.nanos().get()))
    }
}

impl TokenBucket {
    /// A bucket that gets back `refill` tokens in every `interval`, evenly.
    pub const fn greedy(size: u32, refill: NonZeroU32, interval: Window) -> Self {
        Self { size, refill: Refill::Greedy(Rate::new(refill, interval)) }
    }

    /// A bucket that gets back `refill` tokens at the end of every `interval`.
    pub const fn by_intervals(size: u32, refill: NonZeroU32, interval: Window) -> Self {
        Self { size, refill: Refill::Intervals { tokens: refill, interval } }
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        match self.refill {
            Refill::Greedy(rate) => rate.used(state, now),
            Refill::Intervals { tokens, interval } => {
                u64::from(Missing::read(state, tokens, interval, now).tokens)
            }
        }
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.size).saturating_sub(self.used(state, now))
    }

    /// See [`Algorithm::take`](super::Algorithm::take).
    #[inline(always)]
    pub(super) fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        match self.refill {
            Refill::Greedy(rate) => rate.take(self.size, words, hits, now),
            Refill::Intervals { tokens, interval } => {
                let missing = Missing::of_words(words, tokens, interval, now);
                self.take_by_intervals(missing, hits, tokens, interval, now)
            }
        }
    }

    fn take_by_intervals(
        &self,
        mut missing: Missing,
        hits: u64,
        refill: NonZeroU32,
        interval: Window,
        now: Timestamp,
    ) -> Taken {
        let remaining = u64::from(self.size.saturating_sub(missing.tokens));
        let full = |missing: Missing, target| missing.at_most(target, refill, interval);
        if hits > remaining {
            let until_admits = until_room(self.size, hits, |target| full(missing, target).since(now));
            return Taken::Over { remaining, until_admits };
        }
        missing.tokens = saturating_count(missing.tokens, hits);
        let expires = full(missing, 0);
        Taken::Admitted(Standing {
            state: missing.words(),
            expires,
            remaining: remaining - hits,
            until_full: expires.since(now),
        })
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let added = match self.refill {
            Refill::Greedy(rate) => rate.add(&state, hits, now),
            Refill::Intervals { tokens, interval } => {
                let mut missing = Missing::read(&state, tokens, interval, now);
                missing.tokens = saturating_count(missing.tokens, hits);
                missing.pack()
            }
        };
        state.discard();
        added
    }

    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        match self.refill {
            Refill::Greedy(rate) => rate.give_back(&state, hits, now),
            Refill::Intervals { tokens, interval } => {
                let mut missing = Missing::read(&state, tokens, interval, now);
                missing.tokens = u64::from(missing.tokens).saturating_sub(hits) as u32;
                missing.pack()
            }
        }
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        until_room(self.size, hits, |target| self.until_at_most(state, target, now))
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.until_at_most(state, 0, now)
    }

    #[inline]
    fn until_at_most(&self, state: &State, target: u64, now: Timestamp) -> Duration {
        match self.refill {
            Refill::Greedy(rate) => rate.until_at_most(state, target, now),
            Refill::Intervals { tokens, interval } => {
                Missing::read(state, tokens, interval, now).at_most(target, tokens, interval).since(now)
            }
        }
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        match self.refill {
            Refill::Greedy(rate) => rate.dries(state),
            Refill::Intervals { tokens, interval } => {
                Missing::read(state, tokens, interval, Timestamp::EPOCH).at_most(0, tokens, interval)
            }
        }
    }
}

impl Stored for TokenBucket {
    fn write_signature(&self, out: &mut StoredBytes) {
        match self.refill {
            Refill::Greedy(rate) => {
                out.push(b'T');
                rate.write_signature(out);
            }
            Refill::Intervals { tokens, interval } => {
                out.push(b'I');
                stored::window(out, interval);
                stored::double(out, tokens.get().into());
            }
        }
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        let refill = match letter {
            b'T' => Refill::Greedy(Rate::of_signature(parameters)?),
            b'I' => {
                let interval = parameters.window()?;
                let tokens = NonZeroU32::new(u32::try_from(parameters.double()?).ok()?)?;
                Refill::Intervals { tokens, interval }
            }
            _ => return None,
        };
        Some(Self { size: u32::MAX, refill })
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        match self.refill {
            Refill::Greedy(rate) => rate.read_level(numbers),
            Refill::Intervals { .. } => Some(State::Words([numbers.double()?, u64::from(numbers.count()?)])),
        }
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Words([number, tokens]) = state else { return None };
        match self.refill {
            Refill::Greedy(rate) => rate.write_level(state, out),
            Refill::Intervals { .. } => {
                stored::double(out, *number);
                stored::count(out, u32::try_from(*tokens).ok()?);
                Some(())
            }
        }
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(match self.refill {
            Refill::Greedy(rate) => rate.scale(),
            Refill::Intervals { tokens, .. } => {
                PlaceScale { parts: tokens.get().into(), ..PlaceScale::whole(1) }
            }
        })
    }
}

impl Facts for TokenBucket {
    const NAME: &'static str = "token_bucket";
    const KEEPS_WORDS: bool = true;

    #[inline]
    fn capacity(&self) -> Option<u32> {
        Some(self.size)
    }

    fn freeing(&self) -> Freeing {
        match self.refill {
            Refill::Greedy(rate) => Freeing::Evenly(rate),
            Refill::Intervals { tokens, interval } => Freeing::Intervals { tokens, interval },
        }
    }

    fn reads_as(&self, other: &Self) -> bool {
        self.refill == other.refill
    }

    fn with_requests(&self, requests: u32, former: u32, window: Window) -> Self {
        let of_refill = match self.refill {
            Refill::Greedy(_) => Self::greedy,
            Refill::Intervals { .. } => Self::by_intervals,
        };
        let size = if self.size == former { requests } else { self.size };
        of_refill(size, hits_per_window(requests), window)
    }

    /// Tokens are refilled one by one.
    fn replaced(&self, limit: u32, window: Window, size: u32) -> Option<Self> {
        Some(Self::greedy(size, hits_per_window(limit), window))
    }

    fn in_microseconds(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        match self.refill {
            Refill::Greedy(rate) => meter::drains(rate, most(self.size))?,
            Refill::Intervals { interval, .. } => microseconds::whole(interval)?,
        }
        Ok(*self)
    }

    fn numbers(&self, length: fn(Duration) -> String) -> String {
        match &self.refill {
            Refill::Greedy(rate) => format!("{}, refilled by {}", self.size, rate.text(length)),
            Refill::Intervals { tokens, interval } => {
                format!("{}, refilled by {tokens} per {interval}", self.size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(number: u32) -> NonZeroU32 {
        NonZeroU32::new(number).unwrap()
    }

    fn ten_seconds() -> Window {
        Window::from_secs(10).unwrap()
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    fn wait(millis: u64) -> Reset {
        Reset::After(Duration::from_millis(millis))
    }

    /// field.md, worked case: refill 5 per 10 s, size 10; bursts up to the size. Greedily, a token every 2 s.
    #[test]
    fn after_a_burst_of_ten_tokens_are_refilled_one_by_one() {
        let bucket = TokenBucket::greedy(10, tokens(5), ten_seconds());
        assert_eq!(bucket.remaining(&State::EMPTY, at(0)), 10);
        let empty = bucket.add(State::EMPTY, 10, at(0));
        assert_eq!(bucket.remaining(&empty, at(1_999)), 0);
        assert_eq!(bucket.remaining(&empty, at(2_000)), 1);
        assert_eq!(bucket.until_admits(&empty, 5, at(2_500)), wait(7_500));
        assert_eq!(bucket.until_full(&empty, at(2_500)), Duration::from_millis(17_500));
        assert_eq!(bucket.until_admits(&empty, 11, at(0)), Reset::Never);
    }

    /// The same by whole intervals: no token before the clock reaches ten seconds, then five at once.
    #[test]
    fn by_whole_intervals_all_five_tokens_are_refilled_at_once() {
        let bucket = TokenBucket::by_intervals(10, tokens(5), ten_seconds());
        let empty = bucket.add(State::EMPTY, 10, at(4_000));
        assert_eq!(bucket.remaining(&empty, at(9_999)), 0);
        assert_eq!(bucket.remaining(&empty, at(10_000)), 5);
        assert_eq!(bucket.until_admits(&empty, 5, at(4_000)), wait(6_000));
        assert_eq!(bucket.until_admits(&empty, 6, at(4_000)), wait(16_000));
        assert_eq!(bucket.remaining(&empty, at(500_000)), 10);
    }

    /// throttlecrab, seen: with a burst of 10, after 8 s idle 17 hits were admitted at once and 16 of 10 remained.
    #[test]
    fn idling_never_fills_a_bucket_beyond_its_size() {
        let bucket = TokenBucket::greedy(10, tokens(1), Window::from_secs(1).unwrap());
        let state = bucket.add(State::EMPTY, 1, at(0));
        assert_eq!(bucket.remaining(&state, at(8_000)), 10);
        let state = bucket.add(state, 10, at(8_000));
        assert_eq!(bucket.remaining(&state, at(8_000)), 0);
    }

    /// gubernator, seen: a credit was not capped at the limit.
    #[test]
    fn giving_back_never_fills_a_bucket_beyond_its_size() {
        for bucket in [
            TokenBucket::greedy(10, tokens(5), ten_seconds()),
            TokenBucket::by_intervals(10, tokens(5), ten_seconds()),
        ] {
            let state = bucket.add(State::EMPTY, 3, at(0));
            let state = bucket.give_back(state, 1_000, at(0));
            assert_eq!(bucket.remaining(&state, at(0)), 10);
            assert_eq!(state, State::EMPTY);
        }
    }

    /// gubernator, seen: the answer stayed OVER_LIMIT after the limit had been raised.
    #[test]
    fn a_larger_size_frees_at_once() {
        let small = TokenBucket::greedy(10, tokens(5), ten_seconds());
        let large = TokenBucket { size: 15, ..small };
        let empty = small.add(State::EMPTY, 10, at(0));
        assert_eq!(small.until_admits(&empty, 1, at(0)), wait(2_000));
        assert_eq!(large.until_admits(&empty, 5, at(0)), Reset::NOW);
    }

    /// throttlecrab, seen: the wait was rounded down, so that clients retried too early, and a wait was given for
    /// hits that could never pass. Three a second: a token takes a third of a second, which is no whole nanosecond.
    #[test]
    fn a_wait_is_rounded_up_and_never_is_never() {
        let bucket = TokenBucket::greedy(3, tokens(3), Window::from_secs(1).unwrap());
        let empty = bucket.add(State::EMPTY, 3, at(0));
        let Reset::After(wait) = bucket.until_admits(&empty, 1, at(0)) else { panic!("never") };
        assert_eq!(wait, Duration::from_nanos(333_333_334));
        assert_eq!(bucket.until_admits(&empty, 4, at(0)), Reset::Never);
    }

    /// upstash, seen (its thread 156): one request for more than the limit locked a key for 115 days.
    #[test]
    fn a_debt_is_paid_off_at_the_rate_and_not_later() {
        let bucket = TokenBucket::greedy(10, tokens(10), ten_seconds());
        let debt = bucket.add(State::EMPTY, 30, at(0));
        assert_eq!(bucket.until_admits(&debt, 1, at(0)), wait(21_000));
        assert_eq!(bucket.remaining(&debt, at(25_000)), 5);
    }
}
