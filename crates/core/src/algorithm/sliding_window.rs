//! The sliding window of two weighted buckets, as Cloudflare published it in 2017.
//!
//! Time is cut into windows aligned to the Unix epoch. The estimate of the hits in the window that ends now is
//! `current + previous * (share of the previous window that still lies inside)`. Integer arithmetic throughout.
//!
//! Invariant: right after an admitted hit, `estimate < limit + 1`.
//!
//! Source: "How we built rate limiting capable of scaling to millions of domains", Cloudflare, 2017.

use super::{
    Freeing, NotShareable, State, StoredBytes, StoredNumbers,
    facts::Facts,
    fixed_window::saturating_count,
    microseconds,
    stored::{self, PlaceScale, Stored},
    taken::{Standing, Taken, until_room},
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// At most `limit` hits in the estimate of the last window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SlidingWindow {
    /// Hits admitted in one window.
    pub limit: u32,
    /// The window's length.
    pub window: Window,
}

/// One counter as of one moment.
#[derive(Clone, Copy)]
struct Buckets {
    /// Number of the current window: start / length. Never decreases.
    number: u64,
    /// Hits in the window before.
    previous: u32,
    /// Hits in the current window.
    current: u32,
    /// Nanoseconds since the current window began; less than its length.
    elapsed: u64,
}

impl Buckets {
    #[inline]
    fn words(self) -> [u64; 2] {
        [self.number, u64::from(self.previous) << 32 | u64::from(self.current)]
    }

    #[inline]
    fn pack(self) -> State {
        State::Words(self.words())
    }
}

impl SlidingWindow {
    #[inline]
    fn length(&self) -> u64 {
        self.window.nanos().get()
    }

    /// The buckets as of `now`. At an earlier time, those of the state at the start of its window.
    #[inline]
    fn buckets(&self, [number, counts]: [u64; 2], now: Timestamp) -> Buckets {
        let (previous, current) = ((counts >> 32) as u32, counts as u32);
        let now_number = now.as_nanos() / self.window.nanos();
        if now_number < number {
            return Buckets { number, previous, current, elapsed: 0 };
        }
        let elapsed = now.as_nanos() - now_number * self.length();
        match now_number - number {
            0 => Buckets { number, previous, current, elapsed },
            1 => Buckets { number: now_number, previous: current, current: 0, elapsed },
            _ => Buckets { number: now_number, previous: 0, current: 0, elapsed },
        }
    }

    /// Hits of the previous window that still count. Floored, as the published rule has it: a client at 9.5 of 10 is
    /// let in.
    #[inline]
    fn still_inside(&self, previous: u32, elapsed: u64) -> u64 {
        if previous == 0 {
            return 0;
        }
        let left = self.length() - elapsed;
        match u64::from(previous).checked_mul(left) {
            // The common case stays in 64 bits, where division is several times faster.
            Some(product) => product / self.window.nanos(),
            None => (u128::from(previous) * u128::from(left) / u128::from(self.length())) as u64,
        }
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        self.used_of(self.buckets(state.words(), now))
    }

    #[inline]
    fn used_of(&self, buckets: Buckets) -> u64 {
        u64::from(buckets.current) + self.still_inside(buckets.previous, buckets.elapsed)
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        self.remaining_of(self.buckets(state.words(), now))
    }

    #[inline]
    fn remaining_of(&self, buckets: Buckets) -> u64 {
        u64::from(self.limit).saturating_sub(self.used_of(buckets))
    }

    /// See [`Algorithm::take`](super::Algorithm::take). Reads the buckets once: the compiler does not recognise that those of the new state
    /// are the same.
    #[inline(always)]
    pub(super) fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        let buckets = self.buckets(words, now);
        let remaining = self.remaining_of(buckets);
        if hits > remaining {
            Taken::Over { remaining, until_admits: self.until_admits_of(buckets, hits, now) }
        } else {
            Taken::Admitted(self.charge_of(buckets, hits, now))
        }
    }

    /// See [`Algorithm::charge`](super::Algorithm::charge).
    #[inline(always)]
    pub(super) fn charge(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Standing<[u64; 2]> {
        self.charge_of(self.buckets(words, now), hits, now)
    }

    #[inline(always)]
    fn charge_of(&self, mut buckets: Buckets, hits: u64, now: Timestamp) -> Standing<[u64; 2]> {
        buckets.current = saturating_count(buckets.current, hits);
        Standing {
            state: buckets.words(),
            expires: self.expires_of(buckets.number),
            remaining: self.remaining_of(buckets),
            until_full: self.until_at_most_of(buckets, 0, now),
        }
    }

    #[inline(always)]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut buckets = self.buckets(state.words(), now);
        state.discard();
        buckets.current = saturating_count(buckets.current, hits);
        buckets.pack()
    }

    /// The current window holds the newest hits: they go first, then those of the window before.
    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut buckets = self.buckets(state.words(), now);
        let of_current = hits.min(u64::from(buckets.current));
        buckets.current -= of_current as u32;
        buckets.previous = u64::from(buckets.previous).saturating_sub(hits - of_current) as u32;
        if buckets.previous == 0 && buckets.current == 0 { State::EMPTY } else { buckets.pack() }
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        self.until_admits_of(self.buckets(state.words(), now), hits, now)
    }

    #[inline]
    fn until_admits_of(&self, buckets: Buckets, hits: u64, now: Timestamp) -> Reset {
        until_room(self.limit, hits, |target| self.until_at_most_of(buckets, target, now))
    }

    #[inline(always)]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.until_at_most(state, 0, now)
    }

    /// The least wait after which the floored estimate is at most `target`, if no other hits arrive.
    #[inline(always)]
    fn until_at_most(&self, state: &State, target: u64, now: Timestamp) -> Duration {
        self.until_at_most_of(self.buckets(state.words(), now), target, now)
    }

    #[inline(always)]
    fn until_at_most_of(&self, buckets: Buckets, target: u64, now: Timestamp) -> Duration {
        let start = buckets.number.saturating_mul(self.length());
        let current = u64::from(buckets.current);
        let at = if let Some(room) = target.checked_sub(current)
            && let fades = self.fades_at(buckets.previous, room)
            && fades < self.length()
        {
            if fades <= buckets.elapsed {
                return Duration::ZERO;
            }
            start.saturating_add(fades)
        } else {
            // In the next window this one is the previous.
            start.saturating_add(self.length()).saturating_add(self.fades_at(buckets.current, target))
        };
        Timestamp::from_nanos(at).since(now)
    }

    /// The first moment of a window, counted from its start, at which at most `room` of the previous hits still count.
    ///
    /// floor(previous * (length - elapsed) / length) <= room, solved for the least whole elapsed.
    #[inline]
    fn fades_at(&self, previous: u32, room: u64) -> u64 {
        if u64::from(previous) <= room {
            return 0;
        }
        // previous * left <= (room + 1) * length - 1, the largest left, rounded down: never admitted too early.
        let left = match (room + 1).checked_mul(self.length()) {
            // The common case stays in 64 bits, where division is several times faster.
            Some(product) => (product - 1) / u64::from(previous),
            None => {
                let product = (u128::from(room) + 1) * u128::from(self.length());
                ((product - 1) / u128::from(previous)) as u64
            }
        };
        self.length() - left.min(self.length())
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        self.expires_of(state.words()[0])
    }

    #[inline]
    fn expires_of(&self, number: u64) -> Timestamp {
        Timestamp::from_nanos(number.saturating_add(2).saturating_mul(self.length()))
    }
}

impl Stored for SlidingWindow {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.push(b'W');
        stored::window(out, self.window);
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        (letter == b'W').then_some(())?;
        Some(Self { limit: u32::MAX, window: parameters.window()? })
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let (number, previous, current) = (numbers.double()?, numbers.count()?, numbers.count()?);
        Some(Buckets { number, previous, current, elapsed: 0 }.pack())
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Words([number, hits]) = state else { return None };
        stored::double(out, *number);
        stored::count(out, (hits >> 32) as u32);
        stored::count(out, *hits as u32);
        Some(())
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(PlaceScale::whole(1))
    }
}

impl Facts for SlidingWindow {
    const NAME: &'static str = "sliding_window";
    const KEEPS_WORDS: bool = true;

    fn freeing(&self) -> Freeing {
        Freeing::Window(self.length())
    }

    fn reads_as(&self, other: &Self) -> bool {
        self.window == other.window
    }

    fn with_requests(&self, requests: u32, _: u32, _: Window) -> Self {
        Self { limit: requests, ..*self }
    }

    fn replaced(&self, limit: u32, window: Window, _: u32) -> Option<Self> {
        Some(Self { limit, window })
    }

    fn in_microseconds(&self, _: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        microseconds::whole(self.window).map(|()| *self)
    }

    /// Counts hits in the window of this number: the current one, the previous one, or a later one.
    fn insert(&self, state: State, hits: u64, number: u64, _: Timestamp) -> State {
        let [current_number, counts] = state.words();
        let (previous, current) = ((counts >> 32) as u32, counts as u32);
        let buckets = Buckets { number: current_number, previous, current, elapsed: 0 };
        let buckets = match number.checked_sub(current_number) {
            Some(0) => Buckets { current: saturating_count(current, hits), ..buckets },
            Some(after) => {
                let previous = if after == 1 { current } else { 0 };
                Buckets { number, previous, current: saturating_count(0, hits), elapsed: 0 }
            }
            None if current_number - number == 1 => {
                Buckets { previous: saturating_count(previous, hits), ..buckets }
            }
            None => buckets,
        };
        buckets.pack()
    }

    fn numbers(&self, _: fn(Duration) -> String) -> String {
        format!("{} per {}", self.limit, self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn per(limit: u32, secs: u64) -> SlidingWindow {
        SlidingWindow { limit, window: Window::from_secs(secs).unwrap() }
    }

    /// A minute's start.
    const MINUTE: u64 = 1_700_000_040;

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(secs * 1000)
    }

    /// field.md, worked case: 10 per minute, previous bucket 4, current 5, 15 s into the minute: 4 x 45/60 + 5 = 8.
    #[test]
    fn four_before_and_five_now_weigh_eight_at_a_quarter_of_the_minute() {
        let rule = per(10, 60);
        let state = rule.add(State::EMPTY, 4, at(MINUTE - 30));
        let state = rule.add(state, 5, at(MINUTE + 10));
        assert_eq!(rule.used(&state, at(MINUTE + 15)), 8);
        assert_eq!(rule.remaining(&state, at(MINUTE + 15)), 2);
    }

    /// field.md, worked case: at 3:45 with a window of an hour, the previous hour weighs 0.25.
    #[test]
    fn the_previous_hour_weighs_a_quarter_at_a_quarter_to() {
        let rule = per(100, 3600);
        let three = 1_699_999_200;
        let state = rule.add(State::EMPTY, 80, at(three - 60));
        assert_eq!(rule.used(&state, at(three + 45 * 60)), 20);
    }

    #[test]
    fn a_limit_of_one_works() {
        let rule = per(1, 10);
        let start = 1_700_000_000;
        let state = rule.add(State::EMPTY, 1, at(start));
        assert_eq!(rule.remaining(&state, at(start)), 0);
        let Reset::After(wait) = rule.until_admits(&state, 1, at(start)) else { panic!("never") };
        // floor(1 x left / 10 s) is 0 as soon as less than the whole previous window is inside.
        assert_eq!(wait, Duration::from_nanos(10_000_000_001));
    }

    #[test]
    fn giving_back_takes_the_newest_first() {
        let rule = per(10, 60);
        let state = rule.add(rule.add(State::EMPTY, 4, at(MINUTE - 30)), 5, at(MINUTE));
        assert_eq!(rule.used(&rule.give_back(state.clone(), 6, at(MINUTE)), at(MINUTE)), 3);
        assert_eq!(rule.used(&rule.give_back(state, u64::MAX, at(MINUTE)), at(MINUTE)), 0);
    }

    proptest! {
        #[test]
        fn waiting_exactly_the_reset_admits_and_a_nanosecond_less_does_not(
            limit in 0..50u32, length in Window::NANOS_MIN..5_000_000_000u64,
            (before, now_hits) in (0..60u64, 0..60u64), (first, gap) in (0..10_000_000_000u64, 0..10_000_000_000u64),
            hits in 1..60u64,
        ) {
            let rule = SlidingWindow { limit, window: Window::from_nanos(length).unwrap() };
            let start = Timestamp::from_nanos(1_700_000_000_000_000_000 + first);
            let now = start.saturating_add_nanos(gap);
            let state = rule.add(rule.add(State::EMPTY, before, start), now_hits, now);
            match rule.until_admits(&state, hits, now) {
                Reset::Never => prop_assert!(hits > u64::from(limit)),
                Reset::After(wait) => {
                    let wait = wait.as_nanos() as u64;
                    prop_assert!(hits <= rule.remaining(&state, now.saturating_add_nanos(wait)));
                    if wait > 0 {
                        prop_assert!(hits > rule.remaining(&state, now.saturating_add_nanos(wait - 1)));
                    }
                }
            }
            let full = rule.until_full(&state, now).as_nanos() as u64;
            prop_assert_eq!(rule.used(&state, now.saturating_add_nanos(full)), 0);
            if full > 0 {
                prop_assert!(rule.used(&state, now.saturating_add_nanos(full - 1)) > 0);
            }
            prop_assert_eq!(rule.used(&state, rule.expires(&state)), 0);
        }
    }
}
