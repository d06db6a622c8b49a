//! Slots of requests in flight: taken over several counters and released by ticket, some twice, beside each other.

use crate::{under_many_schedules, world::in_threads};
use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

const LIMIT: u32 = 2;

const RULES: &str = "
domain: d
descriptors: [{key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 2}}]
";

/// 15 November 2023.
const NOW: Timestamp = Timestamp::from_nanos(1_700_006_400_000_000_000);

/// A limiter, and how many requests are in flight in each of the counters `a` and `b`.
struct World {
    limiter: Limiter,
    in_flight: [AtomicU32; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let rules = RuleSet::parse(&[Source::file("model.yaml", RULES)], &LoadOptions::default());
        let seed = Seed::from_bytes([5; 16]);
        let store = StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny };
        let limiter = Limiter::new(rules.expect("good rules"), store, false);
        Arc::new(Self { limiter, in_flight: array::from_fn(|_| AtomicU32::new(0)) })
    }

    fn decide(&self, entries: &[(&str, &str)], hits: Hits) -> (Code, u32, Option<String>) {
        let mut request = Request::new("d");
        for &(key, value) in entries {
            let entries = [Entry { key, value }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits });
        }
        let pinned = self.limiter.pin();
        let decision = pinned.decide(&request, NOW);
        (decision.code, decision.statuses[0].remaining, decision.slot.map(|slot| slot.ticket.into()))
    }

    /// Takes a slot of each of these counters, and releases it so many times; returns whether it was admitted.
    fn is_in_flight(&self, counters: &[usize], releases: usize) -> bool {
        let names = ["a", "b"];
        let entries: Vec<_> = counters.iter().map(|&counter| ("k", names[counter])).collect();
        let (_, _, ticket) = self.decide(&entries, Hits::ONE);
        let Some(ticket) = ticket else { return false };
        for &counter in counters {
            let now = self.in_flight[counter].fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= LIMIT, "{now} in flight");
        }
        counters.iter().for_each(|&counter| _ = self.in_flight[counter].fetch_sub(1, Ordering::SeqCst));
        (0..releases).for_each(|_| _ = self.decide(&[("slot", &ticket)], Hits::ONE));
        true
    }

    fn free(&self) -> [u32; 2] {
        ["a", "b"].map(|name| self.decide(&[("k", name)], Hits::Peek).1)
    }
}

#[test]
fn no_more_are_in_flight_than_the_limit_and_all_slots_are_free_in_the_end() {
    under_many_schedules(|| {
        let world = World::new();
        let requests: [(&[usize], usize); 5] =
            [(&[0, 1], 1), (&[1, 0], 2), (&[0], 1), (&[1], 3), (&[0, 1], 1)];
        in_threads(requests.map(|(counters, releases)| {
            let world = Arc::clone(&world);
            move || (0..2).for_each(|_| _ = world.is_in_flight(counters, releases))
        }));
        assert_eq!(world.free(), [LIMIT; 2]);
    });
}
