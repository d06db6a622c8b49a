//! Points in time and lengths of windows, in whole nanoseconds.

use serde::{Deserialize, Serialize};
use std::{fmt, num::NonZeroU64, time::Duration};

/// Nanoseconds since the Unix epoch. Good until the year 2554.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch.
    pub const EPOCH: Self = Self(0);

    /// From nanoseconds since the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// From milliseconds since the epoch; past the year 2554 it stays there.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// This point moved into the future; it stops at the end of representable time.
    pub const fn saturating_add_nanos(self, nanos: u64) -> Self {
        Self(self.0.saturating_add(nanos))
    }

    /// This point moved into the future; it stops at the end of representable time.
    pub fn saturating_add(self, wait: Duration) -> Self {
        self.saturating_add_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The length of a window: from 1 ms to 3,660 days (ten years and the leap days they can hold).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "u64", try_from = "u64")]
pub struct Window(NonZeroU64);

/// Reason why a length of time is not a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WindowError {
    /// Below one millisecond.
    #[error("a window is at least 1ms long")]
    TooShort,
    /// Above ten years.
    #[error("a window is at most 10 years (3660 days) long")]
    TooLong,
}

impl Window {
    /// The shortest window, in nanoseconds.
    pub const NANOS_MIN: u64 = 1_000_000;
    /// The longest window, in nanoseconds.
    pub const NANOS_MAX: u64 = 3660 * 86_400 * 1_000_000_000;

    /// From nanoseconds, within the bounds.
    pub const fn from_nanos(nanos: u64) -> Result<Self, WindowError> {
        if nanos < Self::NANOS_MIN {
            return Err(WindowError::TooShort);
        }
        if nanos > Self::NANOS_MAX {
            return Err(WindowError::TooLong);
        }
        match NonZeroU64::new(nanos) {
            Some(nanos) => Ok(Self(nanos)),
            None => Err(WindowError::TooShort),
        }
    }

    /// From whole seconds, within the bounds.
    pub const fn from_secs(secs: u64) -> Result<Self, WindowError> {
        match secs.checked_mul(1_000_000_000) {
            Some(nanos) => Self::from_nanos(nanos),
            None => Err(WindowError::TooLong),
        }
    }

    /// The length in nanoseconds; never zero.
    pub const fn nanos(self) -> NonZeroU64 {
        self.0
    }

    /// The length as a standard duration.
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0.get())
    }
}

/// In nanoseconds.
impl From<Window> for u64 {
    fn from(window: Window) -> Self {
        window.0.get()
    }
}

/// From nanoseconds.
impl TryFrom<u64> for Window {
    type Error = WindowError;

    fn try_from(nanos: u64) -> Result<Self, WindowError> {
        Self::from_nanos(nanos)
    }
}

/// The shortest exact form: `250ms`, `10s`, `5m`, `12h`, `30d`.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SCALES: [(u64, &str); 6] = [
            (86_400_000_000_000, "d"),
            (3_600_000_000_000, "h"),
            (60_000_000_000, "m"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
        ];
        let nanos = self.0.get();
        for (scale, name) in SCALES {
            if nanos.is_multiple_of(scale) {
                return write!(f, "{}{name}", nanos / scale);
            }
        }
        write!(f, "{nanos}ns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_printed_in_the_largest_unit_that_is_exact() {
        let shown = |nanos| Window::from_nanos(nanos).unwrap().to_string();
        assert_eq!(shown(250_000_000), "250ms");
        assert_eq!(shown(90_000_000_000), "90s");
        assert_eq!(shown(43_200_000_000_000), "12h");
        assert_eq!(shown(1_000_001), "1000001ns");
    }

    #[test]
    fn a_window_keeps_to_its_bounds() {
        assert_eq!(Window::from_nanos(Window::NANOS_MIN - 1), Err(WindowError::TooShort));
        assert_eq!(Window::from_nanos(Window::NANOS_MAX + 1), Err(WindowError::TooLong));
        assert_eq!(Window::from_secs(u64::MAX), Err(WindowError::TooLong));
        assert!(Window::from_nanos(Window::NANOS_MAX).is_ok());
    }
}
