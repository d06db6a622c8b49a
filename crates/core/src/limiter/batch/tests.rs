use super::*;
use crate::{
    limit::{Code, Descriptor, Hits},
    limiter::{
        Due, QueueDecision,
        fast_path::tests::{Drawn, KEYS, RULES, counters, drawn_descriptor, limiter},
        tests::descriptor,
    },
};
use proptest::{collection::vec, prelude::*};
use std::time::Duration;

/// A rule with a queue.
const QUEUE: &str = "  - { key: queue, rate_limit: { per: 1s, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 9s } }\n";

/// Domains of requests; the last has no rules.
const DOMAINS: [&str; 2] = ["d", "unknown"];

fn request(domain: usize, drawn: Vec<Drawn>) -> Request<'static> {
    let mut request = Request::new(DOMAINS[domain]);
    drawn.into_iter().for_each(|drawn| request.push(drawn_descriptor(drawn)));
    request
}

fn requests() -> impl Strategy<Value = Vec<Request<'static>>> {
    let drawn = vec((0..KEYS.len(), 0..2u8, 0..8u8, 0..40u8), 1..6);
    let domain = prop_oneof![9 => Just(0), 1 => Just(1)];
    vec((domain, drawn).prop_map(|(domain, drawn)| request(domain, drawn)), 1..20)
}

proptest! {
    #[test]
    fn a_batch_is_decided_as_its_requests_one_by_one(
        steps in vec((0..8_000u64, requests()), 1..8),
        queues in any::<bool>(),
        global_shadow in any::<bool>(),
    ) {
        let rules = [RULES, if queues { QUEUE } else { "" }].concat();
        let (mut batched, mut one_by_one) = (limiter(&rules), limiter(&rules));
        (batched.global_shadow, one_by_one.global_shadow) = (global_shadow, global_shadow);
        let mut now = Timestamp::from_millis(1_700_000_000_000);
        for (wait, requests) in steps {
            now = Timestamp::from_nanos(now.as_nanos() + wait * 1_000_000);
            let (batched, one_by_one, mut decided) = (batched.pin(), one_by_one.pin(), 0);
            batched.decide_all(requests.iter(), now, |index, decision| {
                assert_eq!((index, decision), (decided, &one_by_one.decide(&requests[index], now)));
                decided += 1;
            });
            prop_assert_eq!(decided, requests.len());
            prop_assert_eq!(counters(batched.limiter), counters(one_by_one.limiter));
        }
    }
}

#[test]
fn a_give_back_in_a_batch_advances_queued_requests() {
    let limiter = limiter(&[RULES, QUEUE].concat());
    let (now, wait_max) = (Timestamp::from_millis(1_700_000_000_000), Duration::from_secs(9));
    let request = |text, hits| {
        let mut request = Request::new("d");
        request.push(Descriptor { hits, ..descriptor(text) });
        request
    };
    let rules = limiter.pin();
    let arrive = || rules.decide_or_queue(&request("queue=a", Hits::ONE), wait_max, now);
    let (QueueDecision::Decided(_), QueueDecision::Queued(position)) = (arrive(), arrive()) else {
        panic!("the second is queued")
    };
    assert_eq!(limiter.due(&position), Due::At(now.saturating_add(Duration::from_secs(1))));
    let batch = [request("sliding=a", Hits::ONE), request("queue=a", Hits::new(Some(1), 1, true))];
    rules.decide_all(batch.iter(), now, |_, decision| assert_eq!(decision.code, Code::Ok));
    assert_eq!(limiter.due(&position), Due::At(now));
    limiter.cancel(position, now);
}
