//! The keys with the most hits of a stream, in bounded memory: the Space-Saving algorithm (Metwally, Agrawal, El Abbadi, 2005).
//! Pure: no clock, no randomness.
//!
//! Invariants, with `total` hits added to a sketch of `capacity` keys:
//!
//! - A kept key has at most `hits` hits, and at least `hits - error`.
//! - Any other key has at most `absent_max` hits.
//! - `error` and `absent_max` are at most `total / capacity`. In merged sketches they are at most the sum of those before keys were
//!   dropped.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use std::hash::{BuildHasher as _, Hash};

/// Hashes keys. Keys that collide on purpose slow down only their lane, whose number of samples is bounded.
const STATE: FixedState = FixedState::with_seed(0);

/// Hits of one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Upper bound of its hits.
    pub hits: u64,
    /// Hits that may belong to other keys.
    pub error: u64,
}

/// Counts the hits of keys.
#[derive(Debug)]
pub struct Sketch<K> {
    capacity: usize,
    counted: Vec<Counted<K>>,
    /// The position of each key.
    by_key: HashTable<usize>,
    /// The fewest hits of a key when they were last searched. All keys before `next` have more: hits grow, and a key that
    /// replaces another begins with more.
    fewest: u64,
    next: usize,
    total: u64,
}

#[derive(Debug)]
struct Counted<K> {
    key: K,
    hash: u64,
    estimate: Estimate,
}

/// The keys of one or several sketches.
#[derive(Clone, Debug)]
pub struct Summary<K> {
    /// Kept keys, in no order.
    pub keys: HashMap<K, Estimate, FixedState>,
    /// Upper bound of the hits of each other key.
    pub absent_max: u64,
    /// Hits of all keys.
    pub total: u64,
}

impl<K: Hash + Eq + Clone> Sketch<K> {
    /// An empty sketch. Its memory grows as keys are added.
    pub fn new(capacity: usize) -> Self {
        Self { capacity, counted: Vec::new(), by_key: HashTable::new(), fewest: 0, next: 0, total: 0 }
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Adds hits of a key. `key` makes the key if it is not kept yet.
    pub fn add<Q: Hash + hashbrown::Equivalent<K> + ?Sized>(
        &mut self,
        borrowed: &Q,
        hits: u64,
        key: impl FnOnce() -> K,
    ) {
        self.total = self.total.saturating_add(hits);
        let hash = STATE.hash_one(borrowed);
        let is_key = |one: &usize| {
            let one = &self.counted[*one];
            one.hash == hash && borrowed.equivalent(&one.key)
        };
        if let Some(&one) = self.by_key.find(hash, is_key) {
            let estimate = &mut self.counted[one].estimate;
            estimate.hits = estimate.hits.saturating_add(hits);
            return;
        }
        let index = if self.counted.len() < self.capacity {
            self.counted.push(Counted { key: key(), hash, estimate: Estimate { hits, error: 0 } });
            self.counted.len() - 1
        } else {
            let Some(index) = self.with_fewest() else { return };
            let one = &mut self.counted[index];
            if let Ok(entry) = self.by_key.find_entry(one.hash, |other| *other == index) {
                entry.remove();
            }
            let estimate = Estimate { hits: self.fewest.saturating_add(hits), error: self.fewest };
            *one = Counted { key: key(), hash, estimate };
            index
        };
        self.by_key.insert_unique(hash, index, |one| self.counted[*one].hash);
    }

    /// The position of a key with the fewest hits. Keys with equally many are found in one pass.
    fn with_fewest(&mut self) -> Option<usize> {
        let hits = |one: &Counted<K>| one.estimate.hits;
        match self.counted[self.next..].iter().position(|one| hits(one) == self.fewest) {
            Some(steps) => self.next += steps,
            None => {
                (self.next, self.fewest) =
                    self.counted.iter().map(hits).enumerate().min_by_key(|(_, hits)| *hits)?;
            }
        }
        Some(self.next)
    }

    /// Returns the hits added so far, and empties the sketch.
    pub fn take(&mut self) -> Summary<K> {
        let is_full = self.counted.len() == self.capacity;
        let absent_max = if is_full { self.counted.iter().map(|one| one.estimate.hits).min() } else { None };
        self.by_key.clear();
        let keys = self.counted.drain(..).map(|one| (one.key, one.estimate)).collect();
        (self.fewest, self.next) = (0, 0);
        Summary { keys, absent_max: absent_max.unwrap_or(0), total: std::mem::take(&mut self.total) }
    }
}

impl<K> Default for Summary<K> {
    fn default() -> Self {
        Self { keys: HashMap::default(), absent_max: 0, total: 0 }
    }
}

impl<K: Hash + Eq + Clone> Summary<K> {
    /// Merges the keys of both. If one of them does not keep a key, the key may have had as many hits there as its bound.
    pub fn merge(&mut self, other: &Self) {
        let unknown = |bound: u64| Estimate { hits: bound, error: bound };
        for (key, theirs) in &other.keys {
            let ours = self.keys.entry(key.clone()).or_insert(unknown(self.absent_max));
            *ours = Estimate {
                hits: ours.hits.saturating_add(theirs.hits),
                error: ours.error.saturating_add(theirs.error),
            };
        }
        for (key, ours) in &mut self.keys {
            if !other.keys.contains_key(key) {
                ours.hits = ours.hits.saturating_add(other.absent_max);
                ours.error = ours.error.saturating_add(other.absent_max);
            }
        }
        self.absent_max = self.absent_max.saturating_add(other.absent_max);
        self.total = self.total.saturating_add(other.total);
    }

    /// Drops the keys with the fewest hits beyond `capacity`.
    pub fn truncate(&mut self, capacity: usize) {
        if self.keys.len() <= capacity {
            return;
        }
        let mut hits: Vec<u64> = self.keys.values().map(|estimate| estimate.hits).collect();
        hits.sort_unstable_by(|one, other| other.cmp(one));
        let dropped_max = hits[capacity];
        // Some of several keys with equal hits may be dropped, so that the bound holds.
        let mut equal = hits[..capacity].iter().filter(|hits| **hits == dropped_max).count();
        self.keys.retain(|_, estimate| {
            let is_equal = estimate.hits == dropped_max;
            let keep = estimate.hits > dropped_max || (is_equal && equal > 0);
            equal -= usize::from(is_equal && keep);
            keep
        });
        self.absent_max = self.absent_max.max(dropped_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap as Exact;

    /// Zipf with exponent 1 over `keys` keys, from uniform numbers.
    fn zipf(keys: u64, uniform: &[f64]) -> Vec<u64> {
        let weights: Vec<f64> = (1..=keys).map(|rank| 1.0 / rank as f64).collect();
        let sum: f64 = weights.iter().sum();
        let mut cumulative = Vec::new();
        let mut total = 0.0;
        for weight in weights {
            total += weight / sum;
            cumulative.push(total);
        }
        let key = |number: &f64| cumulative.partition_point(|bound| bound < number) as u64;
        uniform.iter().map(key).collect()
    }

    fn check(summary: &Summary<u64>, exact: &Exact<u64, u64>, bound: u64) {
        assert_eq!(summary.total, exact.values().sum::<u64>());
        assert!(summary.absent_max <= bound, "{} > {bound}", summary.absent_max);
        for (key, hits) in exact {
            match summary.keys.get(key) {
                Some(Estimate { hits: most, error }) => {
                    assert!(most - error <= *hits && *hits <= *most, "{key}: {hits} of {most} - {error}");
                    assert!(*error <= bound, "{key}: {error} > {bound}");
                }
                None => assert!(*hits <= summary.absent_max, "{key}: {hits}"),
            }
        }
    }

    fn sketch_of(stream: &[u64], capacity: usize, exact: &mut Exact<u64, u64>) -> Summary<u64> {
        let mut sketch = Sketch::new(capacity);
        for (index, key) in stream.iter().enumerate() {
            let hits = 1 + index as u64 % 3;
            sketch.add(key, hits, || *key);
            *exact.entry(*key).or_default() += hits;
        }
        sketch.take()
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn estimates_are_within_the_bound_of_exact_counts_on_zipf_traffic(
            uniform in prop::collection::vec(0.0..1.0, 1..4_000),
            keys in 1..2_000u64,
            capacity in 1..128usize,
            sketches in 1..5usize,
        ) {
            let stream = zipf(keys, &uniform);
            let (mut exact, mut merged, mut bound) = (Exact::new(), Summary::default(), 0);
            for part in stream.chunks(stream.len().div_ceil(sketches)) {
                let (mut exact_of_part, of_part) = (Exact::new(), capacity as u64);
                let summary = sketch_of(part, capacity, &mut exact_of_part);
                check(&summary, &exact_of_part, summary.total / of_part);
                bound += summary.total / of_part;
                for (key, hits) in exact_of_part {
                    *exact.entry(key).or_default() += hits;
                }
                merged.merge(&summary);
            }
            check(&merged, &exact, bound);
            merged.truncate(capacity);
            prop_assert!(merged.keys.len() <= capacity);
            check(&merged, &exact, u64::MAX);
        }
    }

    /// The `count` keys with the most hits.
    fn top(mut hits: Vec<(u64, u64)>, count: usize) -> Vec<u64> {
        hits.sort_unstable_by_key(|(key, hits)| (std::cmp::Reverse(*hits), *key));
        hits.into_iter().map(|(key, _)| key).take(count).collect()
    }

    /// Four sketches of 1,024 keys, as with four threads, of 4 × 40,000 requests. Prints the rows of the table in docs/control.md.
    #[test]
    fn the_most_frequent_keys_are_found_with_small_errors() {
        let mut state = 1u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        println!("| keys | bound | greatest error | error of the top 20 | unlisted, at most |");
        for keys in [2_000, 20_000, 200_000] {
            let (mut exact, mut merged) = (Exact::new(), Summary::default());
            for _ in 0..4 {
                let stream = zipf(keys, &(0..40_000).map(|_| uniform()).collect::<Vec<_>>());
                merged.merge(&sketch_of(&stream, 1_024, &mut exact));
            }
            let bound = merged.total / 1_024;
            check(&merged, &exact, bound);
            let share = |hits: u64| format!("{:.3} %", hits as f64 * 100.0 / merged.total as f64);
            let error = |key: &u64| merged.keys[key].hits - exact[key];
            let mut expected = top(exact.iter().map(|(key, hits)| (*key, *hits)).collect(), 20);
            let mut found = top(merged.keys.iter().map(|(key, of)| (*key, of.hits)).collect(), 20);
            let greatest = merged.keys.keys().map(error).max().unwrap_or_default();
            let of_top = found.iter().map(error).max().unwrap_or_default();
            let [bound, greatest, of_top, absent] = [bound, greatest, of_top, merged.absent_max].map(share);
            println!("| {keys} | {bound} | {greatest} | {of_top} | {absent} |");
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, expected, "{keys} keys");
        }
    }
}
