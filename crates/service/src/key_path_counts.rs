//! Counts of some descriptors by domain and by the path of their keys. [`super::Meters`] counts descriptors without a limit so, and
//! descriptors whose entry for the day of their windows is not a day.
//!
//! Invariants: values are never kept; at most [`KEY_PATHS_MAX`] paths are counted apart, and the others share one count; all other
//! decisions skip this code. A count takes a lock for which only readers contend, and allocates at the first occurrence of a path.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{Mutex, MutexGuard, PoisonError},
};
use tidegate_core::limit::{Entry, Timestamp};
use tidegate_counts::{PerThread, ThreadIndex};

/// Paths that are counted apart.
pub const KEY_PATHS_MAX: usize = 256;

/// The most bytes of a domain and of a path's keys. Longer ones count among the others.
const TEXT_BYTES_MAX: usize = 512;

/// Counts of descriptors by domain and keys.
#[derive(Default)]
pub struct KeyPathCounts {
    /// Keyed, so that no client can have two paths share a hash.
    hasher: RandomState,
    threads: PerThread<Mutex<OfThread>>,
    known: Mutex<Known>,
}

/// Counts of one thread.
#[derive(Default)]
struct OfThread {
    /// By the hash of domain and keys.
    by_path: HashMap<u64, u64>,
    /// Descriptors with other paths.
    others: u64,
    /// Whether it has all paths that will ever be counted apart.
    is_complete: bool,
}

/// The paths that are counted apart, by their hash.
type Known = HashMap<u64, CountedKeyPath>;

/// Counted descriptors of a domain with the same keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CountedKeyPath {
    /// The domain.
    pub domain: Box<str>,
    /// The keys of the entries, in their order.
    pub keys: Box<[Box<str>]>,
    /// Descriptors since the start.
    pub count: u64,
    /// Time of the reading after the first one.
    pub first: Timestamp,
    /// Time of the reading after the last one.
    pub last: Timestamp,
}

impl CountedKeyPath {
    /// `key → key`.
    pub fn path(&self) -> String {
        self.keys.join(" → ")
    }
}

impl KeyPathCounts {
    /// Counts descriptors of a domain with these entries.
    pub(super) fn count(&self, domain: &str, entries: &[Entry<'_>], number: u64) {
        let keys = || entries.iter().map(|entry| entry.key);
        let hash = self.hasher.hash_one(HashedPath { domain, keys: keys() });
        let mut of_thread = lock(self.threads.of(ThreadIndex::current()));
        if let Some(count) = of_thread.by_path.get_mut(&hash) {
            *count = count.saturating_add(number);
        } else if of_thread.is_complete {
            of_thread.others = of_thread.others.saturating_add(number);
        } else {
            self.count_first(&mut of_thread, (hash, number), domain, keys());
        }
    }

    /// Counts descriptors with a path that the thread has not counted before.
    #[cold]
    fn count_first<'k>(
        &self,
        of_thread: &mut OfThread,
        (hash, number): (u64, u64),
        domain: &str,
        keys: impl Iterator<Item = &'k str> + Clone,
    ) {
        let mut known = lock(&self.known);
        let has_room = known.len() < KEY_PATHS_MAX;
        let bytes = domain.len() + keys.clone().map(str::len).sum::<usize>();
        if has_room && bytes <= TEXT_BYTES_MAX {
            known.entry(hash).or_insert_with(|| CountedKeyPath {
                domain: domain.into(),
                keys: keys.map(Into::into).collect(),
                count: 0,
                first: Timestamp::default(),
                last: Timestamp::default(),
            });
        }
        if !has_room {
            known.keys().for_each(|hash| _ = of_thread.by_path.entry(*hash).or_default());
            of_thread.is_complete = true;
        }
        let count = match known.contains_key(&hash) {
            true => of_thread.by_path.entry(hash).or_default(),
            false => &mut of_thread.others,
        };
        *count = count.saturating_add(number);
    }

    /// The paths in the order of domains and keys, and the number of descriptors with other paths. `now` is noted as the time of
    /// descriptors since the last reading.
    pub fn read(&self, now: Timestamp) -> (Vec<CountedKeyPath>, u64) {
        let (sums, others) = self.sums();
        let mut known = lock(&self.known);
        for (hash, count) in sums {
            let Some(path) = known.get_mut(&hash).filter(|path| path.count < count) else { continue };
            if path.count == 0 {
                path.first = now;
            }
            (path.count, path.last) = (count, now);
        }
        (listed(&known), others)
    }

    /// The paths and the number of others, with the times of the last [`Self::read`].
    pub fn counted(&self) -> (Vec<CountedKeyPath>, u64) {
        let (sums, others) = self.sums();
        let mut known = lock(&self.known).clone();
        sums.into_iter().for_each(|(hash, count)| _ = known.get_mut(&hash).map(|path| path.count = count));
        (listed(&known), others)
    }

    fn sums(&self) -> (HashMap<u64, u64>, u64) {
        let (mut sums, mut others): (HashMap<u64, u64>, u64) = (HashMap::new(), 0);
        for of_thread in self.threads.iter() {
            let of_thread = lock(of_thread);
            others = others.saturating_add(of_thread.others);
            for (hash, count) in &of_thread.by_path {
                let sum = sums.entry(*hash).or_default();
                *sum = sum.saturating_add(*count);
            }
        }
        (sums, others)
    }
}

fn listed(known: &Known) -> Vec<CountedKeyPath> {
    let mut paths: Vec<CountedKeyPath> = known.values().filter(|path| path.count > 0).cloned().collect();
    paths.sort_unstable();
    paths
}

/// A domain and keys. Its hash input differs for any two.
struct HashedPath<'d, K> {
    domain: &'d str,
    keys: K,
}

impl<'k, K: Iterator<Item = &'k str> + Clone> std::hash::Hash for HashedPath<'_, K> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // Each text ends with a byte that no text contains.
        self.domain.hash(state);
        self.keys.clone().for_each(|key| key.hash(state));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(counts: &KeyPathCounts, domain: &str, entries: &[(&str, &str)]) {
        let entries: Vec<Entry<'_>> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        counts.count(domain, &entries, 1);
    }

    fn shown(counts: &KeyPathCounts, seconds: u64) -> (Vec<String>, u64) {
        let (paths, others) = counts.read(Timestamp::from_millis(seconds * 1_000));
        let show = |path: &CountedKeyPath| {
            let [first, last] = [path.first, path.last].map(|time| time.as_nanos() / 1_000_000_000);
            format!("{}: {} {} {first}-{last}", path.domain, path.path(), path.count)
        };
        (paths.iter().map(show).collect(), others)
    }

    #[test]
    fn descriptors_are_counted_by_domain_and_keys_whatever_their_values() {
        let counts = KeyPathCounts::default();
        std::thread::scope(|scope| {
            for value in ["1", "2"] {
                let counts = &counts;
                scope.spawn(move || {
                    count(counts, "d", &[("a", value), ("b", "x")]);
                    count(counts, "d", &[("ab", value)]);
                    count(counts, "da", &[("b", value)]);
                });
            }
        });
        let after = |seconds| shown(&counts, seconds).0;
        assert_eq!(after(5), ["d: a → b 2 5-5", "d: ab 2 5-5", "da: b 2 5-5"]);
        count(&counts, "d", &[("ab", "3")]);
        assert_eq!(after(9), ["d: a → b 2 5-5", "d: ab 3 5-9", "da: b 2 5-5"]);
    }

    /// Clients of quotas report the number of their requests.
    #[test]
    fn counts_saturate() {
        let counts = KeyPathCounts::default();
        for number in [u64::MAX, 2] {
            std::thread::scope(|scope| {
                _ = scope.spawn(|| counts.count("d", &[Entry { key: "k", value: "" }], number))
            });
        }
        assert_eq!(shown(&counts, 1).0, [format!("d: k {} 1-1", u64::MAX)]);
    }

    #[test]
    fn paths_beyond_the_bound_and_long_ones_share_one_count() {
        let counts = KeyPathCounts::default();
        count(&counts, "d", &[(&"k".repeat(TEXT_BYTES_MAX), "")]);
        for key in 0..KEY_PATHS_MAX + 10 {
            count(&counts, "d", &[(&format!("key{key}"), "")]);
        }
        // Another thread counts the same paths by itself.
        std::thread::scope(|scope| _ = scope.spawn(|| count(&counts, "d", &[("key7", "")])));
        let (paths, others) = shown(&counts, 1);
        assert_eq!((paths.len(), others), (KEY_PATHS_MAX, 11));
        assert!(paths.contains(&"d: key7 2 1-1".to_owned()));
    }
}
