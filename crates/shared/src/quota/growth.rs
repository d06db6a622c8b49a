//! How lists grow of which there are many.

/// Makes room for one more, and little for others.
pub(super) fn reserve_one<T>(list: &mut Vec<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 1);
    }
}
