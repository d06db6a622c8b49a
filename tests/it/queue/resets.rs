//! Resets of counters in which requests are queued: their hits stay, and they advance.

use crate::{
    control::{Controlled, descriptors},
    support::{eventually, limiter},
};
use serde_json::json;
use std::time::Duration;
use tidegate::api::pb::service::rate_limit_response::Code as WireCode;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{Due, Limiter, QueueDecision, QueuePosition},
    store::Removed,
};

/// One request a second after two at once, beside a counter without a queue.
const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - {name: pace, unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 2, max_wait: 10s}
      - {name: day, unit: day, requests_per_unit: 6, algorithm: fixed_window}
";

const START_MILLIS: u64 = 1_700_000_000_000;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START_MILLIS + millis)
}

fn request(user: &'static str, hits: Hits) -> Request<'static> {
    let mut request = Request::new("d");
    let entries = [Entry { key: "user", value: user }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits });
    request
}

fn arrive(limiter: &Limiter, user: &'static str, millis: u64) -> Result<Code, QueuePosition> {
    let pinned = limiter.pin();
    match pinned.decide_or_queue(&request(user, Hits::ONE), Duration::from_secs(10), at(millis)) {
        QueueDecision::Decided(decision) => Ok(decision.code),
        QueueDecision::Queued(position) => Err(position),
        QueueDecision::Waits(_) => unreachable!("no rule has slots"),
    }
}

/// Two admitted and three queued requests, which are released after one, two and three seconds.
fn queue(limiter: &Limiter) -> Vec<QueuePosition> {
    assert_eq!([(); 2].map(|()| arrive(limiter, "ann", 0).expect("no queue")), [Code::Ok; 2]);
    let positions: Vec<QueuePosition> = (0..3).filter_map(|_| arrive(limiter, "ann", 0).err()).collect();
    assert_eq!(dues(limiter, &positions), [1_000, 2_000, 3_000]);
    positions
}

/// Release times in milliseconds; zero for those in the past.
fn dues(limiter: &Limiter, positions: &[QueuePosition]) -> Vec<u64> {
    let due = |position| match limiter.due(position) {
        Due::At(time) => (time.as_nanos() / 1_000_000).saturating_sub(START_MILLIS),
        Due::TooLate => panic!("no end is set"),
    };
    positions.iter().map(due).collect()
}

fn day_remaining(limiter: &Limiter, millis: u64) -> u64 {
    let pinned = limiter.pin();
    let limits = pinned.service_limits(&request("ann", Hits::Peek), at(millis));
    limits.iter().find(|limit| limit.limit.name == "day").expect("it is listed").available.into()
}

fn queued_requests_advance(reset: impl Fn(&Limiter, Timestamp) -> Removed) {
    let limiter = limiter(RULES);
    let positions = queue(&limiter);
    assert_eq!(day_remaining(&limiter, 0), 1);
    assert_eq!(reset(&limiter, at(500)).counters, 2);
    // As if only the queued requests had arrived: two fit at once, the third when one of them has drained.
    assert_eq!(dues(&limiter, &positions), [0, 0, 1_000]);
    assert_eq!(day_remaining(&limiter, 500), 3, "the hits of queued requests are those that stay");
    // A new request is behind the queued requests.
    let fourth = arrive(&limiter, "ann", 500).expect_err("the queue");
    assert_eq!(dues(&limiter, std::slice::from_ref(&fourth)), [2_000]);
    // A cancelled request is given back where it counts: in the bucket that it has begun to drain from, and no request advances.
    let mut positions = positions.into_iter();
    limiter.cancel(positions.next().expect("three"), at(500));
    assert_eq!(day_remaining(&limiter, 500), 3);
    assert_eq!(dues(&limiter, std::slice::from_ref(&fourth)), [2_000]);
    positions.for_each(|position| limiter.release(position));
    limiter.release(fourth);
    assert_eq!(limiter.queued(), 0);
    // No request is queued: the counters are dropped.
    assert_eq!(reset(&limiter, at(1_000)).counters, 2);
    assert_eq!((day_remaining(&limiter, 1_000), limiter.store().counters()), (6, 0));
}

#[test]
fn queued_requests_advance_when_the_counters_of_a_request_are_reset() {
    queued_requests_advance(|limiter, now| {
        limiter.pin().reset(&request("ann", Hits::Peek), now).expect("the domain is known")
    });
}

#[test]
fn queued_requests_advance_when_a_rule_or_a_domain_is_reset() {
    for rule in [Some("user"), None] {
        queued_requests_advance(|limiter, now| {
            limiter.pin().reset_rule("d", rule, now).expect("the rule is known")
        });
    }
}

#[test]
fn counters_without_queued_requests_are_dropped_beside_those_with_some() {
    let limiter = limiter(RULES);
    assert_eq!(arrive(&limiter, "bob", 0).expect("no queue"), Code::Ok);
    let positions = queue(&limiter);
    let removed = limiter.pin().reset_rule("d", None, at(0)).expect("the domain is known");
    assert_eq!((removed.counters, limiter.store().counters()), (4, 2));
    assert_eq!(dues(&limiter, &positions), [0, 0, 1_000]);
    positions.into_iter().for_each(|position| limiter.release(position));
}

/// One hit in five minutes: without the reset, no test waits for the release.
#[tokio::test]
async fn a_reset_releases_a_request_that_waits_for_a_real_server() {
    let rules = "domain: d\ndescriptors: [{key: user, rate_limit: {per: 5m, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 1h}}]";
    let server = Controlled::start(rules, &[]);
    let mut client = server.server.client().await;
    client.hit("d", &[("user", "x")]).await.expect("an answer");
    let waits = tokio::spawn(async move { client.hit("d", &[("user", "x")]).await });
    let queued = async || {
        let listed = json!({ "domain": "d", "descriptors": descriptors(&[("user", "x")]) });
        let listed = server.operate("ListCounters", listed).await;
        listed["descriptors"][0]["counters"][0]["resetAfter"].as_str().is_some_and(|wait| wait > "500")
    };
    eventually("a queued request", queued).await;
    let reset = json!({ "domain": "d", "descriptors": descriptors(&[("user", "x")]) });
    assert_eq!(server.operate("Reset", reset).await["counters"], "1");
    let answer = tokio::time::timeout(Duration::from_secs(20), waits).await.expect("it is released");
    assert_eq!(answer.expect("a task").expect("an answer").overall_code(), WireCode::Ok);
}
