//! The memory of a counter. Its shard has two words of the state; the rest is on the heap.
//!
//! The figures are those of docs/operations.md, measured with mimalloc and rounded up: one allocation for each part of a state, in sizes of
//! the allocator. Leases and reservations have bounds of their own, over all counters.

/// Bytes of a counter on the heap.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct HeapBytes {
    /// After one request. For each key that a sender makes up, the server keeps as many.
    pub first: u64,
    /// At the limit.
    pub most: u64,
}

impl HeapBytes {
    /// For states that never grow.
    pub(super) const fn fixed(bytes: u64) -> Self {
        Self { first: bytes, most: bytes }
    }

    /// For states of `least` bytes, and `each` more for each of up to `parts_max` parts.
    const fn growing(least: u64, each: u64, parts_max: u32) -> Self {
        let parts = if parts_max == 0 { 1 } else { parts_max as u64 };
        Self { first: least + each, most: least.saturating_add(each.saturating_mul(parts)) }
    }

    /// For a log with at most so many instants.
    pub(super) const fn of_log(instants_max: u32) -> Self {
        Self::growing(106, 20, instants_max)
    }

    /// For at most so many slots.
    pub(super) const fn of_slots(slots_max: u32) -> Self {
        Self::growing(36, 30, slots_max)
    }

    /// The larger of both figures.
    pub(crate) fn or_wider(self, other: Self) -> Self {
        Self { first: self.first.max(other.first), most: self.most.max(other.most) }
    }
}
