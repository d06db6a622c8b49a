//! Constructors of algorithms, and questions of kind.

use super::{
    Algorithm, Calendar, Concurrency, FixedWindow, LeakyBucket, Queue, Rate, Schedule, SlidingWindow,
    SubWindows, TokenBucket, meter,
};
use crate::limit::{Timestamp, Window};

impl Algorithm {
    /// A sliding window with `precision` sub-windows. One takes two words, several take a list.
    pub fn sliding_window(limit: u32, window: Window, precision: u8) -> Self {
        match precision {
            0 | 1 => Self::SlidingWindow(SlidingWindow { limit, window }),
            precision => Self::SubWindows(SubWindows::new(limit, window, precision)),
        }
    }

    /// A bucket of `size` tokens that gets back `requests` of them in every window, one by one.
    pub fn token_bucket(size: u32, requests: u32, window: Window) -> Self {
        Self::TokenBucket(TokenBucket::greedy(size, meter::hits_per_window(requests), window))
    }

    /// A bucket that leaks `requests` in every window, with room for `burst`.
    pub fn leaky_bucket(burst: u32, requests: u32, window: Window, queue: Option<Queue>) -> Self {
        let rate = Rate::new(meter::hits_per_window(requests), window);
        Self::LeakyBucket(LeakyBucket { burst, rate, queue })
    }

    /// Whether hits are in flight until they are released.
    #[inline]
    pub const fn holds_slots(&self) -> bool {
        matches!(self, Self::Concurrency(_))
    }

    /// The limit of requests in flight, if it is one.
    #[inline]
    pub const fn concurrency(&self) -> Option<&Concurrency> {
        if let Self::Concurrency(concurrency) = self { Some(concurrency) } else { None }
    }

    /// A fixed window whose ends are those of the schedule.
    pub fn fixed_window(limit: u32, schedule: Schedule) -> Self {
        Self::FixedWindow(FixedWindow { limit, schedule })
    }

    /// The fixed window, if it is one: all of its hits cease to count at its end.
    #[inline]
    pub const fn fixed(&self) -> Option<&FixedWindow> {
        if let Self::FixedWindow(fixed) = self { Some(fixed) } else { None }
    }

    /// The calendar that its windows follow.
    pub const fn calendar(&self) -> Option<&Calendar> {
        match self {
            Self::FixedWindow(FixedWindow { schedule: Schedule::Calendar(calendar), .. }) => Some(calendar),
            _ => None,
        }
    }

    /// Whether windows end at every multiple of their length since the Unix epoch.
    pub fn is_on_the_clock(&self) -> bool {
        matches!(self, Self::FixedWindow(FixedWindow { schedule: Schedule::Clock(_), .. }))
    }

    /// Whether windows begin with their first hit.
    pub fn is_from_first_hit(&self) -> bool {
        matches!(self, Self::FixedWindow(FixedWindow { schedule: Schedule::FirstHit(_), .. }))
    }

    /// The last nanosecond of the window that a hit would open now, if windows begin with their first hit.
    pub(super) fn last_from_first_hit(&self, now: Timestamp) -> Option<u64> {
        match self {
            Self::FixedWindow(fixed) if self.is_from_first_hit() => Some(fixed.schedule.last(now)),
            _ => None,
        }
    }
}
