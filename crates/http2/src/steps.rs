//! Counts the work of a connection, in unit tests only. Tests bound it per byte that a client sends.

/// A frame read or written, or a stream visited.
pub(super) const FRAME: usize = 4;
/// A setting or a header field.
pub(super) const FIELD: usize = 1;

/// Steps to copy or check `count` bytes.
#[inline]
pub(super) const fn of_bytes(count: usize) -> usize {
    count / 16
}

#[cfg(test)]
thread_local! {
    static DONE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[inline]
pub(super) fn add(steps: usize) {
    #[cfg(test)]
    DONE.set(DONE.get() + steps);
    #[cfg(not(test))]
    let _ = steps;
}

/// The steps done by this thread since the last call.
#[cfg(test)]
pub(super) fn take() -> usize {
    DONE.take()
}
