//! A bounded map; when it is full, the least recently used entry is dropped.

use std::{
    borrow::Borrow,
    collections::{BTreeMap, HashMap},
    hash::Hash,
};

/// The clones of a key have to be cheap, such as those of an `Arc`.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    max: usize,
    /// The values, each with the number of its last use.
    entries: HashMap<K, (V, u64)>,
    /// The keys by the number of their last use.
    used: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self { max, entries: HashMap::new(), used: BTreeMap::new(), uses: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the value of a key, which counts as a use.
    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_mut(key).map(|value| &*value)
    }

    fn get_mut<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (value, last_use) = self.entries.get_mut(key)?;
        if *last_use != self.uses {
            self.uses += 1;
            if let Some(key) = self.used.remove(last_use) {
                self.used.insert(self.uses, key);
            }
            *last_use = self.uses;
        }
        Some(value)
    }

    /// Inserts or replaces the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        if let Some(known) = self.get_mut(&key) {
            *known = value;
            return;
        }
        self.uses += 1;
        self.entries.insert(key.clone(), (value, self.uses));
        self.used.insert(self.uses, key);
        if self.entries.len() > self.max
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    pub(crate) fn remove<Q: Eq + Hash + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        if let Some((_, last_use)) = self.entries.remove(key) {
            self.used.remove(&last_use);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        self.used.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_dropped() {
        let mut lru = Lru::new(2);
        lru.insert("a", 1);
        lru.insert("b", 2);
        lru.get("a");
        lru.insert("c", 3);
        assert_eq!(["a", "b", "c"].map(|key| lru.get(key).copied()), [Some(1), None, Some(3)]);
        lru.insert("a", 4);
        lru.insert("d", 5);
        assert_eq!(["a", "c", "d"].map(|key| lru.get(key).copied()), [Some(4), None, Some(5)]);
        lru.remove("a");
        lru.insert("e", 6);
        assert_eq!(lru.get("d"), Some(&5));
        assert_eq!((lru.entries.len(), lru.used.len()), (2, 2));
    }
}
