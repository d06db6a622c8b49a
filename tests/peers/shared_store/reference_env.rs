//! Counters in the store that the reference server's variables name.

use super::{RedisCluster, RedisServer};
use crate::{
    support::{Server, descriptor, rules_file},
    tests_with,
};
use std::time::Duration;
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};

tests_with! {
    REDIS:
    servers_share_counters_by_the_variables_of_the_reference_server,
    counting_stops_over_a_limit_with_a_store_too,
}

const RULES: &str =
    "{ domain: d, descriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 3 } }] }";

async fn servers_share_counters_by_the_variables_of_the_reference_server() {
    let (redis, rules) = (RedisServer::start(), rules_file(RULES));
    let socket = redis.socket().display().to_string();
    let variables = [
        ("TIDEGATE_ENV", "reference"),
        // The server is awaited by its log, whose level is WARN there.
        ("LOG_LEVEL", "INFO"),
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", &socket),
        ("REDIS_TYPE", "SINGLE"),
    ];
    let args = ["--http-listen", "127.0.0.1:0", "--counters-timeout", "2s"];
    let servers = [(); 2].map(|()| Server::with_variables(rules.path(), &args, &variables));
    let mut codes = Vec::new();
    for server in servers.iter().cycle().take(5) {
        let response = server.client().await.hit("d", &[("k", "a")]).await.expect("a decision");
        codes.push(response.overall_code());
    }
    assert_eq!(codes, [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit]);
}

const TWO_LIMITS: &str = "{ domain: d, descriptors: [\
    { key: a, rate_limit: { unit: day, requests_per_unit: 10 } }, { key: b, rate_limit: { unit: day, requests_per_unit: 2 } }] }";

/// In a cluster the counters are in several slots: what others have counted is taken back, a little later.
async fn counting_stops_over_a_limit_with_a_store_too() {
    let (redis, cluster, rules) = (RedisServer::start(), RedisCluster::start(false), rules_file(TWO_LIMITS));
    for url in [format!("unix:{}", redis.socket().display()), cluster.url()] {
        let variables = [
            ("TIDEGATE_ENV", "reference"),
            ("LOG_LEVEL", "INFO"),
            ("TIDEGATE_COUNTERS", &url),
            ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
        ];
        let args = ["--http-listen", "127.0.0.1:0", "--counters-timeout", "2s"];
        let server = Server::with_variables(rules.path(), &args, &variables);
        let mut client = server.client().await;
        let mut left = Vec::new();
        for _ in 0..6 {
            let both = vec![descriptor(&[("a", "x")]), descriptor(&[("b", "x")])];
            let response = client.should_rate_limit("d", both).await.expect("a decision");
            left.push(response.statuses[0].limit_remaining);
        }
        if url.starts_with("unix:") {
            assert_eq!(left, [9, 8, 8, 8, 8, 8]);
        }
        let peek = || RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("a", "x")]) };
        for attempt in 0.. {
            let response = client.should_rate_limit("d", vec![peek()]).await.expect("a decision");
            if response.statuses[0].limit_remaining == 8 {
                break;
            }
            assert!(attempt < 1_000, "{url}: {response:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
