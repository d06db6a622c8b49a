//! The sliding log: the exact window. Every hit counts from its instant on for the window's length, to the nanosecond.
//!
//! No more than `limit` hits are admitted in any half-open stretch of the window's length, wherever it begins. It costs a few
//! bytes for each hit that still counts (see [`Runs`]), for `limit + 1` instants at most.
//!
//! Hits beyond the limit, which only `charge: always` counts, cannot matter one by one: while the newest `limit`
//! hits count, nothing is admitted. The older hits are kept as one number, dated as the newest of them.

use super::{
    Freeing, NotShareable, State, StoredBytes, StoredNumbers,
    facts::Facts,
    memory::HeapBytes,
    microseconds,
    runs::{Run, Runs},
    stored::{self, PlaceScale, Stored},
    taken::until_room,
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The largest limit in a shared store, which copies the whole log for each decision.
pub(super) const SHARED_LIMIT_MAX: u32 = 10_000;

/// At most `limit` hits in any stretch of the window's length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct SlidingLog {
    /// Hits admitted in one window.
    pub limit: u32,
    /// The window's length.
    pub window: Window,
}

impl SlidingLog {
    /// The largest limit: every hit that counts is remembered, in up to nine bytes.
    pub const LIMIT_MAX: u32 = 1_000_000;

    /// The moment at which a hit of the instant ceases to count.
    fn end(&self, at: u64) -> Timestamp {
        Timestamp::from_nanos(at).saturating_add_nanos(self.window.nanos().get())
    }

    /// The latest time of hits that no longer count: a window before `now`. None if no time is that early. A time before the
    /// newest hit is read as that of the newest hit.
    #[inline]
    fn forgotten(&self, runs: &Runs, now: Timestamp) -> Option<u64> {
        now.as_nanos().max(runs.newest()).checked_sub(self.window.nanos().get())
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        let State::Log(runs) = state else { return 0 };
        let Some(forgotten) = self.forgotten(runs, now) else {
            return runs.total();
        };
        if runs.newest() <= forgotten {
            return 0;
        }
        // Every admitted hit clears away what is forgotten, so there is little to walk over.
        let gone = runs.iter().take_while(|run| run.at <= forgotten).map(|run| u64::from(run.hits));
        runs.total() - gone.sum::<u64>()
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.limit).saturating_sub(self.used(state, now))
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        if hits == 0 {
            return state;
        }
        let mut runs = match state {
            State::Log(runs) => runs,
            State::Words(_) | State::Counts(_) | State::Slots(_) | State::Leased(_) | State::Reserved(_) => {
                Box::default()
            }
        };
        self.forget(&mut runs, now);
        runs.push(now.as_nanos().max(runs.newest()), hits);
        runs.join_beyond(u64::from(self.limit));
        State::Log(runs)
    }

    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        let State::Log(mut runs) = state else {
            return State::EMPTY;
        };
        self.forget(&mut runs, now);
        runs.take_newest(hits);
        if runs.total() == 0 { State::EMPTY } else { State::Log(runs) }
    }

    fn forget(&self, runs: &mut Runs, now: Timestamp) {
        if let Some(forgotten) = self.forgotten(runs, now) {
            runs.forget_until(forgotten);
        }
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        until_room(self.limit, hits, |target| self.until_at_most(state, target, now))
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.expires(state).since(now)
    }

    /// The least wait after which at most `target` hits still count: until the oldest excess hits have expired.
    fn until_at_most(&self, state: &State, target: u64, now: Timestamp) -> Duration {
        let State::Log(runs) = state else {
            return Duration::ZERO;
        };
        let mut left = runs.total();
        let last_in_excess = runs.iter().take_while(|run| {
            let in_excess = left > target;
            left -= u64::from(run.hits);
            in_excess
        });
        last_in_excess.last().map_or(Duration::ZERO, |Run { at, .. }| self.end(at).since(now))
    }

    #[inline]
    pub(super) fn expires(&self, state: &State) -> Timestamp {
        match state {
            State::Log(runs) => self.end(runs.newest()),
            State::Words(_) | State::Counts(_) | State::Slots(_) | State::Leased(_) | State::Reserved(_) => {
                Timestamp::EPOCH
            }
        }
    }
}

impl Stored for SlidingLog {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.push(b'G');
        stored::window(out, self.window);
    }

    fn write_parameters(&self, _: Timestamp, out: &mut StoredBytes) {
        stored::double(out, self.limit.into());
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        (letter == b'G').then_some(())?;
        Some(Self { limit: u32::MAX, window: parameters.window()? })
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let _total = numbers.double()?;
        let mut runs = Vec::with_capacity(numbers.0.len() / 12);
        while !numbers.is_empty() {
            runs.push(Run { at: numbers.nanos()?, hits: numbers.count()? });
        }
        Some(State::Log(Box::new(Runs::from_ascending(runs)?)))
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Log(runs) = state else { return None };
        let mut rounded: Vec<(u64, u32)> = Vec::new();
        for run in runs.iter() {
            let at = run.at.div_ceil(microseconds::NANOS);
            match rounded.last_mut().filter(|(last, _)| *last == at) {
                Some((_, hits)) => *hits = hits.saturating_add(run.hits),
                None => rounded.push((at, run.hits)),
            }
        }
        stored::double(out, rounded.iter().map(|&(_, hits)| u64::from(hits)).sum());
        for (at, hits) in rounded {
            stored::double(out, at);
            stored::count(out, hits);
        }
        Some(())
    }

    fn number_of_reserved(&self) -> u32 {
        self.limit
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(PlaceScale::whole(microseconds::NANOS))
    }
}

impl Facts for SlidingLog {
    const NAME: &'static str = "sliding_log";
    const LIMIT_MAX: u32 = SlidingLog::LIMIT_MAX;
    const KEEPS_WORDS: bool = false;

    fn heap_bytes(&self) -> HeapBytes {
        HeapBytes::of_log(self.limit)
    }

    fn freeing(&self) -> Freeing {
        Freeing::Window(self.window.nanos().get())
    }

    fn reads_as(&self, other: &Self) -> bool {
        self.window == other.window
    }

    fn with_requests(&self, requests: u32, _: u32, _: Window) -> Self {
        Self { limit: requests, ..*self }
    }

    /// A limit that is too large for a log counts by a sliding window.
    fn replaced(&self, limit: u32, window: Window, _: u32) -> Option<Self> {
        (limit <= Self::LIMIT_MAX).then_some(Self { limit, window })
    }

    fn in_microseconds(&self, most: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        microseconds::whole(self.window)?;
        if most(self.limit) > SHARED_LIMIT_MAX { Err(NotShareable::Log(SHARED_LIMIT_MAX)) } else { Ok(*self) }
    }

    /// Counts hits at this instant, unless they have expired. Expired hits are forgotten first: joined with others, they would count again.
    fn insert(&self, state: State, hits: u64, at: u64, now: Timestamp) -> State {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        let mut runs = if let State::Log(runs) = state { runs } else { Box::default() };
        self.forget(&mut runs, now);
        let is_past = self.end(at).as_nanos() <= runs.newest().max(now.as_nanos());
        if hits > 0 && !is_past {
            runs.insert(at, hits);
            self.forget(&mut runs, now);
            runs.join_beyond(u64::from(self.limit));
        }
        if runs.total() == 0 { State::EMPTY } else { State::Log(runs) }
    }

    fn numbers(&self, _: fn(Duration) -> String) -> String {
        format!("{} per {}", self.limit, self.window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn per(limit: u32, secs: u64) -> SlidingLog {
        SlidingLog { limit, window: Window::from_secs(secs).unwrap() }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    /// field.md, worked case: 5 per 10 s, denied requests excluded, one request a second for 60 s: 30 are allowed, as 5
    /// allowed, 5 denied, 5 allowed, and so on.
    #[test]
    fn one_request_a_second_against_five_in_ten_seconds_allows_thirty_in_a_minute() {
        let rule = per(5, 10);
        let mut state = State::EMPTY;
        let mut pattern = String::new();
        for second in 0..60 {
            let admitted = rule.remaining(&state, at(second * 1000)) >= 1;
            if admitted {
                state = rule.add(state, 1, at(second * 1000));
            }
            pattern.push(if admitted { '+' } else { '-' });
        }
        assert_eq!(pattern, "+++++-----".repeat(6));
    }

    #[test]
    fn the_reset_is_when_the_oldest_of_those_in_excess_leaves() {
        let rule = per(5, 10);
        let state = rule.add(rule.add(State::EMPTY, 2, at(0)), 3, at(4_000));
        assert_eq!(rule.until_admits(&state, 1, at(5_000)), Reset::After(Duration::from_secs(5)));
        assert_eq!(rule.until_admits(&state, 2, at(5_000)), Reset::After(Duration::from_secs(5)));
        assert_eq!(rule.until_admits(&state, 3, at(5_000)), Reset::After(Duration::from_secs(9)));
        assert_eq!(rule.until_full(&state, at(5_000)), Duration::from_secs(9));
        assert_eq!(rule.until_admits(&state, 6, at(5_000)), Reset::Never);
    }

    /// With `charge: always` a flood of hits beyond the limit must not take memory for each of them.
    #[test]
    fn memory_is_bounded_by_the_limit_whatever_is_charged() {
        let rule = per(10, 3600);
        let mut state = State::EMPTY;
        for nanos in 0..100_000 {
            state = rule.add(state, 1, at(0).saturating_add_nanos(nanos));
        }
        assert_eq!(rule.used(&state, at(1)), 100_000);
        assert!(state.heap_bytes() < 200, "{} bytes", state.heap_bytes());
        // The newest ten fill the limit; the older hits leave with the newest of them.
        let last = at(0).saturating_add_nanos(99_999);
        let wait = Duration::from_secs(3600);
        assert_eq!(rule.until_full(&state, last), wait);
        assert_eq!(rule.until_admits(&state, 1, last), Reset::After(wait - Duration::from_nanos(9)));
    }

    /// With `charge: always`, after more hits than a run can hold: the reset was a second too long.
    #[test]
    fn the_reset_after_saturation_is_when_the_oldest_of_the_newest_hits_leaves() {
        let rule = per(9, 10);
        let saturated = rule.add(State::EMPTY, u64::from(u32::MAX), at(0));
        let state = rule.add(rule.add(saturated, 5, at(1_000)), 5, at(2_000));
        assert_eq!(rule.until_admits(&state, 1, at(2_000)), Reset::After(Duration::from_secs(9)));
    }

    /// docs/algorithms.md: of hits beyond the limit the dates are not kept, so that a raised limit frees some of them later.
    #[test]
    fn hits_beyond_the_limit_count_under_a_raised_one_for_as_long_as_the_newest_of_them() {
        let (two, four) = (per(2, 10), per(4, 10));
        let mut state = two.add(State::EMPTY, 1, at(0));
        state = two.add(state, 1, at(8_000));
        // Two that were denied, by a rule with `charge: always`.
        state = two.add(state, 2, at(9_000));
        assert_eq!(four.used(&state, at(11_000)), 4, "that of 0 s too");
        assert_eq!(four.until_admits(&state, 1, at(11_000)), Reset::After(Duration::from_secs(7)));
        assert_eq!(four.used(&state, at(18_000)), 2);
    }

    /// docs/algorithms.md: and so does a give-back of newer hits.
    #[test]
    fn hits_beyond_the_limit_count_after_a_give_back_for_as_long_as_the_newest_of_them() {
        let two = per(2, 10);
        let mut state = two.add(two.add(State::EMPTY, 1, at(0)), 1, at(8_000));
        state = two.give_back(two.add(state, 2, at(9_000)), 2, at(9_000));
        assert_eq!(two.used(&state, at(17_999)), 2, "that of 0 s too");
        assert_eq!(two.until_admits(&state, 1, at(11_000)), Reset::After(Duration::from_secs(7)));
    }

    #[test]
    fn a_lowered_limit_denies_at_once_and_a_raised_one_frees_at_once() {
        let state = per(5, 10).add(State::EMPTY, 4, at(0));
        assert_eq!(per(3, 10).remaining(&state, at(0)), 0);
        assert_eq!(per(3, 10).until_admits(&state, 1, at(0)), Reset::After(Duration::from_secs(10)));
        assert_eq!(per(9, 10).remaining(&state, at(0)), 5);
    }

    proptest! {
        /// In no half-open stretch of the window's length are more than `limit` hits admitted.
        #[test]
        fn never_more_than_the_limit_in_any_window(
            limit in 0..8u32, nanos in Window::NANOS_MIN..Window::NANOS_MIN + 5,
            arrivals in prop::collection::vec((0..Window::NANOS_MIN / 2, 1..4u64), 1..80),
        ) {
            let rule = SlidingLog { limit, window: Window::from_nanos(nanos).unwrap() };
            let (mut state, mut now, mut admitted) = (State::EMPTY, at(0), Vec::new());
            for (after, hits) in arrivals {
                now = now.saturating_add_nanos(after);
                if hits <= rule.remaining(&state, now) {
                    state = rule.add(state, hits, now);
                    admitted.push((now, hits));
                }
            }
            for &(start, _) in &admitted {
                let within = admitted.iter().filter(|(at, _)| *at >= start && *at < start.saturating_add_nanos(nanos));
                prop_assert!(within.map(|(_, hits)| hits).sum::<u64>() <= u64::from(limit));
            }
        }
    }
}
