//! Periods of a calendar.

use crate::limit::Unit;
use serde::{Deserialize, Serialize};

/// A period of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// 23 or 25 hours long when the clocks change.
    Day,
    /// From Monday to Monday, as ISO 8601 has it, unless it has another anchor.
    Week,
    /// Of 28 to 31 days.
    Month,
    /// Of 365 or 366 days.
    Year,
}

impl Period {
    /// All periods.
    pub(crate) const ALL: [Self; 4] = [Self::Day, Self::Week, Self::Month, Self::Year];

    /// The unit that a rule file has for it.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Day => Unit::Day,
            Self::Week => Unit::Week,
            Self::Month => Unit::Month,
            Self::Year => Unit::Year,
        }
    }

    /// Its letter in a shared store.
    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Day => b'd',
            Self::Week => b'w',
            Self::Month => b'm',
            Self::Year => b'y',
        }
    }

    /// The period of this letter.
    pub(super) fn of_letter(letter: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|period| period.letter() == letter)
    }
}
