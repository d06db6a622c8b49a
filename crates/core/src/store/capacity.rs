//! The number of counters that fit in memory. Pure: the amount of memory is an argument.

/// Bytes of a counter without those on the heap, rounded up: its place, and its part of the page and of unused places.
/// Measured by `cargo bench --bench store_scale`.
pub const COUNTER_BYTES: u64 = 64;

/// The share of the memory for counters by default: the rest is for connections, for writing snapshots, and for other
/// processes.
const SHARE_PERCENT: u64 = 50;

/// The fewest counters that are held by default, however little memory there is.
const COUNTERS_MIN: u64 = 100_000;

/// The most counters that are held by default, however much memory there is.
const COUNTERS_MAX: u64 = 100_000_000;

/// The default bound on counters with `heap_bytes` each on the heap, for a process that may use `memory_bytes`.
pub fn default_counters_max(memory_bytes: u64, heap_bytes: u64) -> usize {
    let fitting = memory_bytes / 100 * SHARE_PERCENT / (COUNTER_BYTES + heap_bytes);
    fitting.clamp(COUNTERS_MIN, COUNTERS_MAX) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_the_memory_is_for_counters_within_bounds() {
        assert_eq!(default_counters_max(12_800_000_000, 0), 100_000_000);
        assert_eq!(default_counters_max(1_280_000_000, 0), 10_000_000);
        assert_eq!(default_counters_max(1_280_000_000, 576), 1_000_000);
        assert_eq!(default_counters_max(0, 0), 100_000);
        assert_eq!(default_counters_max(u64::MAX, 0), 100_000_000);
    }
}
