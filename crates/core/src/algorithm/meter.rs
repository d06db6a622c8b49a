//! A meter that hits fill and that drains at an exact rate: the arithmetic of both buckets.
//!
//! The rate is a fraction in lowest terms, `hits` in every `nanos` nanoseconds. Time is counted in parts, `1 / hits` of
//! a nanosecond each, so that draining one hit takes a whole number of them: exactly `nanos`. The state is the moment,
//! in parts since the epoch, at which the meter will have run dry. Nothing is ever rounded but an answer, and never in
//! the client's favour: a steady client neither gains nor loses, however long it stays.
//!
//! Invariant: adding a hit moves that moment by exactly `nanos` parts; waiting moves it not at all.

use super::{
    NotShareable, State, StoredBytes, StoredNumbers,
    microseconds::NANOS,
    stored::{self, PlaceScale},
    taken::{Standing, Taken, until_room},
};
use crate::limit::{Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::{num::NonZeroU32, time::Duration};

/// The longest time in which a full bucket of a shared store drains.
const DRAIN_MICROS_MAX: u128 = 100 * 365 * 86_400 * 1_000_000;

/// Rate at which a meter drains.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Rate {
    /// At least 1. Parts in a nanosecond.
    hits: u64,
    /// At least 1. Parts that one hit takes to drain.
    nanos: u64,
}

impl Rate {
    /// `hits` in every `per`.
    pub const fn new(hits: NonZeroU32, per: Window) -> Self {
        let (hits, nanos) = (hits.get() as u64, per.nanos().get());
        let divisor = greatest_common_divisor(hits, nanos);
        Self { hits: hits / divisor, nanos: nanos / divisor }
    }

    /// `hits` in every `nanos` nanoseconds, in lowest terms; none if either is out of bounds.
    pub fn from_parts(hits: u64, nanos: u64) -> Option<Self> {
        let is_rate = (1..=u64::from(u32::MAX)).contains(&hits) && (1..=Window::NANOS_MAX).contains(&nanos);
        is_rate.then_some(Self { hits, nanos })
    }

    /// The hits and the nanoseconds, in lowest terms.
    pub const fn to_parts(&self) -> (u64, u64) {
        (self.hits, self.nanos)
    }

    /// `7 per 10s`.
    pub(super) fn text(&self, length: fn(Duration) -> String) -> String {
        format!("{} per {}", self.hits, length(Duration::from_nanos(self.nanos)))
    }

    /// `now` in parts. At most 96 bits: 64 of time, 32 of the rate.
    #[inline]
    pub(super) fn parts(&self, now: Timestamp) -> u128 {
        u128::from(now.as_nanos()) * u128::from(self.hits)
    }

    /// So many hits, in parts.
    #[inline]
    pub(super) fn weight(&self, hits: u64) -> u128 {
        u128::from(hits) * u128::from(self.nanos)
    }

    /// Parts that the meter still needs to run dry.
    #[inline]
    pub(super) fn level(&self, dry: u128, now: Timestamp) -> u128 {
        dry.saturating_sub(self.parts(now))
    }

    /// Hits in the meter. Rounded up: a hit counts until its last part has drained.
    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        self.hits_of(self.level(dry_at(state), now))
    }

    #[inline]
    fn hits_of(&self, level: u128) -> u64 {
        match u64::try_from(level) {
            // The common case stays in 64 bits, where division is several times faster.
            Ok(level) => level.div_ceil(self.nanos),
            Err(_) => u64::try_from(level.div_ceil(u128::from(self.nanos))).unwrap_or(u64::MAX),
        }
    }

    /// Hits that are in the meter with all their parts.
    pub(super) fn whole_hits(&self, dry: u128, now: Timestamp) -> u64 {
        u64::try_from(self.level(dry, now) / u128::from(self.nanos)).unwrap_or(u64::MAX)
    }

    /// Counts the hits, one or more, if no more than `capacity` are in the meter then.
    #[inline(always)]
    pub(super) fn take(&self, capacity: u32, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        let dry = dry_of(words);
        let (parts, level) = (self.parts(now), self.level(dry, now));
        let remaining = u64::from(capacity).saturating_sub(self.hits_of(level));
        if hits > remaining {
            let until_admits = until_room(capacity, hits, |target| self.until_at_most_of(dry, target, now));
            return Taken::Over { remaining, until_admits };
        }
        let dry = parts + level + self.weight(hits);
        let dries = self.moment(dry);
        Taken::Admitted(Standing {
            state: words_of(dry),
            expires: dries,
            // Each hit adds its whole weight: that many fewer remain.
            remaining: remaining - hits,
            until_full: dries.since(now),
        })
    }

    /// The meter with more hits in it. It holds up to `u32::MAX`: more cannot matter, as no limit is above that.
    #[inline]
    pub(super) fn add(&self, state: &State, hits: u64, now: Timestamp) -> State {
        if hits == 0 {
            return dry_state(dry_at(state));
        }
        let level = self.level(dry_at(state), now);
        let most = self.weight(u64::from(u32::MAX));
        let added = self.weight(hits.min(u64::from(u32::MAX)));
        // A level above the maximum means that the clock was set back: adding must not lower it.
        dry_state(self.parts(now) + (level + added).min(most).max(level))
    }

    /// The meter with hits taken out; it stops at dry.
    pub(super) fn give_back(&self, state: &State, hits: u64, now: Timestamp) -> State {
        let level = self.level(dry_at(state), now).saturating_sub(self.weight(hits));
        if level == 0 { State::EMPTY } else { dry_state(self.parts(now) + level) }
    }

    /// The least wait after which at most `hits` are in the meter.
    #[inline]
    pub(super) fn until_at_most(&self, state: &State, hits: u64, now: Timestamp) -> Duration {
        self.until_at_most_of(dry_at(state), hits, now)
    }

    #[inline]
    fn until_at_most_of(&self, dry: u128, hits: u64, now: Timestamp) -> Duration {
        self.moment(dry.saturating_sub(self.weight(hits))).since(now)
    }

    /// Time at which the meter is empty.
    pub(super) fn dries(&self, state: &State) -> Timestamp {
        self.moment(dry_at(state))
    }

    /// The first whole nanosecond that is not before so many parts since the epoch.
    #[inline]
    pub(super) fn moment(&self, parts: u128) -> Timestamp {
        let nanos = match u64::try_from(parts) {
            Ok(parts) => parts.div_ceil(self.hits),
            Err(_) => u64::try_from(parts.div_ceil(u128::from(self.hits))).unwrap_or(u64::MAX),
        };
        Timestamp::from_nanos(nanos)
    }
}

/// The moment, in parts since the epoch, at which the meter runs dry. It has at most 98 bits.
#[inline]
pub(super) fn dry_at(state: &State) -> u128 {
    dry_of(state.words())
}

#[inline]
fn dry_of([low, high]: [u64; 2]) -> u128 {
    // The bits beyond what any meter can hold are cut off, so that a state from a damaged file cannot overflow a sum.
    u128::from(high & ((1 << 34) - 1)) << 64 | u128::from(low)
}

#[inline]
pub(super) fn dry_state(dry: u128) -> State {
    State::Words(words_of(dry))
}

#[inline]
fn words_of(dry: u128) -> [u64; 2] {
    [dry as u64, (dry >> 64) as u64]
}

impl Rate {
    /// How a store has moments: as whole microseconds and parts of one, as many as hits in whole microseconds in lowest terms.
    pub(super) fn scale(self) -> PlaceScale {
        let divisor = greatest_common_divisor(self.nanos, self.hits * NANOS);
        PlaceScale { parts: self.hits * NANOS / divisor, part: divisor, ahead: 0 }
    }

    /// Appends the hits, and the microseconds in which they drain.
    pub(super) fn write_signature(self, out: &mut StoredBytes) {
        let PlaceScale { parts, part, .. } = self.scale();
        stored::double(out, parts);
        stored::double(out, self.nanos / part);
    }

    /// The rate of a signature.
    pub(super) fn of_signature(parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        let (hits, nanos) = (parameters.double()?, parameters.nanos()?);
        let divisor = greatest_common_divisor(nanos, hits);
        Self::from_parts(hits.checked_div(divisor)?, nanos.checked_div(divisor)?)
    }

    pub(super) fn read_level(self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let (dry, part) = (numbers.double()?, numbers.double()?);
        self.scale().place_of(dry.into(), part.into()).map(dry_state)
    }

    pub(super) fn write_level(self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Words([low, high]) = state else { return None };
        let (dry, part) = self.scale().to_store(u128::from(*low) | u128::from(*high) << 64)?;
        stored::double(out, dry);
        stored::double(out, part);
        Some(())
    }
}

/// A rate, as it is read.
#[derive(Deserialize)]
struct Parts {
    hits: u64,
    nanos: u64,
}

impl TryFrom<Parts> for Rate {
    type Error = String;

    fn try_from(Parts { hits, nanos }: Parts) -> Result<Self, String> {
        Self::from_parts(hits, nanos)
            .ok_or_else(|| format!("a rate of {hits} hits in {nanos} ns is out of bounds"))
    }
}

/// Whether a full bucket drains in time.
pub(super) fn drains(rate: Rate, size: u32) -> Result<(), NotShareable> {
    let (hits, nanos) = rate.to_parts();
    let micros = u128::from(size) * u128::from(nanos) / u128::from(hits) / u128::from(NANOS);
    if micros <= DRAIN_MICROS_MAX { Ok(()) } else { Err(NotShareable::Bucket) }
}

/// The rate of a bucket. A bucket without room admits nothing, at whatever rate.
pub(super) fn hits_per_window(requests: u32) -> NonZeroU32 {
    NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN)
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(hits: u32, secs: u64) -> Rate {
        Rate::new(NonZeroU32::new(hits).unwrap(), Window::from_secs(secs).unwrap())
    }

    #[test]
    fn a_rate_is_kept_in_lowest_terms() {
        assert_eq!(rate(100, 1), Rate { hits: 1, nanos: 10_000_000 });
        assert_eq!(rate(7, 10), Rate { hits: 7, nanos: 10_000_000_000 });
        assert_eq!(rate(60, 60), rate(1, 1));
    }

    /// A third of a second is no whole number of nanoseconds: added one by one, 3 hits must still fill a second to the
    /// nanosecond, and after a million of them nothing may have been gained or lost.
    #[test]
    fn three_a_second_are_three_a_second_for_ever() {
        let rate = rate(3, 1);
        let at = |secs: u64| Timestamp::from_millis(1_700_000_000_000 + 1_000 * secs);
        let mut state = State::EMPTY;
        for second in 0..300_000 {
            assert_eq!(rate.used(&state, at(second)), 0);
            for hit in 1..=3 {
                state = rate.add(&state, 1, at(second));
                assert_eq!(rate.used(&state, at(second)), hit);
            }
            assert_eq!(rate.dries(&state), at(second + 1));
        }
    }

    /// field.md, the decaying counter: a meter that floors what has drained and starts anew with every request never drains for a client
    /// that is a little faster than one hit drains.
    #[test]
    fn a_steady_client_does_not_stop_the_draining() {
        let (rate, start) = (rate(1, 1), 1_700_000_000_000);
        let mut state = rate.add(&State::EMPTY, 10, Timestamp::from_millis(start));
        for visit in 1..=1_000 {
            let now = Timestamp::from_millis(start + 900 * visit);
            let tenths = 100 + 10 * (visit - 1) - 9 * visit;
            assert_eq!(rate.used(&state, now), tenths.div_ceil(10));
            state = rate.add(&state, 1, now);
        }
    }

    #[test]
    fn the_fullest_and_finest_meter_does_not_overflow() {
        let rate = Rate::new(NonZeroU32::MAX, Window::from_nanos(Window::NANOS_MAX).unwrap());
        let now = Timestamp::from_nanos(u64::MAX);
        let state = rate.add(&State::EMPTY, u64::MAX, now);
        assert_eq!(rate.used(&state, now), u64::from(u32::MAX));
        let state = rate.add(&state, u64::MAX, now);
        assert_eq!(rate.used(&state, now), u64::from(u32::MAX));
        assert!(rate.used(&State::Words([u64::MAX; 2]), Timestamp::EPOCH) > u64::from(u32::MAX));
        assert_eq!(rate.dries(&state), now);
        assert_eq!(rate.give_back(&state, u64::MAX, now), State::EMPTY);
    }
}
