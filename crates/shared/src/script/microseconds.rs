//! The store counts time in whole microseconds.

/// Nanoseconds of a microsecond.
pub(super) const NANOS: u64 = 1_000;
