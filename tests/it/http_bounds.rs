//! Bounds on the clients of the HTTP port, and clients that use TLS on it although it has none.

use crate::{
    admin::start,
    metrics::metrics_when,
    support::{PATIENCE, Server, descriptor, eventually},
};
use std::{io, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const RULES: &str =
    "{ domain: demo, descriptors: [{ key: api_key, rate_limit: { unit: day, requests_per_unit: 2 } }] }";
const LIVE: &[u8] = b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n";

async fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).await.expect("the port accepts")
}

/// Everything until the server closes the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    let read =
        timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the server ends the connection");
    if let Err(error) = read {
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    }
    String::from_utf8(text).expect("text")
}

async fn response_to(port: u16, request: &str) -> String {
    let mut stream = connect(port).await;
    stream.write_all(request.as_bytes()).await.expect("the server reads");
    rest(&mut stream).await
}

/// Sends a request on an open connection, and reads its response.
async fn is_live(stream: &mut TcpStream) -> bool {
    if stream.write_all(LIVE).await.is_err() {
        return false;
    }
    let mut response = [0; 1024];
    let length =
        timeout(PATIENCE, stream.read(&mut response)).await.expect("a response or an end").unwrap_or(0);
    response[..length].starts_with(b"HTTP/1.1 200")
}

/// Sends a byte now and then until the server ends the connection.
async fn trickle(stream: &mut TcpStream, byte: &[u8]) {
    let send = async {
        while stream.write_all(byte).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, send).await.expect("the server ends the connection");
}

#[tokio::test]
async fn long_heads_and_bodies_are_refused_and_charge_nothing() {
    let (_server, port) = start(RULES, &["--http-max-header-bytes", "1000", "--http-max-body-bytes", "100"]);
    let long = "x".repeat(2000);
    let refused = response_to(port, &format!("GET /livez HTTP/1.1\r\nhost: test\r\nx: {long}\r\n\r\n")).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    let claimed = "POST /json HTTP/1.1\r\nhost: test\r\ncontent-length: 101\r\n\r\n";
    let refused = response_to(port, claimed).await;
    assert!(refused.starts_with("HTTP/1.1 413") && refused.contains("--http-max-body-bytes"), "{refused}");
    let chunk = format!("{:x}\r\n{}\r\n", 60, "x".repeat(60));
    let chunked =
        format!("POST /json HTTP/1.1\r\nhost: test\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}");
    let refused = response_to(port, &chunked).await;
    assert!(refused.starts_with("HTTP/1.1 413"), "{refused}");
}

#[tokio::test]
async fn a_head_that_is_never_complete_ends_the_connection_however_often_a_byte_arrives() {
    let (_server, port) = start(RULES, &["--http-timeout", "200ms"]);
    let mut stream = connect(port).await;
    stream.write_all(b"GET /livez HTTP/1.1\r\nx-slow: ").await.expect("the server reads");
    trickle(&mut stream, b"x").await;
    // The second request of a connection is bounded likewise.
    let mut stream = connect(port).await;
    assert!(is_live(&mut stream).await);
    stream.write_all(b"GET ").await.expect("the server reads");
    trickle(&mut stream, b"/").await;
    // A client that sends nothing at all.
    assert_eq!(rest(&mut connect(port).await).await, "");
}

#[tokio::test]
async fn a_body_that_is_never_complete_gets_408() {
    let (_server, port) = start(RULES, &["--http-timeout", "200ms"]);
    let refused =
        response_to(port, "POST /json HTTP/1.1\r\nhost: test\r\ncontent-length: 99\r\n\r\n{\"domain\"").await;
    assert!(refused.starts_with("HTTP/1.1 408") && refused.contains("connection: close"), "{refused}");
}

#[tokio::test]
async fn a_client_that_reads_no_responses_is_disconnected() {
    let (_server, port) = start(RULES, &["--http-timeout", "200ms"]);
    let mut stream = connect(port).await;
    let requests = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
    // Ends only when the server closes the connection; otherwise the writes block once all buffers are full.
    let send = async { while stream.write_all(&requests).await.is_ok() {} };
    timeout(PATIENCE, send).await.expect("the server ends the connection");
}

#[tokio::test]
async fn an_idle_connection_ends_after_the_idle_timeout_and_not_before() {
    let (_server, port) = start(RULES, &["--http-timeout", "50ms", "--http-idle-timeout", "4s"]);
    let mut stream = connect(port).await;
    assert!(is_live(&mut stream).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(is_live(&mut stream).await, "the time of a head is not that of an idle connection");
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn connections_that_send_nothing_lock_no_one_out() {
    let (_server, port) = start(RULES, &["--http-max-connections", "4"]);
    let mut used = connect(port).await;
    assert!(is_live(&mut used).await);
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(connect(port).await);
    }
    for mut evicted in silent.drain(..16) {
        assert_eq!(rest(&mut evicted).await, "");
    }
    assert!(is_live(&mut connect(port).await).await);
    assert!(is_live(&mut used).await, "those without any request are closed first");
}

fn log_lines(server: &Server, text: &str) -> usize {
    server.log().iter().filter(|line| line.contains(text)).count()
}

#[tokio::test]
async fn clients_with_tls_on_a_plaintext_port_are_logged_once_with_the_remedy_and_counted() {
    let (server, port) = start(RULES, &[]);
    for _ in 0..3 {
        let mut stream = connect(port).await;
        stream.write_all(&[0x16, 0x03, 0x01, 0x02, 0x00, 0x01]).await.expect("the server reads");
        assert_eq!(rest(&mut stream).await, "");
    }
    let count = "tidegate_tls_handshakes_total{port=\"http\",result=\"tls_on_plaintext_port\"} 3";
    let metrics = "GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    eventually(count, async || match response_to(port, metrics).await {
        page if page.contains(count) => Ok(()),
        page => Err(page),
    })
    .await;
    assert_eq!(server.logged("client with TLS on a port without TLS").len(), 1, "{:#?}", server.log());
    assert_eq!(log_lines(&server, "--http-tls-cert"), 1, "{:#?}", server.log());
}

/// The reasons in the log for refusing requests without a decision.
fn refused(server: &Server) -> Vec<String> {
    let lines = server.logged("request refused without a decision").into_iter();
    let line = |line: String| serde_json::from_str::<serde_json::Value>(&line).expect("JSON");
    lines.map(line).map(|line| line["reason"].as_str().expect("a reason").to_owned()).collect()
}

#[tokio::test]
async fn each_refused_http_request_is_counted_by_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    let made = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["token", "test", "--file", tokens.to_str().expect("UTF-8")])
        .output()
        .expect("the command runs");
    let token = String::from_utf8(made.stdout).expect("text");
    let (open, port) = start(
        RULES,
        &["--http-max-header-bytes", "1000", "--http-max-body-bytes", "100", "--http-timeout", "300ms"],
    );
    let long = "x".repeat(2000);
    let post = "POST /json HTTP/1.1\r\nhost: test\r\n";
    for request in [
        "GET /nowhere HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".to_owned(),
        "PUT /livez HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n".to_owned(),
        format!("GET /livez HTTP/1.1\r\nhost: test\r\nx: {long}\r\n\r\n"),
        "GET /livez\r\n\r\n".to_owned(),
        "GET /livez HTTP/1.1\r\nx-slow: ".to_owned(),
        format!("{post}content-length: 101\r\n\r\n"),
        format!("{post}transfer-encoding: chunked\r\n\r\nzz\r\n"),
        format!("{post}content-length: 99\r\n\r\n{{"),
    ] {
        response_to(port, &request).await;
    }
    let mut unread = connect(port).await;
    let pages = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n".repeat(100);
    let send = async { while unread.write_all(&pages).await.is_ok() {} };
    timeout(PATIENCE, send).await.expect("the server ends the connection");
    let reasons = [
        "not_found",
        "method",
        "header_bytes",
        "malformed_head",
        "header_timeout",
        "body_bytes",
        "malformed_body",
        "body_timeout",
        "write_timeout",
    ];
    let count = |found: &std::collections::BTreeMap<String, f64>, reason: &str| {
        found[&format!("tidegate_http_requests_refused_total{{reason=\"{reason}\"}}")]
    };
    let found = metrics_when(port, |found| count(found, "write_timeout") > 0.0).await;
    for reason in reasons {
        assert_eq!(count(&found, reason), 1.0, "{reason} of {found:#?}");
    }
    // Refused requests for decisions are in the log, and counted with the requests that gRPC refuses.
    assert_eq!(refused(&open), ["body_bytes", "malformed_body", "body_timeout"]);
    assert_eq!(found["tidegate_requests_refused_total{reason=\"http_port\"}"], 3.0);
    // A hit drains in two minutes.
    let queueing = "{ domain: demo, descriptors: [{ key: api_key, rate_limit: { unit: hour, requests_per_unit: 30, \
                    algorithm: leaky_bucket, burst: 1, max_wait: 10m } }] }";
    let (closed, port) = start(
        queueing,
        &[
            "--http-token-file",
            tokens.to_str().expect("UTF-8"),
            "--http-max-connections",
            "1",
            "--http-timeout",
            "10m",
        ],
    );
    response_to(port, "GET /version HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    response_to(port, &format!("{post}connection: close\r\ncontent-length: 0\r\n\r\n")).await;
    assert_eq!(refused(&closed), ["unauthorized"]);
    // A request that is queued keeps the only connection busy.
    let authorization = format!("authorization: Bearer {}\r\n", token.trim());
    let body = r#"{"domain":"demo","descriptors":[{"entries":[{"key":"api_key","value":"a"}]}]}"#;
    let length = body.len();
    let hit = format!("{post}{authorization}connection: close\r\ncontent-length: {length}\r\n\r\n{body}");
    response_to(port, &hit).await;
    let request = format!("GET /metrics HTTP/1.1\r\nhost: test\r\n{authorization}connection: close\r\n\r\n");
    let mut client = closed.client().await;
    let mut peek = descriptor(&[("api_key", "a")]);
    peek.hits_addend = Some(0);
    let busy = eventually("a request is queued", async || {
        let mut busy = connect(port).await;
        busy.write_all(hit.as_bytes()).await.map_err(|error| error.to_string())?;
        loop {
            let response = client.should_rate_limit("demo", vec![peek.clone()]).await.expect("a decision");
            let reset = response.statuses[0].duration_until_reset.as_ref().map_or(0, |reset| reset.seconds);
            // Two hits are in the bucket.
            if reset > 120 {
                return Ok(busy);
            }
            // It is refused if the connection before it is not closed yet.
            if timeout(Duration::from_millis(5), busy.peek(&mut [0])).await.is_ok() {
                return Err("the connection has a response".to_owned());
            }
        }
    })
    .await;
    let live = response_to(port, "GET /livez HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n").await;
    assert!(!live.starts_with("HTTP/1.1 200"), "a connection beside the only one: {live}");
    drop(busy);
    let page = eventually("the server responds once the connection is closed", async || {
        match response_to(port, &request).await {
            page if page.starts_with("HTTP/1.1 200") => Ok(page),
            page => Err(page),
        }
    })
    .await;
    for reason in ["unauthorized", "max_connections"] {
        let line = format!("tidegate_http_requests_refused_total{{reason=\"{reason}\"}} ");
        let value = page.lines().find_map(|found| found.strip_prefix(&line)).expect("a sample");
        assert!(value != "0", "{reason}: {page}");
    }
}

/// 256 requests that announced a body and sent none kept all probes out: the orchestrator restarted the server.
#[tokio::test]
async fn requests_without_their_bodies_lock_no_one_out() {
    let (_server, port) = start(RULES, &["--http-max-connections", "4"]);
    let mut open = Vec::new();
    for head in ["GET /livez", "GET /metrics", "POST /json"] {
        for _ in 0..8 {
            let mut stream = connect(port).await;
            let request = format!("{head} HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n");
            stream.write_all(request.as_bytes()).await.expect("the server reads");
            open.push(stream);
        }
        for _ in 0..8 {
            assert!(is_live(&mut connect(port).await).await, "{head}");
        }
    }
}

/// Connections without a request used to be evicted before connections with a request, however old: beside a flood of requests, every third
/// probe was closed.
#[tokio::test]
async fn a_connection_that_was_just_opened_is_not_the_first_to_be_evicted() {
    let (_server, port) = start(RULES, &["--http-max-connections", "4"]);
    let mut served = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(port).await;
        assert!(is_live(&mut stream).await);
        served.push(stream);
    }
    let mut probe = connect(port).await;
    for _ in 0..2 {
        assert!(is_live(&mut connect(port).await).await);
    }
    assert!(is_live(&mut probe).await, "two connections that were served before it are older");
}

/// A probe is answered even if its body does not arrive.
#[tokio::test]
async fn probes_wait_for_no_body() {
    let (_server, port) = start(RULES, &[]);
    let response = response_to(port, "GET /livez HTTP/1.1\r\nhost: test\r\ncontent-length: 9\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
}

/// Where no token is needed, a page of another origin used up limits by text/plain, and a page on a rebound name read the rules.
#[tokio::test]
async fn requests_of_other_origins_are_refused() {
    let (_server, port) = start(RULES, &[]);
    let body = r#"{"domain":"demo","descriptors":[{"entries":[{"key":"api_key","value":"a"}]}]}"#;
    let post = |headers: &str| {
        let length = body.len();
        format!(
            "POST /json HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
        )
    };
    let get = |host: &str| format!("GET /rules HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    for (request, status) in [
        (post("origin: https://evil.example\r\n"), "403"),
        (post("origin: null\r\n"), "403"),
        (post("content-type: text/plain\r\n"), "415"),
        (post("origin: http://localhost\r\n"), "200"),
        (post(""), "200"),
        (get("evil.example"), "421"),
        (get(&format!("127.0.0.1:{port}")), "200"),
    ] {
        let response = response_to(port, &request).await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {response}");
    }
}
