//! Growth of small lists, of which there are many.

/// Makes room for one more element, and for few others.
pub(super) fn reserve_one<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 1);
    }
}
