//! Counting: what each algorithm admits, how much remains, and when that changes. Pure: no clock, no locks, no IO.
//!
//! An [`Algorithm`] is a rule's parameters; a [`State`] is that of one counter. Every method is a function of
//! the two and of the time. Invariants of every algorithm:
//!
//! - hits, one or more, are admitted exactly when `hits <= remaining(state, now)`;
//! - [`Algorithm::until_admits`] is the least wait after which that is so;
//! - [`State::EMPTY`] is a counter without hits, and every state is equivalent to it from `expires` on;
//! - a clock that is set back frees nothing: a counter is read no earlier than at the latest time in its state, and the
//!   state of a bucket is the time at which it will be empty, so that it is the fuller the earlier it is read;
//! - counts saturate at `u32::MAX`, which no limit exceeds; nothing overflows, whatever the hits and the time.
//!
//! docs/algorithms.md draws what each algorithm counts.

/// Every algorithm: calls the macro with the arguments and the names of all of them.
macro_rules! for_all {
    ($call:ident!($($arguments:tt)*)) => {
        $call! {
            ($($arguments)*)
            SlidingWindow SubWindows SlidingLog FixedWindow TokenBucket LeakyBucket Concurrency Ban
        }
    };
}

/// Dispatches to the algorithm.
macro_rules! each {
    (($self:expr, $algorithm:ident => $answer:expr) $($name:ident)*) => {
        match $self {
            $($crate::algorithm::Algorithm::$name($algorithm) => $answer,)*
        }
    };
    ($self:expr, $algorithm:ident => $answer:expr) => {
        for_all!(each!($self, $algorithm => $answer))
    };
}

/// Dispatches to the algorithm, and returns one of the same kind.
macro_rules! map_each {
    (($self:expr, $algorithm:ident => $answer:expr) $($name:ident)*) => {
        match $self {
            $($crate::algorithm::Algorithm::$name($algorithm) => $crate::algorithm::Algorithm::$name($answer),)*
        }
    };
    ($self:expr, $algorithm:ident => $answer:expr) => {
        for_all!(map_each!($self, $algorithm => $answer))
    };
}

/// Whether the states of two algorithms mean the same.
macro_rules! reads_as {
    (($one:expr, $other:expr) $($name:ident)*) => {
        match ($one, $other) {
            $((Algorithm::$name(one), Algorithm::$name(other)) => one.reads_as(other),)*
            _ => false,
        }
    };
}

mod anchor;
mod assigned;
mod ban;
mod calendar;
mod concurrency;
mod counts;
mod dispatch;
mod facts;
mod fixed_window;
mod freeing;
mod kinds;
mod leaky_bucket;
mod leased;
mod memory;
mod meter;
mod microseconds;
mod numbers;
mod period;
mod reserved;
mod runs;
mod set_back;
mod sliding_log;
mod sliding_window;
mod slots;
mod state;
mod stored;
mod sub_windows;
mod taken;
mod timetable;
mod token_bucket;

#[cfg(test)]
mod bounds;
#[cfg(test)]
pub(crate) mod properties;

pub use anchor::{Anchor, DAY_NAMES};
pub(crate) use anchor::{minute_of_day, weekday};
pub use assigned::Assigned;
pub use ban::Ban;
pub use calendar::{Calendar, Zone};
pub use concurrency::{Concurrency, HOLD_MAX, Released, SLOT_SIGNATURE};
pub use counts::Counts;
pub use fixed_window::{FixedWindow, Schedule};
pub use freeing::Freeing;
pub use leaky_bucket::{Admission, LeakyBucket, Position, Queue};
pub use memory::HeapBytes;
pub use meter::Rate;
pub use microseconds::NotShareable;
pub use numbers::{StoredNumbers, whole_double};
pub use period::Period;
pub use reserved::{Ended, RESERVATIONS_MAX};
pub use runs::{Run, Runs};
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use slots::{Slot, Slots};
pub use state::{Lease, Leased, Reservation, Reserved, State, StateError, StateView};
pub use stored::StoredBytes;
pub use sub_windows::SubWindows;
pub use taken::{Standing, Taken};
pub use timetable::{Hours, Overlap, Timetable};
pub use token_bucket::{Refill, TokenBucket};

use crate::limit::{Reset, Timestamp};
use facts::Facts;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// An algorithm with its parameters: the whole arithmetic of one limit.
///
/// Snapshots and exports have it as serialized: names of variants and fields are those of format 1, and never change. What is read is as
/// valid as what a rule file has. Windows and lengths are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// Two weighted buckets; the default.
    SlidingWindow(SlidingWindow),
    /// The same with several sub-windows.
    SubWindows(SubWindows),
    /// The time of every hit.
    SlidingLog(SlidingLog),
    /// One count, reset at the end of its window.
    FixedWindow(FixedWindow),
    /// Tokens that hits take, refilled at a rate.
    TokenBucket(TokenBucket),
    /// A level that hits raise, and that leaks.
    LeakyBucket(LeakyBucket),
    /// Slots that are held until they are released.
    Concurrency(Concurrency),
    /// Denials of a limit, and the bans that they begin.
    Ban(Ban),
}

/// The state with outstanding credits as hits of this moment, and with the estimates of open reservations.
macro_rules! seen {
    ($self:expr, $state:expr, $now:expr) => {
        match $state {
            State::Leased(leased) => leased.seen($self, $now),
            State::Reserved(reserved) => reserved.seen($self, $now),
            state => std::borrow::Cow::Borrowed(state),
        }
    };
}

/// All numbers of one state, in one place: the compiler then computes once what they share, such as the number of the window, which takes a
/// division.
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
    /// Hits counted against the limit now, those beyond it too.
    #[inline]
    pub fn used(&self, state: &State, now: Timestamp) -> u64 {
        if !state.is_plain() {
            return self.seen(state, now, Self::used);
        }
        each!(self, algorithm => algorithm.used(state, now))
    }

    /// The most hits that would be admitted now.
    #[inline]
    pub fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        if !state.is_plain() {
            return self.seen(state, now, Self::remaining);
        }
        each!(self, algorithm => algorithm.remaining(state, now))
    }

    /// Counts the hits, whether they fit or not.
    #[inline]
    pub fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        match state {
            State::Leased(leased) => self.add_leased(*leased, hits, now),
            state @ State::Reserved(_) => self.add_reserved(state, hits, now),
            state => each!(self, algorithm => algorithm.add(state, hits, now)),
        }
    }

    /// The numbers of the counter now.
    #[inline]
    pub fn standing(&self, state: State, now: Timestamp) -> Standing {
        if let State::Leased(_) | State::Reserved(_) = state {
            return standing!(self, state, now);
        }
        each!(self, algorithm => standing!(algorithm, state, now))
    }

    /// Counts the hits, whether they fit or not.
    #[inline]
    pub fn charge(&self, state: State, hits: u64, now: Timestamp) -> Standing {
        if let State::Leased(_) | State::Reserved(_) = state {
            return self.standing(self.add(state, hits, now), now);
        }
        if let Self::SlidingWindow(sliding) = self {
            let words = state.words();
            state.discard();
            let Standing { state, expires, remaining, until_full } = sliding.charge(words, hits, now);
            return Standing { state: State::Words(state), expires, remaining, until_full };
        }
        each!(self, algorithm => standing!(algorithm, algorithm.add(state, hits, now), now))
    }

    /// Counts the hits, one or more, if they fit; none if states of this algorithm are not two words.
    #[inline(always)]
    pub fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Option<Taken> {
        match self {
            Self::SlidingWindow(sliding) => Some(sliding.take(words, hits, now)),
            Self::FixedWindow(fixed) => Some(fixed.take(words, hits, now)),
            Self::TokenBucket(bucket) => Some(bucket.take(words, hits, now)),
            Self::LeakyBucket(bucket) => Some(bucket.take(words, hits, now)),
            Self::SubWindows(_) | Self::SlidingLog(_) | Self::Concurrency(_) | Self::Ban(_) => None,
        }
    }

    /// Takes hits back, newest first; stops at empty.
    pub fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        match state {
            State::Leased(leased) => self.give_back_leased(*leased, hits, now),
            state @ State::Reserved(_) => self.give_back_reserved(state, hits, now),
            state => each!(self, algorithm => algorithm.give_back(state, hits, now)),
        }
    }

    /// The part of `hits`, taken at `taken`, that is known to count still. Rounded down: giving it back never takes away hits of others.
    pub fn left_of(&self, state: &State, hits: u64, taken: Timestamp, now: Timestamp) -> u64 {
        // They count at least for as long as they would alone.
        let alone = self.add(State::EMPTY, hits, taken);
        let left = match self {
            Self::FixedWindow(fixed) if !fixed.is_open_since(&*seen!(self, state, now), taken, now) => 0,
            // A hit that has begun to drain is not counted: giving it back would take the rest from another.
            Self::TokenBucket(TokenBucket { refill: Refill::Greedy(rate), .. })
            | Self::LeakyBucket(LeakyBucket { rate, .. }) => rate.whole_hits(meter::dry_at(&alone), now),
            _ => self.used(&alone, now),
        };
        left.min(hits)
    }

    /// Whether it counts the denials of a limit, and bans.
    pub fn is_ban(&self) -> bool {
        matches!(self, Self::Ban(_))
    }

    /// The bucket, if hits that do not fit may be queued.
    #[inline]
    pub fn queueing(&self) -> Option<&LeakyBucket> {
        match self {
            Self::LeakyBucket(bucket) if bucket.queue.is_some() => Some(bucket),
            _ => None,
        }
    }

    /// The bounds of its queue, if it has one: of hits, or of requests that wait for slots.
    pub fn queue(&self) -> Option<Queue> {
        match self {
            Self::LeakyBucket(bucket) => bucket.queue,
            _ => self.slot_queue(),
        }
    }

    /// The queue of requests that wait for slots, if there is one.
    #[inline]
    pub fn slot_queue(&self) -> Option<Queue> {
        if let Self::Concurrency(concurrency) = self { concurrency.queue } else { None }
    }

    /// The least wait after which `hits` would be admitted if no other hits arrived; zero if they are admitted now.
    pub fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        if !state.is_plain() {
            return self.until_admits_not_plain(state, hits, now);
        }
        each!(self, algorithm => algorithm.until_admits(state, hits, now))
    }

    /// As [`Self::until_admits`], for a request that also gives back `given` hits of the counter.
    pub fn until_admits_after(&self, state: &State, (given, hits): (u64, u64), now: Timestamp) -> Reset {
        match state {
            _ if given == 0 => self.until_admits(state, hits, now),
            State::Reserved(reserved) => self.until_admits_reserved_after(reserved, (given, hits), now),
            state => self.until_admits(&self.give_back(state.clone(), given, now), hits, now),
        }
    }

    /// The least wait after which the whole limit would be free again if no other hits arrived.
    #[inline]
    pub fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        if !state.is_plain() {
            return self.until_full_not_plain(state, now);
        }
        each!(self, algorithm => algorithm.until_full(state, now))
    }

    /// Reads a state with leases or reservations as hits of this moment.
    #[cold]
    #[inline(never)]
    fn seen<R>(&self, state: &State, now: Timestamp, read: impl FnOnce(&Self, &State, Timestamp) -> R) -> R {
        let state = seen!(self, state, now);
        read(self, &state, now)
    }

    #[cold]
    #[inline(never)]
    fn until_admits_not_plain(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        match state {
            State::Reserved(reserved) => self.until_admits_reserved(reserved, hits, now),
            State::Leased(leased) => leased.until_admits(self, hits, now),
            state => self.seen(state, now, |algorithm, state, now| algorithm.until_admits(state, hits, now)),
        }
    }

    #[cold]
    #[inline(never)]
    fn until_full_not_plain(&self, state: &State, now: Timestamp) -> Duration {
        match state {
            State::Reserved(reserved) => {
                reserved.least_wait(self, now, |state, at| self.until_full(state, at))
            }
            state => self.seen(state, now, Self::until_full),
        }
    }

    /// The time from which on the state is equivalent to the empty state, and may be dropped.
    #[inline]
    pub fn expires(&self, state: &State) -> Timestamp {
        if let State::Leased(leased) = state {
            return leased.expires(self);
        }
        if let State::Reserved(reserved) = state {
            return reserved.expires(self);
        }
        each!(self, algorithm => algorithm.expires(state))
    }

    /// The state without leases: outstanding credits are hits of this moment.
    pub fn without_leases(&self, state: State, now: Timestamp) -> State {
        match state {
            State::Leased(leased) => leased.seen(self, now).into_owned(),
            state => state,
        }
    }

    /// The state under changed parameters, or under another algorithm: hits that are used stay used, as if taken now, but at most `most` of
    /// them. A bucket could otherwise take years to drain the hits of a larger limit. Outstanding credits are not counted in this, as they
    /// end soon.
    pub fn take_over(&self, former: &Self, state: State, most: u64, now: Timestamp) -> State {
        if self.reads_as(former) && (most == u64::MAX || self.used(&state, now) <= most) {
            return state;
        }
        if let State::Leased(leased) = state {
            return leased.take_over(self, former, most, now).into_state(self, now);
        }
        if let State::Reserved(reserved) = state {
            return reserved.take_over(self, former, most, now);
        }
        match former.used(&state, now).min(most) {
            0 => State::EMPTY,
            // Whether requests that another algorithm counted are in flight is unknown; and hits are no denials.
            _ if !self.counts_hits() => State::EMPTY,
            used => self.add(State::EMPTY, used, now),
        }
    }

    /// Whether a state of the other algorithm means the same under this one: only the number admitted differs.
    pub fn reads_as(&self, other: &Self) -> bool {
        for_all!(reads_as!(self, other))
    }
}
