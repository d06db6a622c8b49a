//! Several addresses, of which one does not answer.

use crate::servers::{misbehaving, serve};
use std::time::{Duration, Instant};
use tidegate_client::{Builder, OnFailure, Reason, Tidegate};

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100000}}]}";

fn client(address: &str) -> Builder {
    Tidegate::builder(address).domain("d").local_denials(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_frozen_server_of_two_fails_at_most_five_decisions() {
    let (frozen, other) = (serve(HUNDRED, &[]), serve(HUNDRED, &[]));
    let client = client(&frozen.address).address(&other.address).timeout(Duration::from_secs(1));
    let client = client.breaker(5, Duration::from_millis(50)).build().expect("a client");
    let limit = async || client.limit([("user", "a")]).await.expect("a decision");
    for _ in 0..4 {
        limit().await;
    }
    frozen.signal("STOP");
    let (mut failures, mut first, mut last) = (0, None, None);
    // Long enough for several probes, each of which takes a deadline.
    let until = Instant::now() + Duration::from_secs(5);
    while Instant::now() < until {
        if limit().await.reason != Reason::Decided {
            failures += 1;
            last = Some(Instant::now());
            first = first.or(last);
        }
    }
    let elapsed = last.expect("a failure").duration_since(first.expect("a failure"));
    // The breaker's failures, and one for a call that a loaded machine delays.
    assert!((1..=6).contains(&failures), "{failures} decisions failed");
    assert!(elapsed < Duration::from_secs(2), "{elapsed:?}");
    let before = limit().await.remaining;
    frozen.signal("CONT");
    let deadline = Instant::now() + Duration::from_secs(20);
    // Each server counts for itself: the restarted server has counted less.
    while limit().await.remaining <= before {
        assert!(Instant::now() < deadline, "the server that runs again is not used");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_failures_of_one_stall_are_one_and_open_no_breaker() {
    let (_server, address) = misbehaving("slow=60s");
    let client = client(&address).timeout(Duration::from_millis(300)).on_failure(OnFailure::Closed);
    let client = client.build().expect("a client");
    let calls = (0..8).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.limit([("user", "a")]).await.expect("a decision").error })
    });
    for call in calls.collect::<Vec<_>>() {
        assert_eq!(call.await.expect("it ends"), Some("DEADLINE_EXCEEDED"));
    }
    let next = client.limit([("user", "a")]).await.expect("a decision");
    assert_eq!(next.error, Some("DEADLINE_EXCEEDED"), "{next:?}");
}
