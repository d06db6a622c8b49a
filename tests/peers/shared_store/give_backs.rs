//! Requests that give hits back and take others: the hits that they take count, however many they give back.

use super::{
    RedisServer,
    arithmetic::{Store, limiter},
    slot_servers::{DENY, World},
};
use crate::{support::descriptor, tests_with};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    rules::{LoadOptions, Source},
};
use tidegate_shared::script::{EncodedRequest, conclude};

tests_with! {
    REDIS:
    hits_of_a_request_that_also_gives_back_count_beside_a_reservation,
    hits_of_a_request_that_also_gives_back_count_in_several_groups,
}

/// The limit of `e` has a log, so that it is exact at any time.
const RULES: &str = "
domain: d
descriptors:
  - {key: e, rate_limit: {unit: day, requests_per_unit: 4, algorithm: sliding_log}}
  - {key: plain, rate_limit: {unit: day, requests_per_unit: 100}}
  - {key: estimate, rate_limit: {unit: day, requests_per_unit: 100, reserve: 1}}
  - {key: slot, rate_limit: {algorithm: concurrency, requests_in_flight: 100, max_hold: 1h}}
";

/// Beside a ticket the hits used to be given back after the charge, and with them the hits of the request itself.
async fn hits_of_a_request_that_also_gives_back_count_beside_a_reservation() {
    let store = RedisServer::start();
    let world = World::with_rules(RULES, 1, &store.url(), &DENY);
    let mut client = world.servers[0].client().await;
    for sibling in ["plain", "estimate", "slot"] {
        let one = |hits, is_negative_hits| RateLimitDescriptor {
            hits_addend: Some(hits),
            is_negative_hits,
            ..descriptor(&[("e", sibling)])
        };
        let beside = || descriptor(&[(sibling, "v")]);
        let mut decide = async |descriptors: Vec<RateLimitDescriptor>| {
            let response = client.should_rate_limit("d", descriptors).await.expect("a decision");
            (response.overall_code(), response.statuses[0].limit_remaining)
        };
        assert_eq!(decide(vec![one(1, false)]).await, (Code::Ok, 3), "{sibling}");
        assert_eq!(decide(vec![one(4, false), one(9, true), beside()]).await, (Code::Ok, 0), "{sibling}");
        assert_eq!(decide(vec![one(0, false)]).await, (Code::OverLimit, 0), "{sibling}");
        // The returned hits make room.
        assert_eq!(decide(vec![one(2, true), one(1, false), beside()]).await, (Code::Ok, 1), "{sibling}");
        assert_eq!(decide(vec![one(0, false)]).await, (Code::Ok, 1), "{sibling}");
    }
}

/// In a cluster the hits are given back after the charge, but no more hits than were used before it.
async fn hits_of_a_request_that_also_gives_back_count_in_several_groups() {
    let server = RedisServer::start();
    let source = Source::file("r.yaml", RULES.to_owned());
    let limiter = limiter(&[source], &LoadOptions::default()).expect("good rules").with_groups();
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "groups:".into()));
    let request = |charges: &[(&'static str, Hits)]| {
        let mut request = Request::new("d");
        for &(key, hits) in charges {
            let entries = [Entry { key, value: key }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits });
        }
        request.checked(&RequestLimits::default()).expect("a good request")
    };
    let hits = |hits, is_negative| Hits::new(Some(hits), 0, is_negative);
    let now = Timestamp::from_millis(1_700_006_400_000);
    store.decide(&owned, &[request(&[("e", hits(1, false))])], now);
    let both = request(&[("e", hits(4, false)), ("e", hits(9, true)), ("plain", hits(1, false))]);
    let remote = owned.remote(&both, now).expect("the domain is shared");
    let encoded = EncodedRequest::new(&remote, now).expect("a small request");
    let parts = encoded.parts();
    assert_eq!(parts.len(), 2, "the counters are of two groups");
    let requests: Vec<_> = parts.iter().map(|part| part.request.clone()).collect();
    let verdicts = store.verdicts(&requests, now);
    let conclusion = conclude(&remote, &encoded, &parts, &verdicts).expect("a conclusion");
    let given: Vec<_> = conclusion.give_back.into_iter().map(|(_, request)| request).collect();
    store.verdicts(&given, now);
    let left = store.decide(&owned, &[request(&[("e", Hits::Peek)])], now).remove(0);
    assert_eq!(left.statuses[0].remaining, 0);
}
