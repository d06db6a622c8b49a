//! Fixed windows, aligned to the Unix epoch: a window of 10 s starts at every multiple of 10 s.
//!
//! Never more than the limit is admitted in one of these windows. Two bursts around a boundary can add up to twice
//! the limit in a window's length; [`SlidingWindow`](super::SlidingWindow) is there for those who mind.

use super::State;
use crate::limit::{Reset, Timestamp, Window};
use std::time::Duration;

/// At most `limit` hits in each window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FixedWindow {
    /// Hits admitted in one window.
    pub limit: u32,
    /// The window's length.
    pub window: Window,
}

/// One counter: the window it counts, and the hits in it.
#[derive(Clone, Copy)]
struct Bucket {
    /// Window number: start / length. Never decreases.
    number: u64,
    /// Saturates: more cannot matter, as no limit is above `u32::MAX`.
    hits: u32,
}

impl Bucket {
    fn pack(self) -> State {
        State([self.number, u64::from(self.hits)])
    }
}

impl FixedWindow {
    /// The bucket of `now`; that of the state if time went back.
    #[inline]
    fn bucket(&self, state: &State, now: Timestamp) -> Bucket {
        let State([number, hits]) = *state;
        let current = now.as_nanos() / self.window.nanos();
        if current > number {
            Bucket { number: current, hits: 0 }
        } else {
            Bucket { number, hits: hits as u32 }
        }
    }

    /// How long the window of the counter still lasts, whatever is in it.
    pub fn until_window_ends(&self, state: &State, now: Timestamp) -> Duration {
        let end = self.end(self.bucket(state, now).number);
        // With time gone back, the end of the state's own window may be further than one window; it still is the truth.
        end.since(now)
    }

    fn end(&self, number: u64) -> Timestamp {
        Timestamp::from_nanos(number.saturating_add(1).saturating_mul(self.window.nanos().get()))
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.bucket(state, now).hits)
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.limit.saturating_sub(self.bucket(state, now).hits))
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut bucket = self.bucket(&state, now);
        bucket.hits = saturating_count(bucket.hits, hits);
        bucket.pack()
    }

    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut bucket = self.bucket(&state, now);
        bucket.hits = u64::from(bucket.hits).saturating_sub(hits) as u32;
        bucket.pack()
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        if hits > u64::from(self.limit) {
            Reset::Never
        } else if hits <= self.remaining(state, now) {
            Reset::NOW
        } else {
            Reset::After(self.until_window_ends(state, now))
        }
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        let bucket = self.bucket(state, now);
        if bucket.hits == 0 { Duration::ZERO } else { self.end(bucket.number).since(now) }
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        self.end(state.0[0])
    }
}

/// Adds hits to a count that stops at `u32::MAX`.
#[inline]
pub(super) fn saturating_count(count: u32, hits: u64) -> u32 {
    u64::from(count).saturating_add(hits).min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN_SECONDS: FixedWindow = FixedWindow {
        limit: 5,
        window: match Window::from_secs(10) {
            Ok(w) => w,
            Err(_) => unreachable!(),
        },
    };

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    /// field.md, worked case: windows of 10 s start at multiples of 10 s, the count resets at the end, and two bursts
    /// across the boundary add up to twice the limit.
    #[test]
    fn windows_start_on_the_clock_and_two_bursts_pass_around_a_boundary() {
        let full = TEN_SECONDS.add(State::EMPTY, 5, at(9_999));
        assert_eq!(TEN_SECONDS.remaining(&full, at(9_999)), 0);
        assert_eq!(TEN_SECONDS.until_admits(&full, 1, at(9_999)), Reset::After(Duration::from_millis(1)));
        assert_eq!(TEN_SECONDS.remaining(&full, at(10_000)), 5);
        let second = TEN_SECONDS.add(full.clone(), 5, at(10_000));
        assert_eq!(TEN_SECONDS.remaining(&second, at(19_999)), 0);
        assert_eq!(TEN_SECONDS.until_full(&second, at(12_500)), Duration::from_millis(7_500));
    }

    #[test]
    fn time_gone_back_neither_frees_nor_panics() {
        let full = TEN_SECONDS.add(State::EMPTY, 5, at(10_000));
        assert_eq!(TEN_SECONDS.remaining(&full, at(0)), 0);
        assert_eq!(TEN_SECONDS.until_admits(&full, 1, at(0)), Reset::After(Duration::from_secs(20)));
    }

    #[test]
    fn more_than_the_limit_is_never_admitted_and_counts_saturate() {
        assert_eq!(TEN_SECONDS.until_admits(&State::EMPTY, 6, at(0)), Reset::Never);
        let debt = TEN_SECONDS.add(State::EMPTY, u64::MAX, at(0));
        assert_eq!(TEN_SECONDS.used(&debt, at(0)), u64::from(u32::MAX));
        assert_eq!(TEN_SECONDS.remaining(&debt, at(0)), 0);
        assert_eq!(TEN_SECONDS.give_back(debt, u64::MAX, at(0)).0[1], 0);
    }
}
