//! `POST /json` of a real server: it decides as gRPC does, in the JSON mapping of protobuf.

use crate::{
    admin::start,
    support::{http1, rules_file},
};
use http::{HeaderMap, Request};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

const RULES: &str = "
domain: demo
descriptors:
  - key: api_key
    rate_limit: { name: per-key, unit: day, requests_per_unit: 2 }
  - key: burst
    rate_limit: { per: 90m, requests_per_unit: 3 }
  - key: path
    rate_limit: { unit: day, requests_per_unit: 0 }
    on_deny: { body: stop here, headers: { content-type: text/plain, x-reason: closed } }
  - key: marked
    rate_limit: { unit: day, requests_per_unit: 0 }
    on_deny: { mark: { header: x-over, value: yes } }
";

/// Posts the body; returns the status, the headers and the body.
async fn post(port: u16, headers: &[(&str, &str)], body: &str) -> (u16, HeaderMap, String) {
    let builder =
        headers.iter().fold(Request::post("/json"), |builder, (name, value)| builder.header(*name, *value));
    let request = builder.body(body).expect("a well-formed request");
    let (head, body) =
        http1::send(Ipv4Addr::LOCALHOST, port, request).await.expect("a response").into_parts();
    (head.status.as_u16(), head.headers, String::from_utf8(body).expect("text"))
}

fn hit(key: &str, value: &str) -> String {
    json!({ "domain": "demo", "descriptors": [{ "entries": [{ "key": key, "value": value }] }] }).to_string()
}

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[tokio::test]
async fn requests_are_admitted_with_200_and_denied_with_429_on_the_counters_of_grpc() {
    let (server, port) = start(RULES, &[]);
    let mut client = server.client().await;
    client.hit("demo", &[("api_key", "a")]).await.expect("a decision");
    let (status, headers, body) = post(port, &[], &hit("api_key", "a")).await;
    assert_eq!((status, headers["content-type"].to_str().unwrap()), (200, "application/json"));
    let admitted = parsed(&body);
    let limit = json!({ "name": "per-key", "requestsPerUnit": 2, "unit": "DAY" });
    assert_eq!((&admitted["overallCode"], &admitted["statuses"][0]["code"]), (&json!("OK"), &json!("OK")));
    assert_eq!(admitted["statuses"][0]["currentLimit"], limit, "{body}");
    let (status, _, body) = post(port, &[], &hit("api_key", "a")).await;
    let denied = parsed(&body);
    assert_eq!((status, &denied["overallCode"]), (429, &json!("OVER_LIMIT")));
    let reset = denied["statuses"][0]["durationUntilReset"].as_str().expect("a duration");
    assert!(reset.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u64>().is_ok()), "{reset}");
    let denied = client.hit("demo", &[("api_key", "a")]).await.expect("a decision");
    assert_eq!(denied.overall_code, 2, "both charge one counter");
    // The content type that `curl --data` sends, which the reference server's documentation shows.
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(post(port, &form, &hit("api_key", "b")).await.0, 200);
}

#[tokio::test]
async fn malformed_requests_get_400_with_the_reason_and_charge_nothing() {
    let (_server, port) = start(RULES, &[]);
    for (body, reason) in [
        ("", "EOF while parsing"),
        ("{", "EOF while parsing"),
        (r#"{"domain":"","descriptors":[{"entries":[{"key":"api_key"}]}]}"#, "domain is empty"),
        (r#"{"domain":"demo"}"#, "descriptors is empty"),
        (r#"{"domain":"demo","descriptors":[{"entries":[{"key":"api_key","valeu":"c"}]}]}"#, "valeu"),
    ] {
        let (status, _, message) = post(port, &[], body).await;
        assert!(status == 400 && message.contains(reason), "{body}: {status} {message}");
    }
    let unknown = [("tidegate-precision", "roughly")];
    let (status, _, message) = post(port, &unknown, &hit("api_key", "c")).await;
    assert!(status == 400 && message.contains("neither `exact` nor `seconds`"), "{message}");
    let (_, _, body) = post(port, &[], &hit("api_key", "c")).await;
    assert_eq!(parsed(&body)["statuses"][0]["limitRemaining"], 1, "{body}");
    let request = Request::get("/json");
    let response = http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
    assert_eq!((response.status().as_u16(), response.headers()["allow"].to_str().unwrap()), (405, "POST"));
}

#[tokio::test]
async fn the_metadata_of_grpc_are_headers() {
    let (_server, port) = start(RULES, &[]);
    let exact = [("tidegate-precision", "exact"), ("tidegate-windows", "")];
    for _ in 0..3 {
        let (_, headers, _) = post(port, &exact, &hit("burst", "a")).await;
        assert_eq!(headers["tidegate-windows"], "90m");
    }
    let (status, _, body) = post(port, &exact, &hit("burst", "a")).await;
    let denied = parsed(&body);
    let reset = denied["statuses"][0]["durationUntilReset"].as_str().expect("a duration");
    // The same moment is reached with a probability of 1e-9.
    assert!(status == 429 && reset.contains('.'), "{body}");
    assert_eq!(denied["statuses"][0]["currentLimit"]["window"], "5400s", "{body}");
    let (_, _, body) = post(port, &[], &hit("burst", "a")).await;
    assert_eq!(parsed(&body)["statuses"][0]["currentLimit"]["window"], Value::Null, "{body}");
}

#[tokio::test]
async fn headers_for_the_client_are_headers_of_the_response_too() {
    let rules = rules_file(RULES);
    let (_server, port) =
        crate::admin::start_from(rules.path(), &["--response-headers", "draft11,retry-after"]);
    let (_, headers, body) = post(port, &[], &hit("api_key", "a")).await;
    assert!(headers["ratelimit"].to_str().unwrap().contains("r=1"), "{headers:?}");
    let listed = parsed(&body)["responseHeadersToAdd"].as_array().expect("a list").len();
    assert_eq!(listed, 2, "RateLimit and RateLimit-Policy: {body}");
    post(port, &[], &hit("api_key", "a")).await;
    let (status, headers, _) = post(port, &[], &hit("api_key", "a")).await;
    let retry_after: u64 = headers["retry-after"].to_str().unwrap().parse().expect("seconds");
    assert!(status == 429 && retry_after > 0, "{headers:?}");
    let (status, headers, body) = post(port, &[], &hit("path", "a")).await;
    assert_eq!(
        (status, &headers["x-reason"], &headers["content-type"]),
        (429, &"closed".parse().unwrap(), &"application/json".parse().unwrap())
    );
    // Bytes are base64 in the JSON mapping.
    assert_eq!(parsed(&body)["rawBody"], "c3RvcCBoZXJl");
    let (status, headers, body) = post(port, &[], &hit("marked", "a")).await;
    let marks = json!([{ "key": "x-over", "value": "yes" }]);
    assert_eq!((status, &parsed(&body)["requestHeadersToAdd"]), (200, &marks));
    assert!(!headers.contains_key("x-over"), "it is for the service behind the caller: {headers:?}");
}
