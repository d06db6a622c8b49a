//! Optional content of the responses of a real server.

use crate::support::{Server, descriptor, rules_file};
use prost_types::{Struct, value::Kind};
use serde_json::{Value, json};
use std::{process::Command, time::SystemTime};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    core::HeaderValue,
    service::{RateLimitResponse, rate_limit_response::Code},
};

const ON_DENY: &str = "
domain: edge
descriptors:
  - key: worded
    rate_limit: { unit: hour, requests_per_unit: 0 }
    on_deny: { body: too fast, headers: { content-type: text/plain, x-why: speed } }
  - key: marked
    rate_limit: { unit: hour, requests_per_unit: 0 }
    on_deny: { mark: { header: x-rate-limited, value: yes } }
";

#[tokio::test]
async fn a_rule_denies_in_its_own_words_or_lets_through_with_a_mark() {
    let rules = rules_file(ON_DENY);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let pair = |header: HeaderValue| (header.key, header.value, header.raw_value.len());
    let denied = client.hit("edge", &[("worded", "")]).await.unwrap();
    assert_eq!((denied.overall_code(), denied.raw_body), (Code::OverLimit, b"too fast".to_vec()));
    let headers: Vec<_> = denied.response_headers_to_add.into_iter().map(pair).collect();
    assert_eq!(
        headers,
        [("content-type".into(), "text/plain".into(), 0), ("x-why".into(), "speed".into(), 0)]
    );
    assert!(denied.request_headers_to_add.is_empty());

    let marked = client.hit("edge", &[("marked", "")]).await.unwrap();
    assert_eq!((marked.overall_code(), marked.statuses[0].code()), (Code::Ok, Code::OverLimit));
    let headers: Vec<_> = marked.request_headers_to_add.into_iter().map(pair).collect();
    assert_eq!(headers, [("x-rate-limited".into(), "yes".into(), 0)]);
    assert!(marked.response_headers_to_add.is_empty() && marked.raw_body.is_empty());
}

/// The queue would release a second request after an hour, which is longer than the request may wait.
const QUEUED: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: hour, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 1s }
    on_deny: { mark: { header: x-rate-limited, value: yes } }
";

#[tokio::test]
async fn a_request_that_a_queue_rejects_is_denied_as_its_rule_declares() {
    let rules = rules_file(QUEUED);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let admitted = client.hit("edge", &[("user", "ann")]).await.unwrap();
    assert!(admitted.request_headers_to_add.is_empty(), "{admitted:?}");
    let marked = client.hit("edge", &[("user", "ann")]).await.unwrap();
    assert_eq!((marked.overall_code(), marked.statuses[0].code()), (Code::Ok, Code::OverLimit));
    assert_eq!(marked.request_headers_to_add[0].key, "x-rate-limited");
}

const METADATA: &str = "domain: edge
descriptors:
  - key: plan
    value: gold
    metadata: { plan: { name: gold, weight: 2.5 }, paid: true }
    descriptors:
      - key: user
        rate_limit: { name: per-user, unit: hour, requests_per_unit: 1, algorithm: fixed_window }
        metadata: { plan: { name: user }, none: ~, list: [1, x] }
  - key: abuser
    rate_limit: { per: 10s, requests_per_unit: 0 }
    on_deny: { mark: { header: x-rate-limited, value: yes } }
  - key: team
    rate_limit: { unit: day, requests_per_unit: 9 }
    metadata: { plan: { name: team, weight: 7 } }
";

fn to_json(metadata: Struct) -> Value {
    let value = |value: prost_types::Value| match value.kind.expect("every value has a kind") {
        Kind::NullValue(_) => Value::Null,
        Kind::NumberValue(number) => json!(number),
        Kind::StringValue(text) => text.into(),
        Kind::BoolValue(boolean) => boolean.into(),
        Kind::StructValue(object) => to_json(object),
        Kind::ListValue(list) => {
            let object = |item| Struct { fields: [("item".to_owned(), item)].into() };
            list.values.into_iter().map(|item| to_json(object(item))["item"].clone()).collect()
        }
    };
    Value::Object(metadata.fields.into_iter().map(|(key, field)| (key, value(field))).collect())
}

fn metadata(answer: RateLimitResponse) -> Value {
    to_json(answer.dynamic_metadata.expect("metadata is configured"))
}

#[tokio::test]
async fn dynamic_metadata_has_the_request_the_rule_that_is_over_and_its_reset() {
    let rules = rules_file(METADATA);
    let server = Server::with_rules(rules.path(), &["--dynamic-metadata"]);
    let mut client = server.client().await;
    let user = || descriptor(&[("plan", "gold"), ("user", "ann")]);
    let own = || RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 5, unit: 2 }),
        hits_addend: Some(2),
        ..descriptor(&[("own", "x")])
    };
    let admitted =
        client.should_rate_limit("edge", vec![user(), own(), descriptor(&[("team", "a")])]).await.unwrap();
    let requested = json!([
        { "entries": ["plan=gold", "user=ann"], "hitsAddend": 1.0 },
        { "entries": ["own=x"], "limit": "requests_per_unit:5 unit:MINUTE", "hitsAddend": 2.0 },
        { "entries": ["team=a"], "hitsAddend": 1.0 },
    ]);
    assert_eq!(
        metadata(admitted),
        json!({
            "domain": "edge",
            "descriptors": requested,
            "metadata": { "plan": { "name": "user", "weight": 7.0 }, "none": null, "list": [1.0, "x"] },
            "tidegate": { "marked": false, "over_limit": [] },
        })
    );

    let denied = client.should_rate_limit("edge", vec![user(), own()]).await.unwrap();
    let mut denial = metadata(denied);
    assert_eq!(denial["metadata"], Value::Null, "a rule that is over contributes no metadata");
    let over = denial["tidegate"]["over_limit"][0].take();
    let wait = over["reset_seconds"].as_f64().unwrap();
    assert!(wait > 0.0 && wait <= 3600.0, "{over}");
    let declared_at = format!("{}:7:9", rules.path().display());
    let limit = json!({ "name": "per-user", "requests_per_unit": 1.0, "window": "1h" });
    assert_eq!(
        over,
        json!({
            "descriptor": 0.0,
            "remaining": 0.0,
            "rule": "plan=gold → user",
            "declared_at": declared_at,
            "limit": limit,
            "reset_seconds": wait,
        })
    );

    let marked = metadata(client.hit("edge", &[("abuser", "eve")]).await.unwrap());
    assert_eq!(marked["tidegate"]["marked"], true);
    let over = &marked["tidegate"]["over_limit"][0];
    assert_eq!((&over["never"], &over["reset_seconds"]), (&json!(true), &Value::Null));
    assert_eq!(over["limit"]["window"], "10s");
}

#[tokio::test]
async fn there_is_no_dynamic_metadata_by_default() {
    let rules = rules_file(METADATA);
    let server = Server::with_rules(rules.path(), &[]);
    let answer = server.client().await.hit("edge", &[("abuser", "eve")]).await.unwrap();
    assert_eq!(answer.dynamic_metadata, None);
}

const HEADERS: &str = "
domain: edge
descriptors:
  - key: user
    rate_limits:
      - { name: burst, per: 100h, requests_per_unit: 1, algorithm: fixed_window }
      - { name: daily, unit: day, requests_per_unit: 9, algorithm: fixed_window }
";

fn names(answer: &RateLimitResponse) -> Vec<&str> {
    answer.response_headers_to_add.iter().map(|header| header.key.as_str()).collect()
}

#[tokio::test]
async fn the_headers_that_are_set_are_sent_and_no_others() {
    let rules = rules_file(HEADERS);
    let plain = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"];
    let x = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
    let structured = ["ratelimit-policy", "ratelimit"];
    let sets: [(&str, Vec<&str>); 4] = [
        ("draft11", structured.to_vec()),
        ("draft10", structured.to_vec()),
        ("draft06,x", [plain, x].concat()),
        ("x,draft10,draft06,retry-after", [&structured[..], &plain, &x].concat()),
    ];
    for (set, expected) in sets {
        let server = Server::with_rules(rules.path(), &["--response-headers", set]);
        let mut client = server.client().await;
        let admitted = client.hit("edge", &[("user", "ann")]).await.unwrap();
        assert_eq!(names(&admitted), expected, "{set}");
        let denied = client.hit("edge", &[("user", "ann")]).await.unwrap();
        let retry: &[&str] = if set.contains("retry") { &["retry-after"] } else { &[] };
        assert_eq!(names(&denied), [&expected, retry].concat(), "{set}");
        assert!(names(&client.hit("edge", &[("else", "")]).await.unwrap()).is_empty());
    }
}

#[test]
fn unknown_and_contradictory_header_sets_are_refused() {
    let refused = |set: &str| {
        let serve = ["serve", "--response-headers", set];
        let refused = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(serve).output().unwrap();
        (refused.status.code(), String::from_utf8_lossy(&refused.stderr).into_owned())
    };
    let (code, error) = refused("draft10,draft09");
    assert_eq!(code, Some(2));
    assert!(
        error.contains("draft09")
            && error.contains("draft11, draft10, draft06, x, x-unix, draft03, retry-after, retry-after-date"),
        "{error}"
    );
    for both in ["draft10,draft11", "x,draft03", "x,x-unix", "x-unix,draft03", "retry-after,retry-after-date"]
    {
        let (code, error) = refused(both);
        assert_eq!(code, Some(1));
        assert!(error.contains("use the same headers; remove one"), "{error}");
    }
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "compares times that a real server states")]
async fn resets_as_times_and_dates_are_those_of_the_server_and_jitter_only_lengthens_them() {
    let rules = rules_file(
        "domain: edge
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}
",
    );
    let args = ["--response-headers", "x-unix,draft06,retry-after-date", "--retry-jitter", "3s"];
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    let before = SystemTime::now();
    client.hit("edge", &[("user", "ann")]).await.unwrap();
    let denied = client.hit("edge", &[("user", "ann")]).await.unwrap();
    let after = SystemTime::now();
    let exact = denied.statuses[0].duration_until_reset.as_ref().expect("a reset").seconds as u64;
    let seconds: u64 = header(&denied, "ratelimit-reset").unwrap().parse().unwrap();
    assert!((exact..=exact + 3).contains(&seconds), "{seconds} for {exact}");
    let unix = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let time: u64 = header(&denied, "x-ratelimit-reset").unwrap().parse().unwrap();
    let times = unix(before) + seconds - 1..=unix(after) + seconds + 1;
    assert!(times.contains(&time), "{time} is not in {times:?}");
    let date = jiff::fmt::rfc2822::parse(header(&denied, "retry-after").unwrap()).expect("an HTTP date");
    assert_eq!(date.timestamp().as_second(), time as i64);
}

#[test]
fn a_jitter_that_no_header_has_is_refused() {
    for (args, expected) in [
        (&["--retry-jitter", "3s"][..], "has no effect without a header that states a wait"),
        (&["--retry-jitter", "1500ms", "--response-headers", "x"], "write whole seconds up to an hour"),
        (&["--retry-jitter", "2h", "--response-headers", "x"], "write whole seconds up to an hour"),
    ] {
        let refused = Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("serve").args(args).output().unwrap();
        let error = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && error.contains(expected), "{error}");
    }
}

fn header<'a>(response: &'a RateLimitResponse, name: &str) -> Option<&'a str> {
    let header = response.response_headers_to_add.iter().find(|header| header.key == name);
    header.map(|header| header.value.as_str())
}

const POLICIES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limits:
      - { name: burst, unit: hour, requests_per_unit: 2, algorithm: sliding_log }
      - { name: daily, unit: day, requests_per_unit: 3, algorithm: sliding_log }
  - key: bucket
    rate_limit: { name: bucket, unit: minute, requests_per_unit: 5, algorithm: token_bucket, size: 100 }
  - { key: none, rate_limit: { name: none, unit: minute, requests_per_unit: 0 } }
  - { key: shadow, shadow_mode: true, rate_limit: { name: shadow, unit: minute, requests_per_unit: 1 } }
";

#[tokio::test]
async fn ratelimit_policy_does_not_change_between_responses() {
    let rules = rules_file(POLICIES);
    for draft in ["draft10", "draft11"] {
        let server = Server::with_rules(rules.path(), &["--response-headers", draft]);
        let mut client = server.client().await;
        for _ in 0..4 {
            let response = client.hit("edge", &[("user", "ann")]).await.unwrap();
            let policy = header(&response, "ratelimit-policy").expect("a policy");
            assert_eq!(policy, r#""burst";q=2;w=3600, "daily";q=3;w=86400"#, "{draft}");
        }
    }
}

#[tokio::test]
async fn draft_11_sends_the_available_quota_of_every_limit_and_its_effective_window() {
    let rules = rules_file(POLICIES);
    let server = Server::with_rules(rules.path(), &["--response-headers", "draft11"]);
    let mut client = server.client().await;
    let admitted = client.hit("edge", &[("user", "ann")]).await.unwrap();
    let limits = header(&admitted, "ratelimit").expect("service limits");
    assert!(limits.starts_with(r#""burst";r=1;t=3"#) && limits.contains(r#""daily";r=2;t=86"#), "{limits}");
    // 5 per minute refill one token in 12 s; the whole bucket takes 20 minutes.
    let bucket = client.hit("edge", &[("bucket", "a")]).await.unwrap();
    assert_eq!(header(&bucket, "ratelimit-policy"), Some(r#""bucket";q=100;w=1200"#));
    assert_eq!(header(&bucket, "ratelimit"), Some(r#""bucket";r=99;t=12"#));
}

#[tokio::test]
async fn a_limit_of_zero_sends_the_reset_header_that_draft_06_requires() {
    let rules = rules_file(POLICIES);
    let server = Server::with_rules(rules.path(), &["--response-headers", "draft06,retry-after"]);
    let denied = server.client().await.hit("edge", &[("none", "")]).await.unwrap();
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert_eq!(header(&denied, "ratelimit-reset"), Some("60"));
    assert_eq!(header(&denied, "retry-after"), None);
}

#[tokio::test]
async fn shadow_limits_send_no_headers() {
    let rules = rules_file(POLICIES);
    let all = ["--response-headers", "draft11,draft06,x,retry-after"];
    let server = Server::with_rules(rules.path(), &all);
    let mut client = server.client().await;
    for _ in 0..2 {
        assert!(names(&client.hit("edge", &[("shadow", "")]).await.unwrap()).is_empty());
    }
    let server = Server::with_rules(rules.path(), &[&all[..], &["--global-shadow"]].concat());
    let mut client = server.client().await;
    for _ in 0..3 {
        let admitted = client.hit("edge", &[("user", "ann")]).await.unwrap();
        assert_eq!((admitted.overall_code(), names(&admitted)), (Code::Ok, Vec::new()));
    }
}

#[tokio::test]
async fn the_reference_servers_variables_count_if_it_is_to_be_as_there() {
    let rules = rules_file(HEADERS);
    let variables = [("LIMIT_RESPONSE_HEADERS_ENABLED", "true"), ("LIMIT_RESET_HEADER", "X-Wait")];
    let server = Server::with_variables(rules.path(), &["--compat", "reference"], &variables);
    let answer = server.client().await.hit("edge", &[("user", "ann")]).await.unwrap();
    assert_eq!(names(&answer), ["RateLimit-Limit", "RateLimit-Remaining", "X-Wait"]);
    let server = Server::with_variables(rules.path(), &[], &variables);
    let answer = server.client().await.hit("edge", &[("user", "ann")]).await.unwrap();
    assert!(names(&answer).is_empty());
}
