//! An index for each thread, by which it adds to its own cells without atomic read-modify-write operations.

use std::{
    cell::Cell,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

/// Threads for which no index is left share the last index, which costs time but loses no count.
const INDEXES: usize = 64;
const SHARED: usize = INDEXES - 1;

/// Stands for the index of a thread that has none yet.
const NONE: usize = usize::MAX;

thread_local! {
    static INDEX: Cell<usize> = const { Cell::new(NONE) };
    static OWNED: Owned = Owned::take();
}

/// The index of a thread.
#[derive(Clone, Copy)]
pub struct ThreadIndex {
    number: usize,
    // Neither `Send` nor `Sync`.
    _of_thread: std::marker::PhantomData<*const ()>,
}

impl ThreadIndex {
    /// The index of this thread.
    #[inline]
    pub fn current() -> Self {
        let number = INDEX.get();
        let number = if number == NONE { first_use() } else { number };
        Self { number, _of_thread: std::marker::PhantomData }
    }

    /// Adds numbers that a caller chooses to a cell that belongs to this index: the sum never wraps.
    #[inline]
    pub fn add_saturating(self, cell: &AtomicU64, more: u64) {
        if self.number == SHARED {
            cell.update(Ordering::Relaxed, Ordering::Relaxed, |sum| sum.saturating_add(more));
        } else {
            // No other thread writes to it.
            cell.store(cell.load(Ordering::Relaxed).saturating_add(more), Ordering::Relaxed);
        }
    }

    /// Adds to a cell that belongs to this index. The sum wraps: a number that shrinks is added as its negative.
    #[inline]
    pub fn add(self, cell: &AtomicU64, more: u64) {
        if self.number == SHARED {
            cell.fetch_add(more, Ordering::Relaxed);
        } else {
            // No other thread writes to it.
            cell.store(cell.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
    }
}

/// A value for each index, on cache lines of its own.
pub struct PerThread<T>(Box<[Aligned<T>]>);

/// Two cache lines: processors fetch them in pairs.
#[repr(align(128))]
struct Aligned<T>(T);

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T> PerThread<T> {
    /// Values that `make` returns.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self((0..INDEXES).map(|_| Aligned(make())).collect())
    }

    /// The value of an index.
    #[inline]
    pub fn of(&self, thread: ThreadIndex) -> &T {
        &self.0[thread.number].0
    }

    /// The values of all indexes.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|aligned| &aligned.0)
    }
}

#[cold]
fn first_use() -> usize {
    // While the thread's other values are dropped, its own index may be gone already.
    let index = OWNED.try_with(|owned| owned.0).unwrap_or(SHARED);
    INDEX.set(index);
    index
}

/// The number of a thread's index; returned when the thread ends.
struct Owned(usize);

/// Indexes of threads that have ended.
static RETURNED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl Owned {
    fn take() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        // The lock orders the counts of the index's former thread before: they are read, and not lost.
        if let Some(index) = RETURNED.lock().unwrap_or_else(PoisonError::into_inner).pop() {
            return Self(index);
        }
        Self(NEXT.fetch_add(1, Ordering::Relaxed).min(SHARED))
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        INDEX.set(SHARED);
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
    fn counts_of_more_threads_than_cells_are_not_lost_and_their_cells_are_used_again() {
        let cells = PerThread::<AtomicU64>::default();
        thread::scope(|scope| {
            let count = || {
                for _ in 0..200 {
                    let thread = ThreadIndex::current();
                    thread.add(cells.of(thread), 1);
                    thread::yield_now();
                }
            };
            let threads: Vec<_> = (0..2 * INDEXES).map(|_| scope.spawn(count)).collect();
            threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
        });
        let sum: u64 = cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 2 * INDEXES as u64 * 200);
        let later = thread::spawn(|| ThreadIndex::current().number).join().expect("it does not panic");
        assert_ne!(later, SHARED);
    }
}
