//! Reasons why connections end and why streams are refused or reset, as a real server's metrics count them.

use crate::{
    admin::start,
    connection_metrics::{by_reason, good_call},
    metrics::metrics_when,
    support::frames::{DATA, END_HEADERS, END_STREAM, HEADERS, PING, RawConnection, SETTINGS, call_head},
};
use std::collections::BTreeMap;

const RULES: &str = "domain: demo\n";

const REFUSED: &str = "tidegate_requests_refused_total";
const CLOSED: &str = "tidegate_connections_closed_total";

/// The counted reasons, once there are this many.
async fn reasons(port: u16, family: &str, number: usize) -> BTreeMap<String, f64> {
    by_reason(&metrics_when(port, |found| by_reason(found, family).len() >= number).await, family)
}

fn once(reasons: &[&str]) -> BTreeMap<String, f64> {
    reasons.iter().map(|reason| ((*reason).to_owned(), 1.0)).collect()
}

#[tokio::test]
async fn streams_that_are_refused_or_reset_are_counted_by_reason() {
    let args = ["--max-streams", "1", "--body-timeout", "300ms", "--write-timeout", "300ms"];
    let (server, port) = start(RULES, &args);
    let mut full = RawConnection::open(server.address()).await;
    full.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    full.send(HEADERS, END_HEADERS, 3, &call_head()).await;
    let mut malformed = RawConnection::open(server.address()).await;
    // A method and a scheme alone.
    malformed.send(HEADERS, END_HEADERS | END_STREAM, 1, &[0x83, 0x86]).await;
    let mut without_window = RawConnection::open(server.address()).await;
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    without_window.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    without_window.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    without_window.send(DATA, END_STREAM, 1, &good_call()).await;
    let expected = once(&["max_streams", "malformed_request", "body_timeout", "write_timeout"]);
    assert_eq!(reasons(port, REFUSED, expected.len()).await, expected);
}

#[tokio::test]
async fn connections_that_stall_or_fail_or_expand_headers_are_counted_by_reason() {
    let timeouts =
        ["--body-timeout", "300ms", "--keep-alive-interval", "300ms", "--keep-alive-timeout", "300ms"];
    let (server, port) = start(RULES, &[&timeouts[..], &["--max-control-frames", "10"]].concat());
    let mut partial = RawConnection::open(server.address()).await;
    partial.send(HEADERS, 0, 1, &call_head()).await;
    partial.end().await;
    let mut silent = RawConnection::open(server.address()).await;
    silent.end().await;
    let mut expanding = RawConnection::open(server.address()).await;
    // A header that the server reads is added to the table; then its index follows a hundred times.
    let field = [&[0x40, 11][..], b"traceparent", &[0], &[0xbe; 100]].concat();
    expanding.send(HEADERS, END_HEADERS | END_STREAM, 1, &[call_head(), field].concat()).await;
    expanding.end().await;
    let mut failing = RawConnection::open(server.address()).await;
    failing.next().await.expect("the server's SETTINGS");
    for _ in 0..3 {
        failing.send(PING, 0, 0, &[0; 8]).await;
    }
    failing.has_unread().await;
    // A connection that is closed with bytes unread is reset.
    drop(failing);
    let expected = once(&["body_timeout", "keep_alive_timeout", "header_fields", "io_error"]);
    assert_eq!(reasons(port, CLOSED, expected.len()).await, expected);
}

#[tokio::test]
async fn connections_that_are_evicted_or_too_old_are_counted_by_reason() {
    let (server, port) = start(RULES, &["--max-connections", "1"]);
    let mut evicted = RawConnection::open(server.address()).await;
    evicted.next().await.expect("the server's SETTINGS");
    let _later = RawConnection::open(server.address()).await;
    evicted.end().await;
    assert_eq!(reasons(port, CLOSED, 1).await, once(&["evicted"]));
    let (server, port) = start(RULES, &["--max-connection-age", "200ms"]);
    RawConnection::open(server.address()).await.end().await;
    assert_eq!(reasons(port, CLOSED, 1).await, once(&["max_age"]));
}
