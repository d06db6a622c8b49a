//! The admin port of a real server: metrics and probes.

use crate::{
    metrics::metrics_when,
    support::{Server, http1, rules_file},
};
use std::{collections::BTreeMap, net::Ipv4Addr, path::Path};

/// Starts a server; returns it with its admin port.
pub fn start(rules: &str, args: &[&str]) -> (Server, u16) {
    start_from(rules_file(rules).path(), args)
}

/// Starts a server with this rule file; returns it with its admin port.
pub fn start_from(rules: &Path, args: &[&str]) -> (Server, u16) {
    let server = Server::with_rules(rules, &[&["--http-listen", "127.0.0.1:0"], args].concat());
    let line: serde_json::Value =
        serde_json::from_str(&server.logged("HTTP port listening")[0]).expect("JSON");
    let port = line["address"].as_str().and_then(|address| address.rsplit(':').next()?.parse().ok());
    (server, port.expect("an address"))
}

pub async fn get(port: u16, path: &str) -> (u16, String) {
    let answer = http1::fetch(Ipv4Addr::LOCALHOST, port, http::Request::get(path)).await.expect("an answer");
    (answer.status().as_u16(), String::from_utf8(answer.into_body()).expect("text"))
}

/// The metrics by their names and labels.
pub async fn metrics(port: u16) -> BTreeMap<String, f64> {
    let (status, text) = get(port, "/metrics").await;
    assert_eq!((status, text.contains("# EOF")), (200, false));
    samples(&text)
}

/// The samples of a server that serves metrics to callers with tokens only.
pub async fn page_with_token(port: u16, token: &str) -> BTreeMap<String, f64> {
    let request = http::Request::get("/metrics").header("host", "test");
    let request = request.header("authorization", format!("Bearer {token}"));
    let page = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a page").into_body();
    samples(&String::from_utf8(page).expect("text"))
}

fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

const RULES: &str = "
domain: demo
descriptors:
  - key: api_key
    rate_limit: { unit: day, requests_per_unit: 2 }
";

#[tokio::test]
async fn the_metrics_count_decisions() {
    let (server, port) = start(RULES, &["--max-counters", "3"]);
    let mut client = server.client().await;
    for (key, value) in [
        ("api_key", "a"),
        ("api_key", "a"),
        ("api_key", "a"),
        ("api_key", "b"),
        ("api_key", "c"),
        ("api_key", "d"),
        ("x", ""),
    ] {
        client.hit("demo", &[(key, value)]).await.expect("an answer");
    }
    client.hit("elsewhere", &[("api_key", "a")]).await.expect("an answer");
    let found = metrics(port).await;
    for (name, value) in [
        (r#"tidegate_requests_total{code="ok"}"#, 6.0),
        (r#"tidegate_requests_total{code="over_limit"}"#, 2.0),
        (r#"tidegate_descriptors_without_limit_total{domain="demo",keys="x"}"#, 1.0),
        (r#"tidegate_descriptors_without_limit_total{domain="elsewhere",keys="api_key"}"#, 1.0),
        (r#"tidegate_descriptors_without_limit_total{domain="",keys="other"}"#, 0.0),
        ("tidegate_counters", 3.0),
        ("tidegate_counters_max", 3.0),
        (r#"tidegate_no_room_total{outcome="denied"}"#, 1.0),
        ("tidegate_queued", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name} of {found:#?}");
    }
    assert!(!found.keys().any(|name| name.contains("snapshot")), "there are no snapshots");
    assert_eq!(get(port, "/livez").await, (200, "alive\n".to_owned()));
    // A line about the rules follows, once the server notices that their file is gone.
    let (status, ready) = get(port, "/readyz").await;
    assert!(status == 200 && ready.starts_with("serving\n"), "{ready}");
    assert_eq!(get(port, "/healthcheck").await, (200, "OK".to_owned()));
    // Development builds do not read it from git.
    let commit = option_env!("SOURCE_COMMIT").unwrap_or("unknown");
    assert_eq!(
        get(port, "/version").await.1,
        format!(
            "{{\"commit\":\"{commit}\",\"name\":\"tidegate\",\"version\":\"{}\"}}",
            env!("CARGO_PKG_VERSION")
        )
    );
    assert_eq!(get(port, "/nothing").await.0, 404);
    let index = "/\n/config\n/healthcheck\n/json\n/livez\n/metrics\n/readyz\n/rlconfig\n/rules\n/rules/status\n/stats\n/version\n";
    assert_eq!(get(port, "/").await, (200, index.to_owned()));
}

#[tokio::test]
async fn metrics_are_prometheus_text_unless_openmetrics_is_accepted() {
    let (_server, port) = start(RULES, &[]);
    let fetch = async |accept: Option<&str>| {
        let mut request = http::Request::get("/metrics");
        if let Some(accept) = accept {
            request = request.header("accept", accept);
        }
        let response = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
        let content_type = response.headers()["content-type"].to_str().expect("ASCII").to_owned();
        (content_type, String::from_utf8(response.into_body()).expect("text"))
    };
    for accept in [None, Some("*/*"), Some("text/plain")] {
        let (content_type, text) = fetch(accept).await;
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8", "{accept:?}");
        assert!(text.contains("\n# TYPE tidegate_requests_total counter\n"), "{text}");
        assert!(!text.contains("# EOF"), "{text}");
    }
    let (content_type, text) = fetch(Some("application/openmetrics-text;version=1.0.0,*/*;q=0.1")).await;
    assert_eq!(content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(text.contains("\n# TYPE tidegate_requests counter\n") && text.ends_with("# EOF\n"), "{text}");
}

#[tokio::test]
async fn a_draining_server_is_not_ready() {
    let (server, port) = start(RULES, &["--drain-delay", "10m"]);
    server.signal(rustix::process::Signal::TERM);
    // The signal takes some time to arrive.
    while get(port, "/readyz").await.0 == 200 {}
    assert_eq!(get(port, "/readyz").await.0, 503);
    assert_eq!(get(port, "/healthcheck").await.0, 500);
    assert_eq!(get(port, "/livez").await.0, 200);
}

#[tokio::test]
async fn the_metrics_count_lines_of_the_decision_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let (server, port) = start(RULES, &["--decision-log", log.to_str().expect("UTF-8")]);
    server.client().await.hit("demo", &[("api_key", "a")]).await.expect("an answer");
    // A line is counted after it is written.
    let name = |result: &str| format!("tidegate_decision_log_lines_total{{result=\"{result}\"}}");
    let found = metrics_when(port, |found| found[&name("written")] > 0.0).await;
    assert!(!std::fs::read_to_string(&log).expect("text").is_empty());
    assert_eq!(["written", "dropped", "failed"].map(|result| found[&name(result)]), [1.0, 0.0, 0.0]);
}
