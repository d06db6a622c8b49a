//! The numbers of decisions: in the order in which decisions changed counters.

use super::*;
use crate::limiter::fast_path::tests::{KEYS, RULES, drawn_descriptor};

const THREADS: u64 = 4;
const REQUESTS: u64 = 1_500;

/// A few descriptors that depend on the thread and the number of the request alone.
fn request(thread: u64, number: u64) -> Request<'static> {
    let mut bits = (thread << 32 | number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut below = |bound: u64| {
        bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (bits >> 33) % bound
    };
    let mut request = Request::new("d");
    for _ in 0..=below(3) {
        let (key, value) = (below(KEYS.len() as u64) as usize, below(2) as u8);
        request.push(drawn_descriptor((key, value, below(4) as u8, below(20) as u8)));
    }
    request
}

/// Times of the threads differ by milliseconds, so that their order is not that of the decisions.
fn time(thread: u64, number: u64) -> Timestamp {
    Timestamp::from_millis(MIDNIGHT_MILLIS + number * 20 + thread * 7)
}

#[test]
fn decisions_of_many_threads_are_reproduced_in_the_order_of_their_numbers() {
    let concurrent = limiter(RULES).with_numbered_decisions();
    let mut decided: Vec<(u64, (u64, u64), String)> = std::thread::scope(|scope| {
        let decide = |thread: u64| {
            let limiter = &concurrent;
            let decide_one = move |number| {
                let rules = limiter.pin();
                let decision = rules.decide(&request(thread, number), time(thread, number));
                (decision.number, (thread, number), format!("{:?} {:?}", decision.code, decision.statuses))
            };
            (0..REQUESTS).map(decide_one).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || decide(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    decided.sort_unstable();
    let numbers = decided.iter().map(|(number, ..)| *number);
    assert!(numbers.eq(1..=THREADS * REQUESTS), "each decision has a number of its own");
    let again = limiter(RULES);
    for (number, (thread, of_thread), expected) in decided {
        let rules = again.pin();
        let decision = rules.decide(&request(thread, of_thread), time(thread, of_thread));
        assert_eq!(format!("{:?} {:?}", decision.code, decision.statuses), expected, "number {number}");
    }
}
