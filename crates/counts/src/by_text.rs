//! Counts by texts of requests, for which there are no fixed cells.

use super::{PerThread, ThreadIndex};
use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError, RwLock},
};

/// Counts by text. Each thread counts in a map of its own, under a lock that only readers contend for. The number of texts that are
/// counted apart is bounded; further texts share a count.
pub struct CountsByText<C> {
    texts_max: usize,
    /// The texts that are counted apart. Locked when a thread counts a text first, and for each text beyond the bound.
    apart: RwLock<HashSet<Box<str>>>,
    threads: PerThread<Mutex<TextMap<C>>>,
}

struct TextMap<C> {
    by_text: HashMap<Box<str>, C>,
    /// Memory for one text.
    text: String,
}

/// The counts of one thread, locked.
pub struct ThreadCounts<'c, C> {
    all: &'c CountsByText<C>,
    map: MutexGuard<'c, TextMap<C>>,
}

impl<C> CountsByText<C> {
    /// Counts at most `texts_max` texts apart.
    pub fn new(texts_max: usize) -> Self {
        let empty = || Mutex::new(TextMap { by_text: HashMap::new(), text: String::new() });
        Self { texts_max, apart: RwLock::default(), threads: PerThread::new(empty) }
    }

    /// The counts of this thread.
    pub fn of_thread(&self) -> ThreadCounts<'_, C> {
        ThreadCounts { all: self, map: lock(self.threads.of(ThreadIndex::current())) }
    }

    /// Whether the text is counted apart, or can be. An empty text never is.
    fn is_apart(&self, text: &str) -> bool {
        {
            let apart = self.apart.read().unwrap_or_else(PoisonError::into_inner);
            if apart.contains(text) || apart.len() >= self.texts_max || text.is_empty() {
                return apart.contains(text);
            }
        }
        let mut apart = self.apart.write().unwrap_or_else(PoisonError::into_inner);
        apart.contains(text) || apart.len() < self.texts_max && apart.insert(text.into())
    }

    /// Calls `read` with every text of every thread and its counts.
    pub fn for_each(&self, mut read: impl FnMut(&str, &C)) {
        for thread in self.threads.iter() {
            lock(thread).by_text.iter().for_each(|(text, counts)| read(text, counts));
        }
    }

    /// Drops the texts for which `is_kept` is false. Returns the number of texts that are counted apart.
    pub fn retain(&self, is_kept: impl Fn(&str) -> bool) -> usize {
        for thread in self.threads.iter() {
            lock(thread).by_text.retain(|text, _| is_kept(text));
        }
        let mut apart = self.apart.write().unwrap_or_else(PoisonError::into_inner);
        apart.retain(|text| is_kept(text));
        apart.len()
    }
}

impl<C> ThreadCounts<'_, C> {
    /// Adds to the counts of the text that `write` appends to an empty string. Beyond the bound, and if the text is empty, adds to those
    /// of the text that `write` appends if it is passed true. `make` returns empty counts, and is passed the same. Allocates only for a
    /// new text.
    pub fn add(
        &mut self,
        write: impl Fn(&mut String, bool),
        make: impl FnOnce(bool) -> C,
        add: impl FnOnce(&mut C),
    ) {
        let TextMap { by_text, text } = &mut *self.map;
        text.clear();
        write(text, false);
        if let Some(counts) = by_text.get_mut(text.as_str()) {
            return add(counts);
        }
        let is_other = !self.all.is_apart(text);
        if is_other {
            text.clear();
            write(text, true);
        }
        match by_text.get_mut(text.as_str()) {
            Some(counts) => add(counts),
            None => add(by_text.entry(text.as_str().into()).or_insert_with(|| make(is_other))),
        }
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
            let write = |key: &mut String, is_other| key.push_str(if is_other { "other" } else { text });
            counts.of_thread().add(write, |_| 0, |count| *count += 1);
        }
        let mut read = BTreeMap::new();
        counts.for_each(|text, count| _ = read.insert(text.to_owned(), *count));
        assert_eq!(
            read,
            BTreeMap::from([("a", 2), ("b", 2), ("other", 2)].map(|(text, n)| (text.to_owned(), n)))
        );
    }
}
