//! Shares of requests: `FractionalPercent` and `RuntimeFractionalPercent`.

use crate::part::Part;
use std::fmt;

/// A share of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    numerator: u64,
    whole: u64,
}

/// `30 of 100`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.numerator, self.whole)
    }
}

impl Share {
    /// All requests.
    pub(crate) const ALL: Self = Self::percents(100);
    /// No request.
    pub(crate) const NONE: Self = Self::percents(0);

    /// So many of a hundred.
    pub(crate) const fn percents(numerator: u64) -> Self {
        Self { numerator, whole: 100 }
    }

    /// The share of a `FractionalPercent`.
    pub(crate) fn of(percent: Part<'_>) -> Self {
        let whole = match percent.text("denominator") {
            "TEN_THOUSAND" => 10_000,
            "MILLION" => 1_000_000,
            _ => 100,
        };
        Self { numerator: percent.number("numerator").unwrap_or(0), whole }
    }

    /// The share of a `RuntimeFractionalPercent`, unless runtime has another.
    pub(crate) fn of_default(percent: Part<'_>) -> Self {
        percent.get("default_value").map_or(Self::NONE, Self::of)
    }

    /// Whether it has every request.
    pub fn is_all(self) -> bool {
        self.numerator >= self.whole
    }

    /// Whether it has no request.
    pub fn is_none(self) -> bool {
        self.numerator == 0
    }
}
