//! The units of the rate limit API.

use super::Window;
use std::fmt;

/// A unit of the API, as rules name it and answers report it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Unit {
    /// One second.
    Second,
    /// 60 seconds.
    Minute,
    /// 60 minutes.
    Hour,
    /// 24 hours.
    Day,
    /// 7 days.
    Week,
    /// 30 days.
    Month,
    /// 365 days.
    Year,
}

impl Unit {
    /// Every unit, from the shortest to the longest.
    pub const ALL: [Self; 7] =
        [Self::Second, Self::Minute, Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// The name, and the length in seconds.
    const fn facts(self) -> (&'static str, u64) {
        match self {
            Self::Second => ("second", 1),
            Self::Minute => ("minute", 60),
            Self::Hour => ("hour", 3_600),
            Self::Day => ("day", 86_400),
            Self::Week => ("week", 7 * 86_400),
            Self::Month => ("month", 30 * 86_400),
            Self::Year => ("year", 365 * 86_400),
        }
    }

    /// The name in rule files, in lower case.
    pub const fn name(self) -> &'static str {
        self.facts().0
    }

    /// The unit of that name, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.name().eq_ignore_ascii_case(name))
    }

    /// The length in seconds; a month has 30 days and a year 365.
    pub const fn seconds(self) -> u64 {
        self.facts().1
    }

    /// A window of one unit.
    pub fn window(self) -> Window {
        Window::from_secs(self.seconds()).expect("every unit lies within a window's bounds")
    }

    /// The unit that is exactly this long, if there is one.
    pub fn of_window(window: Window) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.window() == window)
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
