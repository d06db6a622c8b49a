//! One counter, in 24 bytes. Most states are two words; no byte is spent on distinguishing them from the others.

use crate::{
    algorithm::{Algorithm, Reserved, Slots, State, StateView},
    limit::{LimitId, Timestamp},
};
use std::num::NonZeroU32;

/// One counter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counter(Kept);

/// The compiler distinguishes the variants by the label of the first, which is never zero (niche).
#[derive(Clone, PartialEq, Eq, Debug)]
enum Kept {
    Words { words: [u64; 2], label: Label, expires_secs: u32 },
    Boxed { state: Box<State>, limit: LimitId, expires_secs: u32 },
}

/// A limit's number and one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Label(NonZeroU32);

impl Label {
    #[inline]
    fn new(limit: LimitId) -> Self {
        Self(NonZeroU32::MIN.saturating_add(limit.0))
    }

    #[inline]
    fn limit(self) -> LimitId {
        LimitId(self.0.get() - 1)
    }
}

impl Counter {
    /// A counter that may be dropped from `expires` on.
    #[inline]
    pub fn new(state: State, limit: LimitId, expires: Timestamp) -> Self {
        let expires_secs = whole_seconds(expires);
        match state {
            State::Words(words) => {
                state.discard();
                Self(Kept::Words { words, label: Label::new(limit), expires_secs })
            }
            state => Self(Kept::Boxed { state: Box::new(state), limit, expires_secs }),
        }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> StateView<'_> {
        match &self.0 {
            Kept::Words { words, .. } => StateView::of_words(*words),
            Kept::Boxed { state, .. } => StateView::Borrowed(state),
        }
    }

    /// The state, if it is two words.
    #[inline]
    pub fn words(&self) -> Option<[u64; 2]> {
        match self.0 {
            Kept::Words { words, .. } => Some(words),
            Kept::Boxed { .. } => None,
        }
    }

    /// Its slots of requests in flight, if its limit has any.
    #[inline]
    pub fn slots(&self) -> Option<&Slots> {
        match &self.0 {
            Kept::Words { .. } => None,
            Kept::Boxed { state, .. } => state.slots(),
        }
    }

    /// Its reservations, if it has any.
    #[inline]
    pub fn reserved(&self) -> Option<&Reserved> {
        match &self.0 {
            Kept::Words { .. } => None,
            Kept::Boxed { state, .. } => state.reserved(),
        }
    }

    /// The limit under which it was counted: what the state means.
    #[inline]
    pub fn limit(&self) -> LimitId {
        match self.0 {
            Kept::Words { label, .. } => label.limit(),
            Kept::Boxed { limit, .. } => limit,
        }
    }

    /// Takes the state out, to be changed and set again; leaves the empty state.
    #[inline]
    pub fn take_state(&mut self) -> State {
        match &mut self.0 {
            Kept::Words { words, .. } => State::Words(std::mem::take(words)),
            Kept::Boxed { state, .. } => std::mem::take(state),
        }
    }

    /// Changes the state, which stays under the same limit. `algorithm` is that limit's.
    pub fn change<T>(&mut self, algorithm: &Algorithm, change: impl FnOnce(State) -> (State, T)) -> T {
        let limit = self.limit();
        let (state, result) = change(self.take_state());
        let expires = algorithm.expires(&state);
        self.set(state, limit, expires);
        result
    }

    /// Notes hits that were denied, if it is shared with clients of quota.
    pub fn note_denied(&mut self, hits: u64) {
        if let Kept::Boxed { state, .. } = &mut self.0
            && let State::Leased(leased) = &mut **state
        {
            leased.note_demand(hits);
        }
    }

    /// Makes it a counter of this state, limit and expiry. Reuses its box, if it has one.
    #[inline(always)]
    pub fn set(&mut self, new: State, limit: LimitId, expires: Timestamp) {
        if let (State::Words(new_words), Kept::Words { words, label, expires_secs }) = (&new, &mut self.0) {
            (*words, *label, *expires_secs) = (*new_words, Label::new(limit), whole_seconds(expires));
            new.discard();
        } else {
            self.set_boxed(new, limit, expires);
        }
    }

    /// Makes it a counter of a state of two words.
    #[inline(always)]
    pub fn set_words(&mut self, new: [u64; 2], limit: LimitId, expires: Timestamp) {
        if let Kept::Words { words, label, expires_secs } = &mut self.0 {
            (*words, *label, *expires_secs) = (new, Label::new(limit), whole_seconds(expires));
        } else {
            self.set_boxed(State::Words(new), limit, expires);
        }
    }

    /// Makes it a counter of a state that was in a box, or will be.
    fn set_boxed(&mut self, new: State, limit: LimitId, expires: Timestamp) {
        match (&mut self.0, new) {
            (Kept::Boxed { state, limit: of_state, expires_secs }, new) if new.is_boxed() => {
                **state = new;
                *of_state = limit;
                *expires_secs = whole_seconds(expires);
            }
            (_, new) => *self = Self::new(new, limit, expires),
        }
    }

    /// Whether it has not expired.
    pub(super) fn is_live(&self, now_secs: u64) -> bool {
        let (Kept::Words { expires_secs, .. } | Kept::Boxed { expires_secs, .. }) = self.0;
        u64::from(expires_secs) > now_secs || expires_secs == u32::MAX
    }
}

/// An empty counter, under the first limit there is.
impl Default for Counter {
    fn default() -> Self {
        Self::new(State::EMPTY, LimitId(0), Timestamp::EPOCH)
    }
}

/// Whole seconds since the epoch, rounded up. Good until the year 2106; what would expire later stays.
#[inline]
fn whole_seconds(time: Timestamp) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        algorithm::{Algorithm, SlidingLog},
        limit::Window,
    };

    fn log() -> State {
        let log = SlidingLog { limit: 5, window: Window::from_secs(10).unwrap() };
        Algorithm::SlidingLog(log).add(State::EMPTY, 3, Timestamp::from_millis(1_000))
    }

    #[test]
    fn a_counter_takes_twenty_four_bytes() {
        assert_eq!(size_of::<Counter>(), 24);
    }

    #[test]
    fn a_counter_keeps_any_state_under_any_limit() {
        for state in [State::EMPTY, State::Words([u64::MAX; 2]), log()] {
            for limit in [LimitId(0), LimitId(7), LimitId(u32::MAX - 1)] {
                let expires = Timestamp::from_millis(10_500);
                let mut counter = Counter::new(state.clone(), limit, expires);
                assert_eq!((counter.state().into_owned(), counter.limit()), (state.clone(), limit));
                assert_eq!(counter.take_state(), state);
                assert_eq!(counter.state().into_owned(), State::EMPTY);
                for other in [State::Words([1, 2]), log()] {
                    counter.set(other.clone(), LimitId(3), expires);
                    assert_eq!(counter, Counter::new(other, LimitId(3), expires));
                }
            }
        }
    }
}
