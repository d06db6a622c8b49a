//! A decision allocates nothing once its counters are there, whatever the algorithm that keeps two words.
//!
//! A test program of its own, because it counts allocations of the whole process.

#[path = "it/support/limiter.rs"]
mod limiter;

use allocation_counter::measure;
use limiter::limiter;
use smallvec::SmallVec;
use tidegate::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
};

/// A key for each algorithm with a state of two words.
const RULES: &str = "
domain: edge
descriptors:
  - { key: sliding_window, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - { key: fixed_window, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: fixed_window } }
  - key: first_hit
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: fixed_window, aligned: first_hit }
  - { key: token_bucket, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: token_bucket } }
  - key: intervals
    rate_limit: { unit: minute, requests_per_unit: 5, algorithm: token_bucket, refill: intervals }
  - { key: leaky_bucket, rate_limit: { unit: minute, requests_per_unit: 5, algorithm: leaky_bucket } }
  - { key: always, rate_limit: { unit: minute, requests_per_unit: 5, charge: always } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 5 } }
  - key: several
    rate_limits: [{ unit: minute, requests_per_unit: 5 }, { unit: hour, requests_per_unit: 50 }]
  - { key: unlimited, rate_limit: { unlimited: true } }
";

const KEYS: [&str; 12] = [
    "sliding_window",
    "fixed_window",
    "first_hit",
    "token_bucket",
    "intervals",
    "leaky_bucket",
    "always",
    "shadow",
    "several",
    "unlimited",
    "no_rule",
    "sliding_window",
];

const MINUTE_NANOS: u64 = 60_000_000_000;

/// One request for these keys.
fn request(keys: &[&'static str], hits: Hits) -> Request<'static> {
    let mut request = Request::new("edge");
    for key in keys {
        let entries = [Entry { key, value: "a value that is longer than a word" }];
        request.push(Descriptor { entries: entries.into_iter().collect(), limit: None, hits });
    }
    request
}

/// Many windows end by these times.
fn at(step: u64) -> Timestamp {
    Timestamp::from_nanos(1_700_000_000_000_000_000 + step * MINUTE_NANOS / 7)
}

/// Requests that take, are denied, peek and give back, with one descriptor and several, one by one and in batches.
fn decide_all(limiter: &Limiter, steps: std::ops::Range<u64>) -> (u32, u32) {
    let (mut admitted, mut denied) = (0, 0);
    for step in steps {
        for hits in [Hits::ONE, Hits::new(Some(4), 0, false), Hits::Peek, Hits::new(Some(1), 0, true)] {
            let requests = KEYS.chunks(1).chain(KEYS.chunks(4)).map(|keys| request(keys, hits));
            let requests: SmallVec<[Request<'_>; 16]> = requests.collect();
            let mut count = |code| match code {
                Code::Ok => admitted += 1,
                Code::OverLimit => denied += 1,
            };
            let rules = limiter.pin();
            requests.iter().for_each(|request| count(rules.decide(request, at(step)).code));
            rules.decide_all(requests.iter(), at(step), |_, decision| count(decision.code));
        }
    }
    (admitted, denied)
}

#[test]
fn a_decision_allocates_nothing_once_its_counters_exist() {
    let limiter = limiter(RULES);
    decide_all(&limiter, 0..1);
    let mut decided = (0, 0);
    let allocations = measure(|| decided = decide_all(&limiter, 1..50));
    assert_eq!(allocations.count_total, 0, "{decided:?} were admitted and denied");
    assert!(decided.0 > 1_000 && decided.1 > 500, "{decided:?} were admitted and denied");
}

#[test]
fn a_new_counter_allocates_so_that_the_count_is_known_to_count() {
    let limiter = limiter(RULES);
    let request = request(&["sliding_window"], Hits::ONE);
    assert!(measure(|| _ = limiter.pin().decide(&request, at(0))).count_total > 0);
}
