//! Limits with conditions: Limitador's LIMITS_FILE, over Envoy's and Kuadrant's services.

use crate::support::{Server, descriptor, rules_file};
use std::process::Command;
use tidegate::api::pb::{
    kuadrant_v1::rate_limit_service_client::RateLimitServiceClient,
    service::{RateLimitRequest, rate_limit_response::Code},
};

/// As the Kuadrant operator writes it, and one limit for all.
const LIMITS: &str = "
- namespace: default/toystore
  max_value: 5
  seconds: 60
  name: alice
  conditions: ['descriptors[0][\"limit.alice__1f2a\"] == \"1\"']
  variables: []
- namespace: default/toystore
  max_value: 2
  seconds: 10
  name: user
  conditions: ['descriptors[0][\"limit.user__9c0d\"] == \"1\"']
  variables: ['descriptors[0][\"auth.identity.userid\"]']
- namespace: other
  max_value: 1000
  seconds: 60
  conditions:
  variables:
";

fn request(entries: &[(&str, &str)], hits_addend: u32) -> RateLimitRequest {
    RateLimitRequest {
        domain: "default/toystore".into(),
        descriptors: vec![descriptor(entries)],
        hits_addend,
    }
}

#[tokio::test]
async fn every_limit_whose_conditions_hold_is_checked_and_counted_in_any_order_of_entries() {
    let rules = rules_file(LIMITS);
    let server = Server::with_rules(rules.path(), &["--test-clock", "--response-headers", "draft03"]);
    let mut kuadrant = RateLimitServiceClient::new(server.channel().await);
    let mut envoy = server.client().await;
    let entries = [("auth.identity.userid", "bob"), ("limit.user__9c0d", "1"), ("limit.alice__1f2a", "1")];
    for _ in 0..4 {
        let checked = kuadrant.check_rate_limit(request(&entries, 1)).await.unwrap().into_inner();
        assert_eq!(checked.overall_code(), Code::Ok);
    }
    let mut hit = async |entries: &[(&str, &str)]| {
        let response = envoy.0.should_rate_limit(request(entries, 1)).await.unwrap().into_inner();
        let headers = response.response_headers_to_add.iter();
        let headers: Vec<String> =
            headers.map(|header| format!("{}: {}", header.key, header.value)).collect();
        (response.overall_code(), headers.join("\n"))
    };
    let (code, headers) = hit(&entries).await;
    assert_eq!(code, Code::Ok);
    assert_eq!(
        headers,
        "X-RateLimit-Limit: 2, 2;w=10;name=\"user\", 5;w=60;name=\"alice\"\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 10"
    );
    assert_eq!(hit(&entries).await.0, Code::Ok);
    assert_eq!(hit(&entries).await.0, Code::OverLimit);
    // The denied request is not counted under the other limit: two of five were.
    kuadrant.report(request(&entries[2..], 3)).await.unwrap();
    let checked = kuadrant.check_rate_limit(request(&entries[2..], 1)).await.unwrap().into_inner();
    assert_eq!(checked.overall_code(), Code::OverLimit);
    assert_eq!(hit(&[("unknown", "1")]).await, (Code::Ok, String::new()));
    assert!(
        !server.log().iter().any(|line| line.contains("exactly its entries")),
        "no rule is a descriptor's"
    );
}

#[test]
fn explain_lists_the_limits_of_a_request() {
    let rules = rules_file(LIMITS);
    let explain = |domain: &str, descriptors: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let command = command.args(["explain", "--rules"]).arg(rules.path()).arg(domain).args(descriptors);
        let explained = command.output().unwrap();
        (explained.status.code(), String::from_utf8(explained.stdout).unwrap())
    };
    let (code, text) = explain("default/toystore", &["limit.user__9c0d=1,auth.identity.userid=bob", "a=b"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("limited: per 10 s if descriptors[0][\"limit.user__9c0d\"] == \"1\" for each"),
        "{text}"
    );
    assert!(text.contains("2 per 10s"), "{text}");
    assert!(text.contains("its limits are those of the request"), "{text}");
    let (code, text) = explain("default/toystore", &["limit.user__9c0d=1"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no limit: the conditions of none hold"), "{text}");
}
