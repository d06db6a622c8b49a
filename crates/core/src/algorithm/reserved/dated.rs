//! Hits at an earlier time: where they are in a state, and how more are inserted there.

use crate::{
    algorithm::{Algorithm, Freeing, Rate, State, facts::Facts, meter},
    limit::{Timestamp, Window},
};
use std::num::NonZeroU32;

/// A bucket as an amount that drains evenly by a clock of its own: both are in the same parts.
#[derive(Clone, Copy)]
pub(super) enum Drain {
    /// At a rate: in the parts of [`Rate`].
    Greedy(Rate),
    /// By intervals: in hits. The clock shows the hits drained since the epoch.
    Intervals { tokens: NonZeroU32, interval: Window },
}

impl Drain {
    /// The moment at which the bucket runs dry; 0 if it is.
    pub(super) fn dry(self, state: &State) -> u128 {
        match (self, state.words()) {
            (Self::Greedy(_), _) => meter::dry_at(state),
            (Self::Intervals { .. }, [_, 0]) => 0,
            (Self::Intervals { tokens, .. }, [number, missing]) => {
                u128::from(number) * u128::from(tokens.get()) + u128::from(missing as u32)
            }
        }
    }

    pub(super) fn clock(self, now: Timestamp) -> u128 {
        match self {
            Self::Greedy(rate) => rate.parts(now),
            Self::Intervals { tokens, interval } => {
                u128::from(now.as_nanos() / interval.nanos()) * u128::from(tokens.get())
            }
        }
    }

    /// A bucket holds up to `u32::MAX` hits: more cannot matter, as no limit is above that.
    pub(super) fn weight(self, hits: u64) -> u128 {
        let hits = hits.min(u64::from(u32::MAX));
        match self {
            Self::Greedy(rate) => rate.weight(hits),
            Self::Intervals { .. } => hits.into(),
        }
    }

    /// The amount in the bucket.
    pub(super) fn level(self, state: &State, now: Timestamp) -> u128 {
        self.dry(state).saturating_sub(self.clock(now))
    }

    /// The bucket if it does not run dry before `through`.
    pub(super) fn latest(self, state: State, through: u128, now: Timestamp) -> State {
        let clock = self.clock(now);
        let through = through.min(clock.saturating_add(self.weight(u64::MAX)));
        if through <= self.dry(&state) || through <= clock {
            return state;
        }
        match self {
            Self::Greedy(_) => meter::dry_state(through),
            Self::Intervals { interval, .. } => {
                State::Words([now.as_nanos() / interval.nanos(), (through - clock) as u64])
            }
        }
    }
}

impl Algorithm {
    /// The bucket, if it is one.
    pub(super) fn drain(&self) -> Option<Drain> {
        match self.freeing() {
            Freeing::Evenly(rate) => Some(Drain::Greedy(rate)),
            Freeing::Intervals { tokens, interval } => Some(Drain::Intervals { tokens, interval }),
            Freeing::Window(_) | Freeing::Otherwise(_) => None,
        }
    }

    /// The place of hits that were just added to a state of a window or a log: the end of their window, the number of their (sub-)window,
    /// or their instant. For a window from the first hit, it is the end of the window that they would open alone.
    pub(super) fn place_at(&self, state: &State, now: Timestamp) -> u128 {
        if let Some(last) = self.last_from_first_hit(now) {
            return last.into();
        }
        match state {
            State::Words([number, _]) => (*number).into(),
            State::Counts(counts) => counts.number().into(),
            State::Log(runs) => runs.newest().into(),
            State::Slots(_) | State::Leased(_) | State::Reserved(_) => 0,
        }
    }

    /// Whether a place is in the window of a state, or in a later window; false only for windows from the first hit.
    pub(super) fn is_in_window(&self, place: u128, state: &State) -> bool {
        !self.is_from_first_hit() || place >= u128::from(state.words()[0])
    }

    /// The state; empty if its window from the first hit is earlier than that of `other`.
    pub(super) fn of_window(&self, state: State, other: &State) -> State {
        if self.is_from_first_hit() && state.words()[0] < other.words()[0] { State::EMPTY } else { state }
    }

    /// Counts hits at a place of a window or a log, as if they had been added there in the order of time. Leaves out hits that no later
    /// state would count, and in a log the expired hits.
    pub(super) fn insert(&self, state: State, hits: u64, place: u128, now: Timestamp) -> State {
        let place = u64::try_from(place).unwrap_or(u64::MAX);
        each!(self, algorithm => Facts::insert(algorithm, state, hits, place, now))
    }
}
