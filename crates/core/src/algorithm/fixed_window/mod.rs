//! Fixed windows: never more than the limit in one window; the count is reset at its end.
//!
//! A [`Schedule`] determines the end of a window, and the state contains that end: only the first hit of a window evaluates the
//! schedule, and no window moves while it counts. Two bursts around an end can add up to twice the limit in a window's
//! length; [`SlidingWindow`](super::SlidingWindow) avoids that.

use super::{
    Anchor, Freeing, NotShareable, Period, Standing, State, StoredBytes, StoredNumbers, Taken,
    calendar::{Calendar, Zone},
    facts::Facts,
    microseconds,
    stored::{self, PlaceScale, Stored},
};
use crate::limit::{Reset, Timestamp, Unit, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// At most `limit` hits in each window.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct FixedWindow {
    /// Hits admitted in one window.
    pub limit: u32,
    /// The ends of windows.
    pub schedule: Schedule,
}

/// The ends of windows.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// At every multiple of the length since the Unix epoch: windows of 10 s end at :00, :10, :20.
    Clock(Window),
    /// This long after the first hit.
    FirstHit(Window),
    /// With the day, week, month or year of a time zone.
    Calendar(Calendar),
}

impl Schedule {
    /// The last nanosecond of the window that a hit opens now. Windows that would outlast time end with it.
    pub(super) fn last(&self, now: Timestamp) -> u64 {
        let now = now.as_nanos();
        match self {
            Self::Clock(window) => {
                let start = now - now % window.nanos();
                start.saturating_add(window.nanos().get() - 1)
            }
            Self::FirstHit(window) => now.saturating_add(window.nanos().get() - 1),
            Self::Calendar(calendar) => calendar.last(now),
        }
    }
}

/// One counter: a window and the hits in it.
#[derive(Clone, Copy)]
struct Count {
    /// The window's last nanosecond; meaningless without hits.
    last: u64,
    /// Saturates: more cannot matter, as no limit is above `u32::MAX`.
    hits: u32,
}

impl Count {
    /// The count as of `now`. At a time before the window, its hits count as in it.
    #[inline]
    fn read(state: &State, now: Timestamp) -> Self {
        Self::of_words(state.words(), now)
    }

    #[inline]
    fn of_words([last, hits]: [u64; 2], now: Timestamp) -> Self {
        Self { last, hits: if now.as_nanos() <= last { hits as u32 } else { 0 } }
    }

    #[inline]
    fn pack(self) -> State {
        if self.hits == 0 { State::EMPTY } else { State::Words([self.last, u64::from(self.hits)]) }
    }

    fn until_ends(self, now: Timestamp) -> Duration {
        end(self.last).since(now)
    }
}

/// The moment after the last nanosecond.
fn end(last: u64) -> Timestamp {
    Timestamp::from_nanos(last.saturating_add(1))
}

impl FixedWindow {
    /// At most `limit` hits in windows aligned to the Unix epoch.
    pub const fn on_the_clock(limit: u32, window: Window) -> Self {
        Self { limit, schedule: Schedule::Clock(window) }
    }

    /// Time until the end of the counter's window, whether it has hits or not.
    pub fn until_window_ends(&self, state: &State, now: Timestamp) -> Duration {
        let count = Count::read(state, now);
        if count.hits > 0 { count.until_ends(now) } else { end(self.schedule.last(now)).since(now) }
    }

    /// Whether hits taken at `taken` were taken in the window that is open now.
    pub(super) fn is_open_since(&self, state: &State, taken: Timestamp, now: Timestamp) -> bool {
        let count = Count::read(state, now);
        count.hits > 0
            && match self.schedule {
                // A window begins with its first hit, which may be before these.
                Schedule::FirstHit(window) => {
                    count.last.saturating_sub(taken.as_nanos()) < window.nanos().get()
                }
                Schedule::Clock(_) | Schedule::Calendar(_) => self.schedule.last(taken) == count.last,
            }
    }

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(Count::read(state, now).hits)
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.limit.saturating_sub(Count::read(state, now).hits))
    }

    /// See [`Algorithm::take`](super::Algorithm::take).
    #[inline(always)]
    pub(super) fn take(&self, words: [u64; 2], hits: u64, now: Timestamp) -> Taken {
        let mut count = Count::of_words(words, now);
        let remaining = u64::from(self.limit.saturating_sub(count.hits));
        if hits > remaining {
            return Taken::Over { remaining, until_admits: self.until_admits_of(count, hits, now) };
        }
        if count.hits == 0 {
            count.last = self.schedule.last(now);
        }
        Taken::Admitted(Standing {
            state: [count.last, u64::from(count.hits) + hits],
            expires: end(count.last),
            remaining: remaining - hits,
            until_full: count.until_ends(now),
        })
    }

    #[inline]
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut count = Count::read(&state, now);
        state.discard();
        if count.hits == 0 {
            count.last = self.schedule.last(now);
        }
        count.hits = saturating_count(count.hits, hits);
        count.pack()
    }

    pub(super) fn give_back(&self, state: State, hits: u64, now: Timestamp) -> State {
        let mut count = Count::read(&state, now);
        count.hits = u64::from(count.hits).saturating_sub(hits) as u32;
        count.pack()
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        self.until_admits_of(Count::read(state, now), hits, now)
    }

    fn until_admits_of(&self, count: Count, hits: u64, now: Timestamp) -> Reset {
        if hits > u64::from(self.limit) {
            Reset::Never
        } else if hits <= u64::from(self.limit.saturating_sub(count.hits)) {
            Reset::NOW
        } else {
            Reset::After(count.until_ends(now))
        }
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        let count = Count::read(state, now);
        if count.hits == 0 { Duration::ZERO } else { count.until_ends(now) }
    }

    #[inline]
    pub(super) fn expires(&self, state: &State) -> Timestamp {
        end(state.words()[0])
    }
}

/// Difference between the clocks of a server and of the store that a calendar allows.
const CLOCK_DIFFERENCE: Duration = Duration::from_hours(1);

impl Stored for FixedWindow {
    fn write_signature(&self, out: &mut StoredBytes) {
        match &self.schedule {
            Schedule::Clock(window) => {
                out.push(b'C');
                stored::window(out, *window);
            }
            Schedule::FirstHit(window) => {
                out.push(b'H');
                stored::window(out, *window);
            }
            Schedule::Calendar(calendar) => {
                out.push(b'K');
                let letter = calendar.period().letter();
                // Stored counters of periods from their first day have no anchor, and a small letter.
                match calendar.anchor() {
                    Anchor::FIRST => out.push(letter),
                    anchor => {
                        out.push(letter.to_ascii_uppercase());
                        anchor.write(out);
                    }
                }
                out.extend_from_slice(calendar.zone().name().as_bytes());
            }
        }
    }

    /// For a calendar: the time from which on its ends are known, and the three ends after it.
    fn write_parameters(&self, now: Timestamp, out: &mut StoredBytes) {
        let Schedule::Calendar(calendar) = &self.schedule else { return };
        let begin = now.as_nanos().saturating_sub(CLOCK_DIFFERENCE.as_nanos() as u64);
        let mut at = Timestamp::from_nanos(begin);
        stored::double(out, at.as_nanos() / microseconds::NANOS);
        for _ in 0..3 {
            at = calendar.end(at);
            stored::double(out, at.as_nanos() / microseconds::NANOS);
        }
    }

    fn of_signature(letter: u8, parameters: &mut StoredNumbers<'_>) -> Option<Self> {
        let schedule = match letter {
            b'C' => Schedule::Clock(parameters.window()?),
            b'H' => Schedule::FirstHit(parameters.window()?),
            b'K' => {
                let letter = parameters.byte()?;
                let period = Period::of_letter(letter.to_ascii_lowercase())?;
                let anchor = match letter.is_ascii_uppercase() {
                    true => Anchor::read(period, parameters)?,
                    false => Anchor::FIRST,
                };
                let zone = Zone::named(str::from_utf8(parameters.rest()).ok()?)?;
                Schedule::Calendar(Calendar::anchored(period, anchor, zone))
            }
            _ => return None,
        };
        Some(Self { limit: u32::MAX, schedule })
    }

    /// The store has the end of the window, and the state its last nanosecond.
    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let (end, hits) = (numbers.nanos()?, numbers.count()?);
        Some(State::Words([end.checked_sub(1)?, u64::from(hits)]))
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Words([last, hits]) = state else { return None };
        stored::double(out, last.checked_add(1)?.div_ceil(microseconds::NANOS));
        stored::count(out, u32::try_from(*hits).ok()?);
        Some(())
    }

    fn place_scale(&self) -> Option<PlaceScale> {
        Some(PlaceScale { ahead: 1, ..PlaceScale::whole(microseconds::NANOS) })
    }
}

impl Facts for FixedWindow {
    const NAME: &'static str = "fixed_window";
    const KEEPS_WORDS: bool = true;

    fn freeing(&self) -> Freeing {
        Freeing::Window(match &self.schedule {
            Schedule::Clock(window) | Schedule::FirstHit(window) => window.nanos().get(),
            Schedule::Calendar(_) => u64::MAX,
        })
    }

    fn reads_as(&self, other: &Self) -> bool {
        self.schedule == other.schedule
    }

    fn with_requests(&self, requests: u32, _: u32, _: Window) -> Self {
        Self { limit: requests, schedule: self.schedule.clone() }
    }

    /// A calendar applies to windows that are its period.
    fn replaced(&self, limit: u32, window: Window, _: u32) -> Option<Self> {
        let schedule = match &self.schedule {
            Schedule::FirstHit(_) => Schedule::FirstHit(window),
            Schedule::Calendar(calendar) if Unit::of_window(window) == Some(calendar.period().unit()) => {
                Schedule::Calendar(calendar.clone())
            }
            Schedule::Clock(_) | Schedule::Calendar(_) => Schedule::Clock(window),
        };
        Some(Self { limit, schedule })
    }

    fn in_microseconds(&self, _: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        match &self.schedule {
            Schedule::Clock(window) | Schedule::FirstHit(window) => microseconds::whole(*window)?,
            Schedule::Calendar(_) => {}
        }
        Ok(self.clone())
    }

    /// Counts hits in the window whose last nanosecond is `last`, unless a later window has opened since. For windows from the first hit,
    /// `last` is the end of the window that these hits would open: they join the window of an earlier hit, and open theirs if they are the
    /// first.
    fn insert(&self, state: State, hits: u64, last: u64, _: Timestamp) -> State {
        let [open_last, open_hits] = state.words();
        let open_hits = open_hits as u32;
        if let Schedule::FirstHit(window) = self.schedule
            && open_hits > 0
            && open_last.abs_diff(last) < window.nanos().get()
        {
            return Count { last: open_last.min(last), hits: saturating_count(open_hits, hits) }.pack();
        }
        let count = if open_hits == 0 || open_last < last {
            Count { last, hits: saturating_count(0, hits) }
        } else if open_last == last {
            Count { last, hits: saturating_count(open_hits, hits) }
        } else {
            Count { last: open_last, hits: open_hits }
        };
        count.pack()
    }

    fn numbers(&self, _: fn(Duration) -> String) -> String {
        let limit = self.limit;
        match &self.schedule {
            Schedule::Clock(window) => format!("{limit} per {window}"),
            Schedule::FirstHit(window) => format!("{limit} per {window} from the first hit"),
            Schedule::Calendar(calendar) => format!("{limit} per {calendar}"),
        }
    }
}

/// Adds hits to a count that stops at `u32::MAX`.
#[inline]
pub(super) fn saturating_count(count: u32, hits: u64) -> u32 {
    u64::from(count).saturating_add(hits).min(u64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests;
