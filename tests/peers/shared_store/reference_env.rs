//! Counters in the store that the reference server's variables name.

use super::{RedisCluster, RedisServer, process::free_port, proxy::Proxy};
use crate::{
    support::{Server, descriptor, eventually, rules_file},
    tests_with,
};
use std::time::Duration;
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tonic::Code as Status;

tests_with! {
    REDIS:
    servers_share_counters_by_the_variables_of_the_reference_server,
    counting_stops_over_a_limit_with_a_store_too,
    a_slow_store_is_awaited_and_one_that_is_gone_is_an_error,
}

const RULES: &str =
    "{ domain: d, descriptors: [{ key: k, rate_limit: { unit: day, requests_per_unit: 3 } }] }";

async fn servers_share_counters_by_the_variables_of_the_reference_server() {
    let (redis, rules) = (RedisServer::start(), rules_file(RULES));
    let socket = redis.socket().display().to_string();
    let variables = [
        ("TIDEGATE_ENV", "reference"),
        // The test waits for the server by its log, whose level would be WARN.
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

/// In a cluster the counters are in several slots: hits that the others have counted are taken back, a little later.
async fn counting_stops_over_a_limit_with_a_store_too() {
    let (redis, cluster, rules) = (RedisServer::start(), RedisCluster::start(false), rules_file(TWO_LIMITS));
    for url in [redis.url(), cluster.url()] {
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
        eventually(&format!("{url}: 8 remain"), async || {
            let response = client.should_rate_limit("d", vec![peek()]).await.expect("a decision");
            if response.statuses[0].limit_remaining == 8 { Ok(()) } else { Err(response) }
        })
        .await;
    }
}

/// REDIS_TIMEOUT used to have no effect: with responses after 30 ms, each server admitted its share of the limit once more.
async fn a_slow_store_is_awaited_and_one_that_is_gone_is_an_error() {
    let port = free_port();
    let (store, rules) = (RedisServer::start_on(port, &[]), rules_file(RULES));
    let proxy = Proxy::start(port).await;
    let url = format!("127.0.0.1:{}", proxy.port());
    let start = |timeout: &str| {
        let variables = [
            ("TIDEGATE_ENV", "reference"),
            ("LOG_LEVEL", "INFO"),
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("REDIS_URL", &url),
            ("REDIS_TYPE", "SINGLE"),
            ("REDIS_TIMEOUT", timeout),
        ];
        Server::with_variables(rules.path(), &["--http-listen", "127.0.0.1:0"], &variables)
    };
    let (patient, hasty) = (start(""), start("20ms"));
    let mut client = patient.client().await;
    proxy.delay(Duration::from_millis(30));
    let mut codes = Vec::new();
    for _ in 0..15 {
        codes.push(client.hit("d", &[("k", "a")]).await.expect("a decision").overall_code());
    }
    assert_eq!(codes, [&[Code::Ok; 3][..], &[Code::OverLimit; 12]].concat());
    let late = hasty.client().await.hit("d", &[("k", "b")]).await;
    assert_eq!(late.map_err(|status| status.code()).err(), Some(Status::Unavailable));

    drop(store);
    let gone = client.hit("d", &[("k", "b")]).await;
    assert_eq!(gone.map_err(|status| status.code()).err(), Some(Status::Unavailable));
}
