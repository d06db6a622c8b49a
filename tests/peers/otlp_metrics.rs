//! Metrics pushed by OTLP, received by Python's classes of the protocol.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use crate::{
    support::{
        PATIENCE, Server,
        certificates::{Authority, replace},
        eventually, rules_file,
    },
    traces::OtlpReceiver,
};
use serde_json::{Value, json};
use std::time::Instant;

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: per_user, unit: day, requests_per_unit: 4 } }
";

fn server(receiver: &OtlpReceiver, transport: &str, protocol: &str, more: &[(&str, &str)]) -> Server {
    let endpoint = receiver.endpoint(transport);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_EXPORTER_OTLP_HEADERS", "tenant=a"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "50"),
    ];
    Server::with_variables(rules_file(RULES).path(), &[], &[&variables, more].concat())
}

/// The point with these attributes in the next metric of that name, once `is_reached` holds for it. Metrics arrive every 50 ms, so a time
/// limit of its own has to end the wait for a point that is never reached.
fn point(
    receiver: &OtlpReceiver,
    name: &str,
    attributes: &Value,
    is_reached: impl Fn(&Value) -> bool,
) -> Value {
    let start = Instant::now();
    let mut last = Value::Null;
    while start.elapsed() < PATIENCE {
        let metric = receiver.next();
        if metric["name"] != name {
            continue;
        }
        let points = metric["points"].as_array().expect("points");
        if let Some(point) = points.iter().find(|point| point["attributes"] == *attributes)
            && is_reached(point)
        {
            return json!({ "metric": metric, "point": point });
        }
        last = metric;
    }
    panic!(
        "{name} with {attributes} was not reached in {PATIENCE:?}; the last values of that name: {last:#}"
    );
}

async fn counters_gauges_and_histograms_arrive_by_either_transport() {
    for (transport, protocol) in [("grpc", "grpc"), ("http", "http/protobuf")] {
        let receiver = OtlpReceiver::start_with("metrics", &[]);
        let server = server(&receiver, transport, protocol, &[]);
        let mut client = server.client().await;
        for _ in 0..6 {
            client.hit("shop", &[("user", "ann")]).await.expect("a response");
        }
        let denied = json!({ "domain": "shop", "limit": "per_user", "outcome": "denied" });
        let found = point(&receiver, "tidegate_limit_hits", &denied, |point| point["asInt"] == "2");
        let metric = &found["metric"];
        assert_eq!((&metric["kind"], &metric["is_cumulative"]), (&json!("sum"), &json!(true)));
        assert_eq!((&metric["service"], &metric["tenant"]), (&json!("tidegate"), &json!("a")));
        assert_eq!(metric["transport"], transport);
        assert!(found["point"]["startTimeUnixNano"].is_string(), "{found:#}");

        let ok = json!({ "code": "ok" });
        let found =
            point(&receiver, "tidegate_decision_duration_seconds", &ok, |point| point["count"] == "4");
        let (metric, point_of) = (&found["metric"], &found["point"]);
        assert_eq!((&metric["kind"], &metric["unit"]), (&json!("histogram"), &json!("s")));
        let length = |name: &str| point_of[name].as_array().map_or(0, Vec::len);
        assert_eq!((length("bucketCounts"), length("explicitBounds")), (14, 13));
        assert!(point_of["sum"].as_f64().is_some_and(|sum| sum > 0.0));

        let limit = json!({ "domain": "shop", "limit": "per_user" });
        let found = point(&receiver, "tidegate_limit_max_hits", &limit, |point| point["asInt"] == "4");
        assert_eq!(found["metric"]["kind"], "gauge");
    }
}

async fn a_collector_with_tls_is_trusted_by_its_authority() {
    let folder = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("collector");
    let (cert, key) = authority.issue(&["localhost"]).write(folder.path(), "collector");
    let ca = replace(&folder.path().join("ca.crt"), &authority.pem);
    for (transport, protocol) in [("grpc", "grpc"), ("http", "http/protobuf")] {
        let receiver = OtlpReceiver::start_with("metrics", &[&cert, &key]);
        let endpoint = format!("https://localhost:{}", receiver.ports[transport]);
        let ca = ca.to_str().expect("temporary paths are UTF-8");
        let tls = [("OTEL_EXPORTER_OTLP_ENDPOINT", &*endpoint), ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)];
        let _server = server(&receiver, transport, protocol, &tls);
        let found = point(&receiver, "tidegate_rules", &json!({}), |point| point["asInt"] == "1");
        assert_eq!(found["metric"]["transport"], transport);
    }
}

async fn the_last_values_are_pushed_at_the_stop() {
    let receiver = OtlpReceiver::start_with("metrics", &[]);
    let hourly = [("OTEL_METRIC_EXPORT_INTERVAL", "3600000")];
    let server = server(&receiver, "grpc", "grpc", &hourly);
    server.client().await.hit("shop", &[("user", "ann")]).await.expect("a response");
    assert_eq!(server.terminate().code(), Some(0));
    point(&receiver, "tidegate_requests", &json!({ "code": "ok" }), |point| point["asInt"] == "1");
}

async fn without_a_receiver_a_failure_is_logged_once_and_decisions_are_made() {
    let receiver = OtlpReceiver::start_with("metrics", &[]);
    let server = server(&receiver, "http", "http/protobuf", &[]);
    drop(receiver);
    let mut client = server.client().await;
    for _ in 0..40 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let failures = || server.log().iter().filter(|line| line.contains("not pushed by OTLP")).count();
    eventually("a failure is logged", async || failures() > 0).await;
    assert_eq!(failures(), 1);
    assert_eq!(server.terminate().code(), Some(0));
}

crate::tests_with! {
    PYTHON_OTLP:
    counters_gauges_and_histograms_arrive_by_either_transport,
    a_collector_with_tls_is_trusted_by_its_authority,
    the_last_values_are_pushed_at_the_stop,
    without_a_receiver_a_failure_is_logged_once_and_decisions_are_made,
}
