//! The setting of a case: a limiter, copies of its counters, and the work of the threads.
//!
//! Every limit admits [`LIMIT`] hits at once; reloads change its window, so that counters are converted, and not the
//! number. Time stands at [`NOW`] for all threads: only the order of events differs.

use shuttle::{sync::Mutex, thread};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};
use tidegate_core::{
    algorithm::State,
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Fingerprint, Key, OnFull, PageCopies, Seed, Store, StoreSettings, Wanted},
};

/// Hits that fit on one counter.
pub const LIMIT: u32 = 3;

/// The counters that cases use.
pub const VALUES: [&str; 7] = ["a", "b", "c", "d", "e", "x", "y"];

/// 15 November 2023.
const NOW: Timestamp = Timestamp::from_nanos(1_700_006_400_000_000_000);

/// A month before: what was counted then has expired.
const LONG_AGO: Timestamp = Timestamp::from_nanos(1_697_414_400_000_000_000);

pub struct World {
    limiter: Limiter,
    /// The copies, as a snapshot would have them.
    kept: Mutex<BTreeMap<Key, State>>,
}

/// Logs take the general path; cases about the fast path use another algorithm.
const ALGORITHM: &str = "sliding_log";

fn rules(window: &str, algorithm: &str) -> [Source; 1] {
    let limit = format!("requests_per_unit: {LIMIT}, per: {window}, algorithm: {algorithm}");
    let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{{limit}}}}}]");
    [Source::file("model.yaml", text)]
}

impl World {
    /// A world in which so many hits have been taken on these counters.
    pub fn new(taken: &[(&str, u32)]) -> Arc<Self> {
        Self::with_room_for(1_000, taken)
    }

    /// The same, counted by another algorithm.
    pub fn counting_by(algorithm: &str, taken: &[(&str, u32)]) -> Arc<Self> {
        Self::made_of(1_000, algorithm, taken)
    }

    /// The same, with room for `counters_max` counters.
    pub fn with_room_for(counters_max: usize, taken: &[(&str, u32)]) -> Arc<Self> {
        Self::made_of(counters_max, ALGORITHM, taken)
    }

    fn made_of(counters_max: usize, algorithm: &str, taken: &[(&str, u32)]) -> Arc<Self> {
        let seed = Seed::from_bytes([5; 16]);
        let first = RuleSet::parse(&rules("1d", algorithm), &LoadOptions::default()).expect("good rules");
        let store = StoreSettings { seed, counters_max, on_full: OnFull::Deny };
        let world = Self { limiter: Limiter::new(first, store, false), kept: Mutex::default() };
        for &(value, hits) in taken {
            (0..hits).for_each(|_| assert!(world.admits(&[value])));
        }
        Arc::new(world)
    }

    /// Makes counters that have expired and were not dropped yet.
    pub fn leave_expired(&self, values: &[&str]) {
        values.iter().for_each(|value| assert_eq!(self.decide(&[value], Hits::ONE, LONG_AGO).0, Code::Ok));
    }

    /// Takes one hit of each counter, in this order; returns whether it is admitted.
    pub fn admits(&self, values: &[&str]) -> bool {
        self.decide(values, Hits::ONE, NOW).0 == Code::Ok
    }

    /// Used hits.
    pub fn used(&self, value: &str) -> u32 {
        LIMIT - self.decide(&[value], Hits::Peek, NOW).1
    }

    fn decide(&self, values: &[&str], hits: Hits, now: Timestamp) -> (Code, u32) {
        let mut request = Request::new("d");
        for &value in values {
            let entries = [Entry { key: "k", value }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits });
        }
        let request = request.checked(&RequestLimits::default()).expect("a good request");
        let pinned = self.limiter.pin();
        let decision = pinned.decide(&request, now);
        (decision.code, decision.statuses[0].remaining)
    }

    /// Sweeps all shards, as the sweeper does.
    pub fn sweep(&self) {
        for shard in self.shards_in_use() {
            while !self.store().sweep(shard, 1, NOW).finished {}
        }
    }

    /// As the snapshots do: two passes over what changed.
    pub fn copy_twice(&self) {
        for _ in 0..2 {
            self.shards_in_use().into_iter().for_each(|shard| self.copy(shard));
        }
    }

    fn copy(&self, shard: usize) {
        let (mut copies, mut next) = (PageCopies::new(), Some(0));
        while let Some(from) = next {
            // The lock is released before the copies are written.
            next = self.store().lock(shard).copy_pages(from, Wanted::Changed, &mut copies);
            let mut kept = self.kept.lock().expect("no thread panics with it");
            for (keys, counters) in copies.iter() {
                kept.retain(|&key, _| Store::shard_of(key) != shard || !keys.contain(key));
                kept.extend(counters.iter().map(|(key, counter)| (*key, counter.state().into_owned())));
            }
        }
    }

    /// Puts other rules in force, and then the first rules again.
    pub fn reload_twice(&self) {
        for window in ["2d", "1d"] {
            let next = self.limiter.update_rules().build(&rules(window, ALGORITHM), &LoadOptions::default());
            drop(next.expect("good rules").put_in_force());
        }
    }

    pub fn store(&self) -> &Store {
        self.limiter.store()
    }

    /// Number of counters that exist or are reserved, as the store counts them.
    pub fn counters(&self) -> usize {
        self.store().counters()
    }

    /// The counters.
    pub fn held(&self) -> BTreeMap<Key, State> {
        let mut held = BTreeMap::new();
        for shard in self.shards_in_use() {
            let shard = self.store().lock(shard);
            held.extend(shard.iter().map(|(key, counter)| (key, counter.state().into_owned())));
        }
        held
    }

    pub fn kept(&self) -> BTreeMap<Key, State> {
        self.kept.lock().expect("no thread panics with it").clone()
    }

    /// The shards of [`VALUES`], in their order: the others stay empty, and locking them would only hide the schedules
    /// that matter among those that do not.
    fn shards_in_use(&self) -> BTreeSet<usize> {
        let shard = |value: &&str| {
            let mut key = Fingerprint::new(self.store().seed());
            // As the limiter makes the key of a limit that is alone on its rule.
            key.number(0);
            ["d", "k", value].iter().for_each(|part| key.text(part));
            Store::shard_of(key.finish())
        };
        let shards: BTreeSet<usize> = VALUES.iter().map(shard).collect();
        assert_eq!(shards.len(), VALUES.len(), "each value lies in a shard of its own");
        shards
    }
}

/// Runs each piece of work in a thread of its own; returns their results, in their order.
pub fn in_threads<T: Send + 'static, W>(works: impl IntoIterator<Item = W>) -> Vec<T>
where
    W: FnOnce() -> T + Send + 'static,
{
    let threads: Vec<_> = works.into_iter().map(thread::spawn).collect();
    threads.into_iter().map(|thread| thread.join().expect("no thread panics")).collect()
}
