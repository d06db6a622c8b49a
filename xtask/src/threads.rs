//! Work on several items at once.

use std::{
    num::NonZero,
    panic::resume_unwind,
    sync::{Mutex, PoisonError},
    thread,
};

/// The number of cores.
pub(crate) fn cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs a function with each item, as many at once as there are threads, and returns the results in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(threads: usize, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let waiting = Mutex::new(items.iter().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let taken = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((place, item)) = taken else { return done };
            done.push((place, run(item)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running.into_iter().flat_map(|one| one.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    done.sort_unstable_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn results_are_in_the_order_of_the_items() {
    let items: Vec<u32> = (0..100).collect();
    assert_eq!(map(4, &items, |item| item * 2), items.iter().map(|item| item * 2).collect::<Vec<_>>());
}
