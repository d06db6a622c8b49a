//! Counting: what each algorithm admits, how much remains, and when that changes. Pure: no clock, no locks, no IO.
//!
//! An [`Algorithm`] is a rule's parameters; a [`State`] is what one counter remembers, 16 bytes whatever the algorithm.
//! Every question is a function of the two and of the time. What always holds, for every algorithm:
//!
//! - `hits` are admitted exactly when `hits <= remaining(state, now)`;
//! - [`Algorithm::until_admits`] is the least wait after which that is so;
//! - `State::EMPTY` is a counter that was never hit, and every state is as good as empty from `expires` on;
//! - time that goes back is taken as standing still at the state's own time.

mod fixed_window;
mod sliding_window;

pub use fixed_window::FixedWindow;
pub use sliding_window::SlidingWindow;

use crate::limit::{Reset, Timestamp, Window};
use std::time::Duration;

/// What one counter remembers. Each algorithm packs its own meaning into the two words.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State(pub [u64; 2]);

impl State {
    /// Never hit.
    pub const EMPTY: Self = Self([0, 0]);
}

/// An algorithm with its parameters: the whole arithmetic of one limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// Two weighted buckets; the default.
    SlidingWindow(SlidingWindow),
    /// One bucket, aligned to the Unix epoch.
    FixedWindow(FixedWindow),
}

/// Asks the algorithm that is there.
macro_rules! each {
    ($self:expr, $algorithm:ident => $answer:expr) => {
        match $self {
            Algorithm::SlidingWindow($algorithm) => $answer,
            Algorithm::FixedWindow($algorithm) => $answer,
        }
    };
}

impl Algorithm {
    /// The name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SlidingWindow(_) => "sliding_window",
            Self::FixedWindow(_) => "fixed_window",
        }
    }

    /// The length of time over which hits are counted.
    pub const fn window(&self) -> Window {
        match self {
            Self::SlidingWindow(sliding) => sliding.window,
            Self::FixedWindow(fixed) => fixed.window,
        }
    }

    /// Hits counted against the limit now, those beyond it too.
    #[inline]
    pub fn used(&self, state: &State, now: Timestamp) -> u64 {
        each!(self, algorithm => algorithm.used(state, now))
    }

    /// The most hits that would be admitted now.
    #[inline]
    pub fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        each!(self, algorithm => algorithm.remaining(state, now))
    }

    /// Counts the hits, whether they fit or not; saturates at what the state can hold.
    #[inline]
    pub fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        each!(self, algorithm => algorithm.add(state, hits, now))
    }

    /// Takes hits back, newest first; stops at empty.
    pub fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        each!(self, algorithm => algorithm.give_back(state, hits, now))
    }

    /// The least wait after which `hits` would be admitted if nothing else came; zero if they are admitted now.
    pub fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        each!(self, algorithm => algorithm.until_admits(state, hits, now))
    }

    /// The least wait after which the whole limit would be free again if nothing else came.
    #[inline]
    pub fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        each!(self, algorithm => algorithm.until_full(state, now))
    }

    /// From when on the state may be forgotten: it counts nothing any more.
    #[inline]
    pub fn expires(&self, state: &State) -> Timestamp {
        each!(self, algorithm => algorithm.expires(state))
    }

    /// The state under changed parameters, or under another algorithm: what was used stays used, as if taken now.
    pub fn take_over(&self, former: &Self, state: State, now: Timestamp) -> State {
        if self.reads_as(former) {
            return state;
        }
        self.add(State::EMPTY, former.used(&state, now), now)
    }

    /// Whether a state of the other's means the same under this one: only the number admitted differs.
    fn reads_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SlidingWindow(a), Self::SlidingWindow(b)) => a.window == b.window,
            (Self::FixedWindow(a), Self::FixedWindow(b)) => a.window == b.window,
            _ => false,
        }
    }
}
