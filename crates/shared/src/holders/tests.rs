//! Decisions by credits in hand, for rules of a domain, against the store's side in memory.

use super::*;
use crate::lease::{Epoch, ExactDecision, SharedCounter};
use std::collections::BTreeMap;
use tidegate_core::{
    limit::{Descriptor, Entry as DescriptorEntry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

const RULES: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 100000 } }
  - { key: b, rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: sliding_log } }
  - { key: small, rate_limit: { unit: hour, requests_per_unit: 2 } }
  - { key: always, rate_limit: { unit: hour, requests_per_unit: 1000, charge: always } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1000 } }
";

/// A server with its holders, and a store.
struct World {
    limiter: Limiter,
    holders: Holders,
    store: BTreeMap<Key, SharedCounter>,
    millis: u64,
}

fn rule_set(rules: &str) -> RuleSet {
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    RuleSet::parse(&[Source::file("r.yaml", rules.to_owned())], &options).unwrap()
}

fn request(keys: &[&'static str]) -> Request<'static> {
    let mut request = Request::new("d");
    for key in keys {
        let entries = [DescriptorEntry { key, value: "" }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::new(Some(1), 0, false) });
    }
    request
}

impl World {
    fn new() -> Self {
        let store =
            StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 10, on_full: OnFull::Deny };
        Self {
            limiter: Limiter::new(rule_set(RULES), store, false),
            holders: Holders::new(Settings::default(), 1),
            store: BTreeMap::new(),
            millis: 1_000,
        }
    }

    fn now(&self) -> Monotonic {
        Monotonic::from_nanos(self.millis * 1_000_000)
    }

    fn decide(&self, keys: &[&'static str]) -> Option<Code> {
        let pinned = self.limiter.pin();
        let charges = pinned.leasable(&request(keys))?;
        self.holders.decide(&charges, || self.now()).map(|decision| decision.code)
    }

    /// Exchanges the messages that are due, after some time.
    fn exchange(&mut self, millis: u64) -> usize {
        self.millis += millis;
        let (now, store_now) = (self.now(), Timestamp::from_millis(1_700_000_000_000 + self.millis));
        let due = self.holders.due(now);
        for due in &due {
            let terms = Terms { algorithm: &due.algorithm, settings: self.holders.settings };
            let counter = self.store.entry(due.key).or_default();
            let epoch = Epoch { id: 1, began: Timestamp::EPOCH };
            let response = counter.lease(terms, epoch, &due.request, store_now);
            self.holders.accept(due, &response.unwrap(), None, now);
        }
        due.len()
    }

    fn calls(&self, keys: &[&'static str], calls: usize) -> Vec<Option<Code>> {
        (0..calls).map(|_| self.decide(keys)).collect()
    }
}

#[test]
fn a_hot_counter_is_decided_by_credits_and_a_cold_one_by_the_store() {
    let mut world = World::new();
    assert_eq!(world.calls(&["a"], 40), [None; 40]);
    assert_eq!(world.calls(&["b"], 3), [None; 3]);
    assert_eq!(world.exchange(5), 1);
    assert_eq!(world.calls(&["a"], 20), [Some(Code::Ok); 20]);
    assert_eq!(world.decide(&["b"]), None);
    assert_eq!(world.holders.counts.events.sum(LeaseEvent::Admitted), 20);
}

#[test]
fn several_counters_are_charged_together_or_not_at_all() {
    let mut world = World::new();
    for keys in [["a"], ["b"]] {
        world.calls(&keys, 40);
    }
    world.exchange(5);
    let credits = |world: &World| {
        let holders = world.holders.shards.iter().flat_map(|shard| {
            let shard = shard.lock();
            shard.entries.values().map(|entry| entry.holder.credits(world.now())).collect::<Vec<_>>()
        });
        holders.collect::<Vec<_>>()
    };
    let before = credits(&world);
    assert_eq!(world.decide(&["a", "b"]), Some(Code::Ok));
    let after = credits(&world);
    assert!(before.iter().zip(&after).all(|(before, after)| *before == after + 1), "{before:?}, {after:?}");
    // The store has to decide one descriptor: no credit of the other is spent.
    assert_eq!(world.decide(&["a", "small"]), None);
    assert_eq!(credits(&world), after);
}

/// If every request for a counter also has a counter that is not leased, its credits would never be spent, and other servers would lack
/// them.
#[test]
fn no_credits_are_requested_for_requests_that_the_store_decides() {
    let mut world = World::new();
    for _ in 0..100 {
        assert_eq!(world.decide(&["a", "small"]), None);
        world.exchange(2);
    }
    let pinned = world.limiter.pin();
    let charges = pinned.leasable(&request(&["a"])).unwrap();
    let counter = world.store.get(&charges[0].as_ref().unwrap().key());
    assert_eq!(counter.map_or(0, |counter| counter.leases().iter().map(|lease| lease.outstanding).sum()), 0);
}

#[test]
fn rules_that_count_or_admit_denied_requests_are_not_leased() {
    let world = World::new();
    let pinned = world.limiter.pin();
    let is_leasable = |keys: &[&'static str]| pinned.leasable(&request(keys)).is_some();
    assert!(is_leasable(&["a", "b"]) && is_leasable(&["a", "unknown"]));
    assert!(!is_leasable(&["always"]) && !is_leasable(&["shadow"]) && !is_leasable(&["a", "always"]));
    assert!(!is_leasable(&["a", "a"]), "one counter twice");
    assert!(!is_leasable(&["unknown"]), "nothing to decide");
}

#[test]
fn credits_of_a_former_rule_are_released_under_the_new_one() {
    let mut world = World::new();
    world.calls(&["a"], 40);
    world.exchange(5);
    assert_eq!(world.decide(&["a"]), Some(Code::Ok));
    let changed = RULES.replace("100000", "50");
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let sources = [Source::file("r.yaml", changed)];
    drop(world.limiter.update_rules().build(&sources, &options).unwrap().put_in_force());
    assert_eq!(world.decide(&["a"]), None);
    assert_eq!(world.exchange(1), 1);
    let counter = world.store.values().next().unwrap();
    assert_eq!(counter.leases(), []);
    assert_eq!(world.decide(&["a"]), None);
}

fn denial(hits: u64, remaining: u64, wait: Duration) -> StoreDenial {
    StoreDenial { hits, remaining, denied_for: wait, reset: wait, state: None }
}

/// A limit of 10 of which 8 are used, and requests for 5.
#[test]
fn a_kept_denial_reports_the_hits_that_remain() {
    let world = World::new();
    let pinned = world.limiter.pin();
    let mut five = request(&["small"]);
    five = {
        let mut changed = Request::new("d");
        let entries = five.descriptors()[0].entries.clone();
        changed.push(Descriptor { entries, limit: None, hits: Hits::new(Some(5), 0, false) });
        changed
    };
    let charges = pinned.leasable(&five).unwrap();
    let wait = Duration::from_mins(10);
    world.holders.keep_denial(charges[0].as_ref().unwrap(), denial(5, 2, wait), Holders::now());
    let decision = world.holders.decide(&charges, Holders::now).expect("the denial is kept");
    assert_eq!((decision.code, decision.statuses[0].remaining), (Code::OverLimit, 2));
    let one = pinned.leasable(&request(&["small"])).unwrap();
    assert!(world.holders.decide(&one, Holders::now).is_none(), "fewer hits may fit");
}

#[test]
fn a_denial_is_kept_and_dropped_by_a_give_back() {
    let world = World::new();
    let pinned = world.limiter.pin();
    let charges = pinned.leasable(&request(&["small"])).unwrap();
    let charge = charges[0].as_ref().unwrap();
    let now = Holders::now();
    world.holders.keep_denial(charge, denial(1, 0, Duration::from_mins(10)), now);
    let decide = || world.holders.decide(&charges, Holders::now).map(|decision| decision.code);
    assert_eq!(decide(), Some(Code::OverLimit));
    world.holders.drop_denial(charge.key());
    assert_eq!(decide(), None);
}

#[test]
fn holders_without_demand_are_dropped() {
    let mut world = World::new();
    world.calls(&["a"], 40);
    world.exchange(5);
    assert!(!world.holders.is_empty());
    (0..400).for_each(|_| _ = world.exchange(10));
    assert!(world.holders.is_empty());
    let counter = world.store.values_mut().next().unwrap();
    let algorithm = world.limiter.pin().leasable(&request(&["a"])).unwrap()[0].unwrap().algorithm().clone();
    let terms = Terms { algorithm: &algorithm, settings: Settings::default() };
    let epoch = Epoch { id: 1, began: Timestamp::EPOCH };
    let now = Timestamp::from_millis(1_700_000_000_000 + world.millis);
    let decision = counter.decide(terms, epoch, 0, now);
    assert!(matches!(decision, ExactDecision::Admitted { free: 100_000, .. }), "{decision:?}");
}

/// Readings of two threads: one was suspended between its reading and the decision, for longer than a lease.
#[test]
fn the_clock_is_read_while_the_counter_is_locked() {
    let mut world = World::new();
    world.calls(&["a"], 40);
    world.exchange(5);
    let pinned = world.limiter.pin();
    let charges = pinned.leasable(&request(&["a"])).unwrap();
    let is_locked =
        || world.holders.shards[shard_of(charges[0].as_ref().unwrap().key())].try_lock().is_none();
    let decided = world.holders.decide(&charges, || {
        assert!(is_locked(), "another thread could report in between");
        world.now()
    });
    assert_eq!(decided.map(|decision| decision.code), Some(Code::Ok));
    let both = pinned.leasable(&request(&["a", "b"])).unwrap();
    world.holders.decide(&both, || {
        assert!(is_locked());
        world.now()
    });
}

#[test]
fn holders_are_bounded_and_the_store_decides_beyond() {
    let mut world = World::new();
    world.holders.holders.store(HOLDERS_MAX, Ordering::Relaxed);
    assert_eq!(world.calls(&["a"], 100), [None; 100]);
    assert_eq!(world.exchange(5), 0, "no holder");
    assert_eq!(world.holders.holders.load(Ordering::Relaxed), HOLDERS_MAX);
    world.holders.holders.store(HOLDERS_MAX - 1, Ordering::Relaxed);
    assert_eq!(world.calls(&["a"], 100), [None; 100]);
    assert_eq!(world.exchange(5), 1);
}
