//! Cache lines of threads: each thread counts on lines of its own, so that two threads do not contend for one.

use std::{
    cell::Cell,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Threads beyond this number share lines, which costs time but loses no count.
pub(super) const LINES: usize = 64;

/// Stands for the line of a thread that has none yet.
const NONE: usize = usize::MAX;

thread_local! {
    static LINE: Cell<usize> = const { Cell::new(NONE) };
}

/// The line of this thread. Lines are assigned round robin.
#[inline]
pub(super) fn line() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    LINE.with(|line| {
        if line.get() == NONE {
            line.set(NEXT.fetch_add(1, Ordering::Relaxed) % LINES);
        }
        line.get()
    })
}
