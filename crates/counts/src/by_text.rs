//! Counts by texts of requests, for which there are no fixed cells.

use super::{PerThread, ThreadIndex};
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Counts by text. Each thread counts in a map of its own, under a lock that only readers contend for. The number of texts of a map is
/// bounded; further texts share a count.
pub struct CountsByText<C> {
    texts_max: usize,
    threads: PerThread<Mutex<TextMap<C>>>,
}

struct TextMap<C> {
    by_text: HashMap<Box<str>, C>,
    /// Memory for one text.
    text: String,
}

/// The counts of one thread, locked.
pub struct ThreadCounts<'c, C> {
    texts_max: usize,
    map: MutexGuard<'c, TextMap<C>>,
}

impl<C> CountsByText<C> {
    /// Counts at most `texts_max` texts apart, in each thread.
    pub fn new(texts_max: usize) -> Self {
        let empty = || Mutex::new(TextMap { by_text: HashMap::new(), text: String::new() });
        Self { texts_max, threads: PerThread::new(empty) }
    }

    /// The counts of this thread.
    pub fn of_thread(&self) -> ThreadCounts<'_, C> {
        ThreadCounts { texts_max: self.texts_max, map: lock(self.threads.of(ThreadIndex::current())) }
    }

    /// Calls `read` with every text of every thread and its counts.
    pub fn for_each(&self, mut read: impl FnMut(&str, &C)) {
        for thread in self.threads.iter() {
            lock(thread).by_text.iter().for_each(|(text, counts)| read(text, counts));
        }
    }
}

impl<C> ThreadCounts<'_, C> {
    /// Adds to the counts of the text that `write` appends to an empty string; beyond the bound, to those of `other`. `make` returns empty
    /// counts, and is passed whether they are those of `other`. Allocates only for a new text.
    pub fn add(
        &mut self,
        write: impl FnOnce(&mut String),
        other: &str,
        make: impl FnOnce(bool) -> C,
        add: impl FnOnce(&mut C),
    ) {
        let TextMap { by_text, text } = &mut *self.map;
        text.clear();
        write(text);
        if let Some(counts) = by_text.get_mut(text.as_str()) {
            return add(counts);
        }
        let is_other = by_text.len() >= self.texts_max;
        let text = if is_other { other } else { text.as_str() };
        add(by_text.entry(text.into()).or_insert_with(|| make(is_other)));
    }
}

fn lock<C>(map: &Mutex<TextMap<C>>) -> MutexGuard<'_, TextMap<C>> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn texts_beyond_the_bound_share_one() {
        let counts = CountsByText::<u64>::new(2);
        for text in ["a", "b", "a", "c", "d", "b"] {
            counts.of_thread().add(|key| key.push_str(text), "other", |_| 0, |count| *count += 1);
        }
        let mut read = BTreeMap::new();
        counts.for_each(|text, count| _ = read.insert(text.to_owned(), *count));
        assert_eq!(
            read,
            BTreeMap::from([("a", 2), ("b", 2), ("other", 2)].map(|(text, n)| (text.to_owned(), n)))
        );
    }
}
