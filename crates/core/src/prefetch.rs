//! Prefetching: a hint to the processor to load memory into its caches. Nothing is read, so nothing can go wrong.

use prefetch_index::prefetch_index;

/// Prefetches the cache line in which the value begins.
#[inline]
pub fn prefetch<T>(value: &T) {
    prefetch_index(std::slice::from_ref(value), 0);
}

/// Prefetches the element of a slice. An index beyond the end is allowed: only its address is computed.
#[inline]
pub fn prefetch_element<T>(slice: &[T], index: usize) {
    prefetch_index(slice, index);
}
