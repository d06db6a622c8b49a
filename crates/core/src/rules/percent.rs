//! Parts of a whole.

/// A part of a whole, in percent: from 1 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Percent(u8);

impl Percent {
    /// All of it.
    pub const ALL: Self = Self(100);

    /// None if it is not from 1 to 100.
    pub const fn new(percent: u32) -> Option<Self> {
        if percent >= 1 && percent <= 100 { Some(Self(percent as u8)) } else { None }
    }

    /// The number.
    pub fn get(self) -> u8 {
        self.0
    }

    /// The part of a number, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        (u128::from(whole) * u128::from(self.0) / 100) as u64
    }
}
