//! Cache lines of threads: each thread counts on lines of its own, so that threads do not contend, and adds without an
//! atomic operation that reads and writes.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// The last line is shared by the threads for which no other is left, which costs time but loses no count.
pub(super) const LINES: usize = 64;
const SHARED: usize = LINES - 1;

/// Stands for the line of a thread that has none yet.
const NONE: usize = usize::MAX;

thread_local! {
    static LINE: Cell<usize> = const { Cell::new(NONE) };
    static OWNED: Owned = Owned::take();
}

/// The number of a thread's line.
#[derive(Clone, Copy)]
pub(super) struct ThreadLine(usize);

impl ThreadLine {
    /// The line of this thread.
    #[inline]
    pub(super) fn current() -> Self {
        let line = LINE.get();
        Self(if line == NONE { first_use() } else { line })
    }

    /// The element of `lines`, of which there are [`LINES`], that is this line's.
    #[inline]
    pub(super) fn of<T>(self, lines: &[T]) -> &T {
        &lines[self.0]
    }

    /// Adds to a count of this line. A count of several lines is their sum.
    #[inline]
    pub(super) fn add(self, count: &AtomicU64, more: u64) {
        if self.0 == SHARED {
            count.fetch_add(more, Ordering::Relaxed);
        } else {
            // No other thread writes to it.
            count.store(count.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}

#[cold]
fn first_use() -> usize {
    // While the thread's other values are dropped, there may be no line of its own any more.
    let line = OWNED.try_with(|owned| owned.0).unwrap_or(SHARED);
    LINE.set(line);
    line
}

/// A line of one thread; given back when the thread ends.
struct Owned(usize);

/// Lines of threads that have ended.
static RETURNED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Owned {
    fn take() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // The lock orders the counts of the thread before: they are read, and not lost.
        if let Some(line) = RETURNED.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Self(line);
        }
        Self(NEXT.fetch_add(1, Ordering::Relaxed).min(SHARED))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        LINE.set(SHARED);
        if self.0 != SHARED {
            RETURNED.lock().unwrap_or_else(PoisonError::into_inner).push(self.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn counts_of_more_threads_than_lines_are_not_lost_and_their_lines_are_used_again() {
        let counts: Vec<AtomicU64> = (0..LINES).map(|_| AtomicU64::new(0)).collect();
        thread::scope(|scope| {
            let count = || {
                for _ in 0..200 {
                    let line = ThreadLine::current();
                    line.add(line.of(&counts), 1);
                    thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..2 * LINES).map(|_| scope.spawn(count)).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        });
        let sum: u64 = counts.iter().map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * LINES as u64 * 200);
        let later = thread::spawn(|| ThreadLine::current().0).join().expect("it does not panic");
        assert_ne!(later, SHARED);
    }
}
