//! Location of the text of a field.

use super::static_table::STATIC_TABLE;

/// The table entry of a field. Entries with the same number have the same name and value, even after others were added or evicted. Later
/// entries of the dynamic table are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub(super) struct Source(u64);

/// The first index of the dynamic table.
const FIRST_DYNAMIC: u64 = STATIC_TABLE.len() as u64 + 1;

impl Source {
    /// No entry.
    pub(super) const LITERAL: Self = Self(u64::MAX);

    /// The entry at this position of the static table.
    pub(super) const fn of_static(position: usize) -> Self {
        Self(position as u64 + 1)
    }

    /// The entry with this number among all that were ever added to the dynamic table.
    pub(super) const fn of_dynamic(number: u64) -> Self {
        Self(FIRST_DYNAMIC + number)
    }

    /// The number among all entries that were ever added to the dynamic table.
    #[inline]
    pub(super) fn dynamic(self) -> Option<u64> {
        if self == Self::LITERAL { None } else { self.0.checked_sub(FIRST_DYNAMIC) }
    }

    /// The entry added `entries` before this one.
    pub(super) const fn before(self, entries: u64) -> Self {
        Self(self.0.saturating_sub(entries))
    }

    /// The position in the static table.
    #[inline]
    pub(super) fn position(self) -> Option<usize> {
        usize::try_from(self.0.checked_sub(1)?).ok()
    }
}
