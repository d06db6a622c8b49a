//! Counting: what each algorithm admits, how much remains, and when that changes. Pure: no clock, no locks, no IO.
//!
//! An [`Algorithm`] is a rule's parameters; a [`State`] is what one counter remembers. Every question is a function of
//! the two and of the time. What always holds, for every algorithm:
//!
//! - hits, one or more, are admitted exactly when `hits <= remaining(state, now)`;
//! - [`Algorithm::until_admits`] is the least wait after which that is so;
//! - [`State::EMPTY`] is a counter that was never hit, and every state is as good as empty from `expires` on;
//! - time that goes back frees nothing: a counter is read no earlier than at the latest time that it remembers, and
//!   buckets, which remember but the moment at which they will be empty, are the fuller the earlier they are read;
//! - counts saturate at `u32::MAX`, which no limit exceeds; nothing overflows, whatever the hits and the time.
//!
//! docs/algorithms.md draws what each of them counts.

mod calendar;
mod fixed_window;
mod leaky_bucket;
mod meter;
mod runs;
mod sliding_log;
mod sliding_window;
mod state;
mod sub_windows;
mod token_bucket;
mod varint;

#[cfg(test)]
mod bounds;
#[cfg(test)]
mod properties;

pub use calendar::{Calendar, Period, Zone};
pub use fixed_window::{FixedWindow, Schedule};
pub use leaky_bucket::{Admission, LeakyBucket, Position, Queue};
pub use meter::Rate;
pub use runs::Runs;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use state::{State, StateError};
pub use sub_windows::{Counts, SubWindows};
pub use token_bucket::{Refill, TokenBucket};

use crate::limit::{Reset, Timestamp};
use std::time::Duration;

/// An algorithm with its parameters: the whole arithmetic of one limit.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Algorithm {
    /// Two weighted buckets; the default.
    SlidingWindow(SlidingWindow),
    /// The same with several sub-windows.
    SubWindows(SubWindows),
    /// Every hit's instant.
    SlidingLog(SlidingLog),
    /// One count, that starts anew when its window ends.
    FixedWindow(FixedWindow),
    /// Tokens that are taken and come back.
    TokenBucket(TokenBucket),
    /// A level that rises and leaks.
    LeakyBucket(LeakyBucket),
}

/// A counter at one moment, and all that an answer says of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    /// What it remembers.
    pub state: State,
    /// See [`Algorithm::expires`].
    pub expires: Timestamp,
    /// See [`Algorithm::remaining`].
    pub remaining: u64,
    /// See [`Algorithm::until_full`].
    pub until_full: Duration,
}

/// What became of hits that asked to be counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Taken {
    /// They fit, and are counted.
    Admitted(Standing),
    /// They do not fit, and nothing is counted.
    Over {
        /// See [`Algorithm::remaining`].
        remaining: u64,
        /// See [`Algorithm::until_admits`].
        until_admits: Reset,
    },
}

/// Asks the algorithm that is there.
macro_rules! each {
    ($self:expr, $algorithm:ident => $answer:expr) => {
        match $self {
            Algorithm::SlidingWindow($algorithm) => $answer,
            Algorithm::SubWindows($algorithm) => $answer,
            Algorithm::SlidingLog($algorithm) => $answer,
            Algorithm::FixedWindow($algorithm) => $answer,
            Algorithm::TokenBucket($algorithm) => $answer,
            Algorithm::LeakyBucket($algorithm) => $answer,
        }
    };
}

/// Asks one algorithm all there is to say of a state. In one place, so that the compiler works out once what the answers
/// share: the number of the window, for one, which takes a division.
macro_rules! standing {
    ($algorithm:expr, $state:expr, $now:expr) => {{
        let state = $state;
        Standing {
            expires: $algorithm.expires(&state),
            remaining: $algorithm.remaining(&state, $now),
            until_full: $algorithm.until_full(&state, $now),
            state,
        }
    }};
}

impl Algorithm {
    /// The name in rule files.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::SlidingWindow(_) | Self::SubWindows(_) => "sliding_window",
            Self::SlidingLog(_) => "sliding_log",
            Self::FixedWindow(_) => "fixed_window",
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
        }
    }

    /// Whether two words are all that its states remember.
    pub const fn keeps_words(&self) -> bool {
        !matches!(self, Self::SubWindows(_) | Self::SlidingLog(_))
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

    /// Counts the hits, whether they fit or not.
    #[inline]
    pub fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        each!(self, algorithm => algorithm.add(state, hits, now))
    }

    /// How the counter stands now.
    #[inline]
    pub fn standing(&self, state: State, now: Timestamp) -> Standing {
        each!(self, algorithm => standing!(algorithm, state, now))
    }

    /// Counts the hits, whether they fit or not.
    #[inline]
    pub fn charge(&self, state: State, hits: u64, now: Timestamp) -> Standing {
        each!(self, algorithm => standing!(algorithm, algorithm.add(state, hits, now), now))
    }

    /// Counts the hits if they fit, of a counter that remembers two words.
    #[inline]
    pub fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        let state = State::Words(words);
        each!(self, algorithm => {
            let remaining = algorithm.remaining(&state, now);
            if hits > remaining {
                Taken::Over { remaining, until_admits: algorithm.until_admits(&state, hits, now) }
            } else {
                Taken::Admitted(standing!(algorithm, algorithm.add(state, hits, now), now))
            }
        })
    }

    /// Takes hits back, newest first; stops at empty.
    pub fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        each!(self, algorithm => algorithm.give_back(state, hits, now))
    }

    /// Of `hits` that were taken at `taken`, those that are known to count still. Rounded down: whoever gives back as
    /// many takes away nobody else's.
    pub fn left_of(&self, state: &State, hits: u64, taken: Timestamp, now: Timestamp) -> u64 {
        // They count at least for as long as they would if no others had come.
        let alone = self.add(State::EMPTY, hits, taken);
        let left = match self {
            Self::FixedWindow(fixed) if !fixed.is_open_since(state, taken, now) => 0,
            // One that has begun to drain may be drained but for a part: the rest would be taken from another's.
            Self::TokenBucket(TokenBucket { refill: Refill::Greedy(rate), .. })
            | Self::LeakyBucket(LeakyBucket { rate, .. }) => rate.whole_hits(meter::dry_at(&alone), now),
            _ => self.used(&alone, now),
        };
        left.min(hits)
    }

    /// The bucket, if hits that do not fit may wait for their turn.
    #[inline]
    pub fn queueing(&self) -> Option<&LeakyBucket> {
        match self {
            Self::LeakyBucket(bucket) if bucket.queue.is_some() => Some(bucket),
            _ => None,
        }
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
        match former.used(&state, now) {
            0 => State::EMPTY,
            used => self.add(State::EMPTY, used, now),
        }
    }

    /// Whether a state of the other's means the same under this one: only the number admitted differs.
    pub fn reads_as(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::SlidingWindow(a), Self::SlidingWindow(b)) => a.window == b.window,
            (Self::SubWindows(a), Self::SubWindows(b)) => a.cuts_as(b),
            (Self::SlidingLog(a), Self::SlidingLog(b)) => a.window == b.window,
            (Self::FixedWindow(a), Self::FixedWindow(b)) => a.schedule == b.schedule,
            (Self::TokenBucket(a), Self::TokenBucket(b)) => a.refill == b.refill,
            (Self::LeakyBucket(a), Self::LeakyBucket(b)) => a.rate == b.rate,
            _ => false,
        }
    }
}

/// When `hits` fit under `limit`, given the wait until at most so many are used; never if they are more than the limit.
#[inline]
fn until_room(limit: u32, hits: u64, until_at_most: impl FnOnce(u64) -> Duration) -> Reset {
    match u64::from(limit).checked_sub(hits) {
        None => Reset::Never,
        Some(target) => Reset::After(until_at_most(target)),
    }
}
