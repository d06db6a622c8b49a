//! A decision allocates nothing once its counters exist, with every algorithm whose state is two words.
//!
//! A test program of its own, because it counts allocations of the whole process.

#[path = "it/support/limiter.rs"]
mod limiter;

use allocation_counter::measure;
use limiter::{limiter, limiter_with_room};
use smallvec::SmallVec;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    store::OnFull,
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

/// A hundred thousand keys with ten requests in flight each take at most 300 bytes a key: the counter, its part of the table, and its slots.
#[test]
fn a_key_with_ten_requests_in_flight_takes_at_most_three_hundred_bytes() {
    const KEYS: u64 = 100_000;
    let rules = "
domain: edge
descriptors:
  - { key: user, rate_limit: { algorithm: concurrency, requests_in_flight: 10 } }
";
    let limiter = limiter_with_room(rules, 2 * KEYS as usize, OnFull::Deny);
    let held = measure(|| {
        let users = (0..KEYS * 10).map(|index| format!("{:05}", index % KEYS));
        for (index, user) in users.enumerate() {
            let mut request = Request::new("edge");
            let entries = [Entry { key: "user", value: &user }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
            let now = Timestamp::from_nanos(at(0).as_nanos() + index as u64);
            assert!(limiter.pin().decide(&request, now).slot.is_some());
        }
    });
    let bytes = held.bytes_current / KEYS as i64;
    assert!((200..=300).contains(&bytes), "{bytes} bytes a key");
}

/// Decisions that are logged, or left out of the sample.
mod logged {
    use super::{limiter, measure, request};
    use std::{path::PathBuf, sync::Arc};
    use tidegate_core::{
        clock::{Clock, SystemClock},
        limit::{Hits, Request, RequestLimits},
        rules::Redaction,
    };
    use tidegate_operations::telemetry::{
        DecisionLog, DecisionLogSettings, Rotation, RulesText, SampleRate, Target,
    };
    use tidegate_service::{CallOrigin, RateLimitService};

    /// Allocations of the thread that decides, for this many decisions of which a share is logged, and the number of lines written.
    fn allocations(share: f64, decisions: usize) -> (u64, u64) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let sample = SampleRate::new(share).expect("a share");
        let settings = DecisionLogSettings {
            target: Target::File(PathBuf::from("/dev/null")),
            sample,
            sample_denials: sample,
            rotation: Rotation::default(),
            queue_bytes: 1 << 20,
            values: Redaction::Plain,
            salt: Vec::new(),
            rules_text: RulesText::Auto,
        };
        let log = DecisionLog::start(settings, Arc::clone(&clock)).expect("a device that takes all");
        let limiter = Arc::new(limiter(super::RULES));
        log.set_limiter(&limiter);
        let service = RateLimitService::new(limiter, clock, RequestLimits::default())
            .with_readers(vec![Arc::new(log.clone())]);
        let calls: Vec<Request<'_>> =
            ["sliding_window", "several", "no_rule"].map(|key| request(&[key], Hits::ONE)).into();
        let decide = |decisions: usize| {
            for _ in 0..decisions / calls.len() {
                service.decide_batch(&calls, |call| call, |_| CallOrigin::default(), |_, _| {});
            }
        };
        // Makes the counters, and both halves of the queue's memory, which the writer exchanges.
        decide(100_000);
        let counted = measure(|| decide(decisions)).count_total;
        log.finish();
        (counted, log.written())
    }

    #[test]
    fn a_decision_that_is_not_in_the_sample_allocates_nothing() {
        assert_eq!(allocations(0.0, 30_000), (0, 0));
    }

    /// The facts of a decision are copied to memory of the queue that is reused.
    #[test]
    fn a_logged_decision_allocates_nothing() {
        let (counted, written) = allocations(1.0, 3_000);
        assert!(written > 1_000, "{written} lines");
        assert_eq!(counted, 0);
    }
}
