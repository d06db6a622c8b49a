//! The sliding window with `precision`: as many hit counts as the window has sub-windows, and one more.
//!
//! Time is cut into sub-windows, aligned to the Unix epoch. The newest sub-windows, a window's length together with the current one, count
//! in full. The sub-window that the window is leaving counts by the share of it that is still inside. But until it is left altogether, at
//! most one sub-window's share of the limit is taken off: all of its hits may lie at its very end, and this bounds how many of them the
//! estimate overlooks.
//!
//! Invariant: in no half-open stretch of the window's length are more than `limit + limit / precision` hits admitted,
//! rounded down. Proof: let the last hit of the stretch be admitted when the sub-window being left holds `o` hits and the newer sub-windows
//! `n`, that hit included. The stretch begins in the sub-window being left or later: it has at most `n + o` hits. The hit was admitted, so
//! `n + o - taken off <= limit`; and no more is taken off than `limit / precision`.
//!
//! With one sub-window the estimate is that of [`SlidingWindow`](super::SlidingWindow), which needs but two words.

use super::{
    Freeing, NotShareable, State, StoredBytes, StoredNumbers,
    counts::Counts,
    facts::Facts,
    fixed_window::saturating_count,
    memory::HeapBytes,
    microseconds,
    stored::{self, PlaceScale, Stored},
    taken::until_room,
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU64, time::Duration};

/// At most `limit` hits in the estimate of the last window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct SubWindows {
    /// Hits admitted in one window.
    pub limit: u32,
    /// Number of sub-windows in a window.
    precision: u8,
    /// The length of a sub-window.
    length: NonZeroU64,
}

/// A counter as of one moment.
struct View<'s> {
    number: u64,
    /// Hits of the sub-window being left and of those after it; all later sub-windows, up to the current, have none.
    hits: &'s [u32],
    /// Nanoseconds since the current sub-window began; less than its length.
    elapsed: u64,
}

impl SubWindows {
    /// A window cut into `precision` sub-windows, at least one. A sub-window is rounded up to a
    /// whole nanosecond, so that the window is longer by less than `precision` nanoseconds.
    pub const fn new(limit: u32, window: Window, precision: u8) -> Self {
        let precision = if precision == 0 { 1 } else { precision };
        let length = window.nanos().get().div_ceil(precision as u64);
        Self {
            limit,
            precision,
            length: NonZeroU64::new(length).expect("a part of a window, rounded up, is not zero"),
        }
    }

    /// `precision` sub-windows of that many nanoseconds; none if there are none or they are longer than the longest window.
    pub const fn from_parts(limit: u32, precision: u8, length_nanos: NonZeroU64) -> Option<Self> {
        if precision == 0 || length_nanos.get() > Window::NANOS_MAX {
            return None;
        }
        Some(Self { limit, precision, length: length_nanos })
    }

    /// Number of sub-windows.
    pub const fn precision(&self) -> u8 {
        self.precision
    }

    /// Length of a sub-window in nanoseconds.
    pub const fn length_nanos(&self) -> NonZeroU64 {
        self.length
    }

    /// The counts of the state; empty if they are of another precision.
    #[inline]
    fn counts<'s>(&self, state: &'s State) -> (u64, &'s [u32]) {
        match state {
            State::Counts(counts) if counts.hits.len() == usize::from(self.precision) + 1 => {
                (counts.number, &counts.hits)
            }
            _ => (0, &[]),
        }
    }

    /// The counter as of `now`; at an earlier time, as of the start of its current sub-window.
    #[inline]
    fn view<'s>(&self, state: &'s State, now: Timestamp) -> View<'s> {
        let (number, hits) = self.counts(state);
        let now_number = now.as_nanos() / self.length;
        if now_number < number {
            return View { number, hits, elapsed: 0 };
        }
        let gone = usize::try_from(now_number - number).unwrap_or(usize::MAX).min(hits.len());
        let elapsed = now.as_nanos() - now_number * self.length.get();
        View { number: now_number, hits: &hits[gone..], elapsed }
    }

    /// The most that is taken off the sub-window being left: its share of the limit.
    #[inline]
    fn allowance(&self) -> u64 {
        u64::from(self.limit / u32::from(self.precision))
    }

    /// Hits of the sub-window being left that still count.
    #[inline]
    fn still_inside(&self, leaving: u32, elapsed: u64) -> u64 {
        if leaving == 0 {
            return 0;
        }
        let (hits, left) = (u64::from(leaving), self.length.get() - elapsed);
        let by_share = match hits.checked_mul(left) {
            Some(product) => product / self.length,
            None => (u128::from(hits) * u128::from(left) / u128::from(self.length.get())) as u64,
        };
        by_share.max(hits.saturating_sub(self.allowance()))
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        let view = self.view(state, now);
        match view.hits {
            [] => 0,
            [leaving, newer @ ..] => self.still_inside(*leaving, view.elapsed) + sum(newer),
        }
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.limit).saturating_sub(self.used(state, now))
    }

    /// The counts, moved on to `now`, in the box of the state if it has one.
    #[inline]
    fn moved_on(&self, state: State, now: Timestamp) -> Box<Counts> {
        let number = now.as_nanos() / self.length;
        match state {
            State::Counts(mut counts) if counts.hits.len() == usize::from(self.precision) + 1 => {
                if counts.number < number {
                    let all = counts.hits.len();
                    let gone = usize::try_from(number - counts.number).unwrap_or(usize::MAX).min(all);
                    counts.hits.copy_within(gone.., 0);
                    counts.hits[all - gone..].fill(0);
                    counts.number = number;
                }
                counts
            }
            _ => Box::new(Counts { number, hits: vec![0; usize::from(self.precision) + 1].into() }),
        }
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        if hits == 0 {
            return state;
        }
        let mut counts = self.moved_on(state, now);
        if let Some(current) = counts.hits.last_mut() {
            *current = saturating_count(*current, hits);
        }
        State::Counts(counts)
    }

    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut counts = self.moved_on(state, now);
        let mut left = hits;
        for count in counts.hits.iter_mut().rev() {
            let taken = left.min(u64::from(*count));
            *count -= taken as u32;
            left -= taken;
        }
        if counts.hits.iter().all(|&count| count == 0) { State::EMPTY } else { State::Counts(counts) }
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        until_room(self.limit, hits, |target| self.until_at_most(state, target, now))
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.until_at_most(state, 0, now)
    }

    /// The least wait until the estimate is at most `target`, if no other hits arrive. Meanwhile the sub-windows are left one after the
    /// other, and the estimate never rises.
    fn until_at_most(&self, state: &State, target: u64, now: Timestamp) -> Duration {
        let View { number, hits, elapsed } = self.view(state, now);
        let mut newer = sum(hits);
        for (turn, &leaving) in (0..).zip(hits) {
            newer -= u64::from(leaving);
            let Some(fades) = target.checked_sub(newer).and_then(|room| self.fades_at(leaving, room)) else {
                continue;
            };
            if turn == 0 && fades <= elapsed {
                return Duration::ZERO;
            }
            return self.start(number.saturating_add(turn)).saturating_add_nanos(fades).since(now);
        }
        // No hit counts any more: at the start of the sub-window after the last was left.
        let emptied = if hits.is_empty() {
            Timestamp::EPOCH
        } else {
            self.start(number.saturating_add(hits.len() as u64))
        };
        emptied.since(now)
    }

    /// The first moment, counted from the start of a sub-window, at which at most `room` hits of the sub-window being left still count;
    /// none if not before its end.
    fn fades_at(&self, leaving: u32, room: u64) -> Option<u64> {
        let hits = u64::from(leaving);
        if hits <= room {
            return Some(0);
        }
        if hits.saturating_sub(self.allowance()) > room {
            return None;
        }
        let length = u128::from(self.length.get());
        // hits * left <= (room + 1) * length - 1, the largest left, rounded down: never admitted too early.
        let left = ((u128::from(room) + 1) * length - 1) / u128::from(hits);
        (left > 0).then(|| (length - left.min(length)) as u64)
    }

    fn start(&self, number: u64) -> Timestamp {
        Timestamp::from_nanos(number.saturating_mul(self.length.get()))
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        let (number, hits) = self.counts(state);
        self.start(number.saturating_add(hits.len() as u64))
    }
}

impl Stored for SubWindows {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.push(b'S');
        stored::double(out, self.length.get() / microseconds::NANOS);
        out.push(self.precision);
    }

    fn write_parameters(&self, _: Timestamp, out: &mut StoredBytes) {
        stored::double(out, self.allowance());
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        (letter == b'S').then_some(())?;
        let length = NonZeroU64::new(parameters.nanos()?)?;
        Self::from_parts(u32::MAX, parameters.byte()?, length)
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let (number, _allowance) = (numbers.double()?, numbers.count()?);
        let hits: Option<Vec<u32>> = (0..=self.precision).map(|_| numbers.count()).collect();
        Some(State::Counts(Box::new(Counts::new(number, hits?.into())?)))
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Counts(counts) = state else { return None };
        stored::double(out, counts.number);
        stored::count(out, self.number_of_reserved());
        counts.hits.iter().for_each(|&hits| stored::count(out, hits));
        Some(())
    }

    fn number_of_reserved(&self) -> u32 {
        self.limit / u32::from(self.precision)
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(PlaceScale::whole(1))
    }
}

/// A window with sub-windows, as it is read.
#[derive(Deserialize)]
struct Parts {
    limit: u32,
    precision: u8,
    length: NonZeroU64,
}

impl TryFrom<Parts> for SubWindows {
    type Error = String;

    fn try_from(Parts { limit, precision, length }: Parts) -> Result<Self, String> {
        Self::from_parts(limit, precision, length)
            .ok_or_else(|| format!("{precision} sub-windows of {length} ns are out of bounds"))
    }
}

impl Facts for SubWindows {
    const NAME: &'static str = "sliding_window";
    const KEEPS_WORDS: bool = false;

    fn heap_bytes(&self) -> HeapBytes {
        HeapBytes::fixed(75 + 4 * u64::from(self.precision))
    }

    fn freeing(&self) -> Freeing {
        Freeing::Window(u64::from(self.precision).saturating_mul(self.length.get()))
    }

    fn reads_as(&self, other: &Self) -> bool {
        (self.precision, self.length) == (other.precision, other.length)
    }

    fn with_requests(&self, requests: u32, _: u32, _: Window) -> Self {
        Self { limit: requests, ..*self }
    }

    fn replaced(&self, limit: u32, window: Window, _: u32) -> Option<Self> {
        Some(Self::new(limit, window, self.precision))
    }

    fn in_microseconds(&self, _: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        let length = self.length.get().checked_next_multiple_of(microseconds::NANOS);
        let sub = length
            .and_then(NonZeroU64::new)
            .and_then(|length| Self::from_parts(self.limit, self.precision, length));
        sub.ok_or(NotShareable::Window)
    }

    /// Counts hits in the sub-window of this number, if it is not past.
    fn insert(&self, state: State, hits: u64, number: u64, _: Timestamp) -> State {
        match state {
            State::Counts(mut counts)
                if counts.number > number && counts.hits.len() == usize::from(self.precision) + 1 =>
            {
                let before = usize::try_from(counts.number - number).unwrap_or(usize::MAX);
                let index = (counts.hits.len() - 1).checked_sub(before);
                if let Some(of_number) = index.and_then(|index| counts.hits.get_mut(index)) {
                    *of_number = saturating_count(*of_number, hits);
                }
                State::Counts(counts)
            }
            state => {
                let start = number.saturating_mul(self.length.get());
                self.add(state, hits, Timestamp::from_nanos(start))
            }
        }
    }

    fn numbers(&self, length: fn(Duration) -> String) -> String {
        let of_part = length(Duration::from_nanos(self.length.get()));
        format!("{} per {} times {of_part}", self.limit, self.precision)
    }
}

#[inline]
fn sum(hits: &[u32]) -> u64 {
    hits.iter().map(|&hits| u64::from(hits)).sum()
}
