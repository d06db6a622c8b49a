//! Counts of some descriptors by domain and by the path of their keys. [`super::Meters`] counts descriptors without a limit so, and
//! descriptors whose entry for the day of their windows is not a day.
//!
//! Invariants: values are never kept; at most [`KEY_PATHS_MAX`] paths are counted apart, and the others share one count; all other
//! decisions skip this code. A count takes a lock for which only readers contend. The first count of a path in a thread, and each count of
//! a path beyond the bound, also allocates and takes a lock that threads share.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};
use tidegate_core::limit::{Entry, Timestamp};
use tidegate_counts::CountsByText;

/// Paths that are counted apart.
pub const KEY_PATHS_MAX: usize = 256;

/// The most bytes of a domain and of a path's keys. Longer ones count among the others.
const TEXT_BYTES_MAX: usize = 512;

/// Counts of descriptors by domain and keys.
pub struct KeyPathCounts {
    /// Those of the others have an empty text.
    by_path: CountsByText<CountedKeyPath>,
    /// As of the last [`Self::read`].
    read: Mutex<Paths>,
}

/// Paths by their texts in [`KeyPathCounts::by_path`].
type Paths = BTreeMap<Box<str>, CountedKeyPath>;

/// Counted descriptors of a domain with the same keys.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
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

impl Default for KeyPathCounts {
    fn default() -> Self {
        Self { by_path: CountsByText::new(KEY_PATHS_MAX), read: Mutex::default() }
    }
}

impl KeyPathCounts {
    /// Counts descriptors of a domain with these entries.
    pub(super) fn count(&self, domain: &str, entries: &[Entry<'_>], number: u64) {
        let keys = || entries.iter().map(|entry| entry.key);
        let is_long = domain.len() + keys().map(str::len).sum::<usize>() > TEXT_BYTES_MAX;
        let write = |text: &mut String, is_other| {
            if is_other || is_long {
                return;
            }
            for part in std::iter::once(domain).chain(keys()) {
                // The length first, so that the texts of any two paths differ.
                text.extend(char::from_u32(part.len() as u32));
                text.push_str(part);
            }
        };
        let make = |is_other| match is_other {
            true => CountedKeyPath::default(),
            false => CountedKeyPath {
                domain: domain.into(),
                keys: keys().map(Into::into).collect(),
                ..CountedKeyPath::default()
            },
        };
        let add = |path: &mut CountedKeyPath| path.count = path.count.saturating_add(number);
        self.by_path.of_thread().add(write, make, add);
    }

    /// The paths in the order of domains and keys, and the number of descriptors with other paths. `now` is noted as the time of
    /// descriptors since the last reading.
    pub fn read(&self, now: Timestamp) -> (Vec<CountedKeyPath>, u64) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut paths, others) = self.sums();
        for (text, path) in &mut paths {
            let before = read.get(text);
            path.first = before.map_or(now, |before| before.first);
            path.last = before.filter(|before| before.count == path.count).map_or(now, |before| before.last);
        }
        read.clone_from(&paths);
        (listed(paths), others)
    }

    /// The paths and the number of others, with the times of the last [`Self::read`].
    pub fn counted(&self) -> (Vec<CountedKeyPath>, u64) {
        let (mut paths, others) = self.sums();
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        for (text, CountedKeyPath { first, last, .. }) in &*read {
            if let Some(path) = paths.get_mut(text) {
                (path.first, path.last) = (*first, *last);
            }
        }
        (listed(paths), others)
    }

    fn sums(&self) -> (Paths, u64) {
        let mut sums = Paths::new();
        self.by_path.for_each(|text, path| match sums.get_mut(text) {
            Some(sum) => sum.count = sum.count.saturating_add(path.count),
            None => _ = sums.insert(text.into(), path.clone()),
        });
        let others = sums.remove("").map_or(0, |others| others.count);
        (sums, others)
    }
}

fn listed(paths: Paths) -> Vec<CountedKeyPath> {
    let mut paths: Vec<CountedKeyPath> = paths.into_values().collect();
    paths.sort_unstable();
    paths
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
