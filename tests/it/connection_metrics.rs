//! Metrics of connections, of their ends, and of refused requests, on a real server's page.

use crate::{
    admin::{start, start_from},
    metrics::metrics_when,
    support::{
        Server, descriptor,
        frames::{CANCEL, DATA, END_HEADERS, GOAWAY, HEADERS, PING, RST_STREAM, RawConnection, call_head},
        http2::{Connection, SHOULD_RATE_LIMIT, framed, grpc, plain},
    },
};
use http::Request;
use prost::Message;
use std::collections::BTreeMap;
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    service::RateLimitRequest,
};

const RULES: &str = "domain: demo\n";

/// The samples of a family with a label `reason` that are not zero.
pub fn by_reason(metrics: &BTreeMap<String, f64>, name: &str) -> BTreeMap<String, f64> {
    let start = format!("{name}{{reason=\"");
    let samples = metrics.iter().filter(|(_, value)| **value > 0.0);
    samples
        .filter_map(|(name, value)| {
            Some((name.strip_prefix(&start)?.strip_suffix("\"}")?.to_owned(), *value))
        })
        .collect()
}

/// The body of a call that is decided.
pub fn good_call() -> Vec<u8> {
    plain(&request(vec![descriptor(&[("k", "v")])]).encode_to_vec()).to_vec()
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 0 }
}

/// Requests that are refused, by the reason for the refusal.
fn malformed() -> Vec<(&'static str, RateLimitRequest)> {
    let good = || descriptor(&[("k", "v")]);
    let own = RateLimitOverride { requests_per_unit: 1, unit: 99 };
    let named = |domain: &str| RateLimitRequest { domain: domain.into(), ..request(vec![good()]) };
    vec![
        ("empty_domain", named("")),
        ("long_domain", named(&"d".repeat(40))),
        ("no_descriptors", request(vec![])),
        ("many_descriptors", request(vec![good(); 3])),
        ("many_entries", request(vec![descriptor(&[("k", "v"); 3])])),
        ("empty_key", request(vec![descriptor(&[("", "v")])])),
        ("unknown_unit", request(vec![RateLimitDescriptor { limit: Some(own), ..good() }])),
        ("long_message", request(vec![descriptor(&[("k", &"v".repeat(2_000))])])),
    ]
}

#[tokio::test]
async fn each_refused_request_is_counted_by_its_reason() {
    let (server, port) = start(
        RULES,
        &[
            ["--max-descriptors", "2"],
            ["--max-entries", "2"],
            ["--max-text-bytes", "32"],
            ["--max-message-bytes", "1000"],
            ["--max-streaming-calls", "0"],
            ["--max-header-bytes", "2000"],
        ]
        .concat(),
    );
    let mut expected = BTreeMap::new();
    let mut client = server.client().await;
    for (reason, message) in malformed() {
        client.0.should_rate_limit(message).await.expect_err(reason);
        expected.insert(reason.to_owned(), 1.0);
    }
    let good = plain(&request(vec![descriptor(&[("k", "v")])]).encode_to_vec());
    let raw = Connection::open(server.address()).await;
    for (reason, head, body) in [
        ("malformed_timeout", grpc(SHOULD_RATE_LIMIT).header("grpc-timeout", "soon"), good.clone()),
        ("unknown_precision", grpc(SHOULD_RATE_LIMIT).header("tidegate-precision", "some"), good.clone()),
        ("undecodable_message", grpc(SHOULD_RATE_LIMIT), framed(0, 2, b"\xff\xff")),
        ("unknown_method", grpc("/a.b/C"), good.clone()),
        ("not_grpc", Request::post(format!("http://test{SHOULD_RATE_LIMIT}")), good.clone()),
        ("streaming_calls", grpc("/grpc.health.v1.Health/Watch"), plain(&[])),
        (
            "quota_streams",
            grpc("/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas"),
            plain(&[]),
        ),
        ("header_bytes", grpc(SHOULD_RATE_LIMIT).header("x", "y".repeat(3_000)), good),
    ] {
        raw.send(head, body).await.unwrap_or_else(|error| panic!("{reason}: {error}"));
        expected.insert(reason.to_owned(), 1.0);
    }
    let found = metrics_when(port, |found| {
        by_reason(found, "tidegate_requests_refused_total").len() >= expected.len()
    });
    assert_eq!(by_reason(&found.await, "tidegate_requests_refused_total"), expected);
    for reason in expected.keys() {
        let lines = server.logged(&format!("\"reason\":\"{reason}\""));
        assert!(lines[0].contains("\"peer\":\"127.0.0.1\""), "{lines:?}");
    }
    // One line a second and reason.
    let logged = "\"reason\":\"no_descriptors\"";
    for _ in 0..200 {
        client.0.should_rate_limit(request(vec![])).await.expect_err("no descriptors");
    }
    assert!(server.logged(logged).len() < 20, "{:?}", server.logged(logged));
}

#[tokio::test]
async fn the_restore_at_the_start_is_measured() {
    let data = tempfile::tempdir().expect("a folder");
    let rules = crate::support::rules_file(RULES);
    let folder = data.path().to_str().expect("UTF-8");
    let (server, port) = start_from(rules.path(), &["--data", folder]);
    server.client().await.hit("demo", &[("k", "v")]).await.expect("a decision");
    let found = metrics_when(port, |found| found["tidegate_streams_opened_total"] >= 1.0).await;
    assert_eq!(found["tidegate_restored_counters"], 0.0);
    assert!(found["tidegate_restore_duration_seconds"] > 0.0);
    assert!(by_reason(&found, "tidegate_requests_refused_total").is_empty());
}

/// Ends connections for these reasons.
async fn end_connections(server: &Server) -> Vec<&'static str> {
    RawConnection::open(server.address()).await.leave().await;
    let mut malformed = RawConnection::open(server.address()).await;
    malformed.send(DATA, 0, 0, &[]).await;
    malformed.end().await;
    let mut pinging = RawConnection::open(server.address()).await;
    for _ in 0..30 {
        pinging.send(PING, 0, 0, &[0; 8]).await;
    }
    pinging.end().await;
    let mut resetting = RawConnection::open(server.address()).await;
    for stream in 0..6 {
        resetting.send(HEADERS, END_HEADERS, 2 * stream + 1, &call_head()).await;
        resetting.send(RST_STREAM, 0, 2 * stream + 1, &CANCEL.to_be_bytes()).await;
    }
    resetting.end().await;
    RawConnection::silent(server.address()).await.end().await;
    RawConnection::open(server.address()).await.end().await;
    vec!["client", "protocol_error", "control_frames", "resets", "first_request_timeout"]
}

#[tokio::test]
async fn connections_and_their_ends_are_counted_by_reason() {
    let (server, port) = start(
        RULES,
        &[
            ["--first-request-timeout", "500ms"],
            ["--idle-timeout", "500ms"],
            ["--max-control-frames", "10"],
            ["--max-resets", "3"],
        ]
        .concat(),
    );
    let mut reasons = end_connections(&server).await;
    let mut client = server.client().await;
    client.hit("demo", &[("k", "v")]).await.expect("a decision");
    reasons.push("idle_timeout");
    reasons.sort_unstable();
    let closed = |found: &BTreeMap<String, f64>| by_reason(found, "tidegate_connections_closed_total");
    let found = metrics_when(port, |found| found["tidegate_connections"] == 0.0).await;
    assert_eq!(closed(&found).keys().collect::<Vec<_>>(), reasons, "{found:#?}");
    assert_eq!(closed(&found)["first_request_timeout"], 2.0);
    assert_eq!(found["tidegate_connections_accepted_total"], 7.0);
    assert_eq!(found["tidegate_streams"], 0.0);
    assert!(found["tidegate_stream_resets_total{direction=\"received\"}"] >= 3.0, "{found:#?}");
    assert!(found["tidegate_goaways_total{direction=\"sent\"}"] >= 6.0, "{found:#?}");
    assert!(found["tidegate_received_bytes_total"] > 30.0 * 17.0);
    assert!(found["tidegate_sent_bytes_total"] > 10.0 * 17.0);
}

#[tokio::test]
async fn open_connections_and_streams_are_gauges() {
    let (server, port) = start(RULES, &["--max-connections", "2"]);
    let mut connection = RawConnection::open(server.address()).await;
    connection.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    connection.send(HEADERS, END_HEADERS, 3, &call_head()).await;
    connection.send(GOAWAY, 0, 0, &[0; 8]).await;
    let (connections, streams) = ("tidegate_connections", "tidegate_streams");
    let goaways = "tidegate_goaways_total{direction=\"received\"}";
    metrics_when(port, |found| (found[connections], found[streams], found[goaways]) == (1.0, 2.0, 1.0)).await;
    drop(connection);
    metrics_when(port, |found| (found[connections], found[streams]) == (0.0, 0.0)).await;
}
