//! Denials that a server keeps: requests with more hits are denied by their own numbers.

use super::{RedisServer, slot_servers::World};
use crate::{support::descriptor, tests_with};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};

tests_with! {
    REDIS:
    a_kept_denial_states_the_wait_of_the_hits_that_it_answers,
}

const RULES: &str = "
domain: d
descriptors:
  - {key: bucket, rate_limit: {per: 10000s, requests_per_unit: 10, algorithm: token_bucket}}
  - {key: window, rate_limit: {unit: day, requests_per_unit: 10, algorithm: fixed_window, aligned: first_hit}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_log}}
";

/// After 6 of 10 hits, 5 fit in 1,000 s, 8 in 4,000 s, and 11 never. Each denial used to state the wait of the first.
async fn a_kept_denial_states_the_wait_of_the_hits_that_it_answers() {
    const DAY: u64 = 86_400;
    let waits: [(&str, [Option<u64>; 3]); 3] = [
        ("bucket", [Some(1_000), Some(4_000), None]),
        ("window", [Some(DAY), Some(DAY), None]),
        ("log", [Some(DAY), Some(DAY), None]),
    ];
    for lease in ["off", "auto"] {
        let store = RedisServer::start();
        let args = ["--lease", lease, "--on-store-failure", "deny", "--counters-timeout", "2s"];
        let world = World::with_rules(RULES, 1, &store.url(), &args);
        let mut client = world.servers[0].client().await;
        for (key, expected) in waits {
            let mut hit = async |hits: u64| {
                let wanted = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, "v")]) };
                let response = client.should_rate_limit("d", vec![wanted]).await.expect("a decision");
                let status = &response.statuses[0];
                let reset = status.duration_until_reset.as_ref().map(|reset| reset.seconds.unsigned_abs());
                (response.overall_code(), status.limit_remaining, reset)
            };
            assert_eq!(hit(6).await.0, Code::Ok);
            for _ in 0..5 {
                for (hits, expected) in [5, 8, 11].into_iter().zip(expected) {
                    let (code, remaining, reset) = hit(hits).await;
                    assert_eq!((code, remaining), (Code::OverLimit, 4), "{key} {hits}");
                    match (expected, reset) {
                        (Some(expected), Some(reset)) => {
                            assert!(reset <= expected && reset + 120 > expected, "{key} {hits}: {reset} s")
                        }
                        (expected, reset) => assert_eq!(reset, expected, "{key} {hits}"),
                    }
                }
            }
        }
    }
}
