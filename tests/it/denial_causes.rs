//! Denials for reasons other than a limit, and limits by their names, as operators see them.

use crate::{admin::page_with_token, control::Controlled, support::eventually};
use serde_json::{Value, json};
use std::process::Command;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: day, requests_per_unit: 3 }
  - key: stream
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 60s }
";

async fn tidegate(shop: &Controlled, command: &[&str]) -> (bool, String) {
    let mut run = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    run.args(command).args(["--addr", shop.server.address()]);
    if command[0] == "ctl" {
        run.args(["--token", &shop.operate]);
    }
    let output = tokio::task::spawn_blocking(move || run.output()).await.expect("no panic").expect("it runs");
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

/// `explain` and `peek` said OK with 3 remaining, `call` was denied with the reset "never", and no line was in the log.
#[tokio::test]
async fn full_counters_are_named_as_the_cause_wherever_a_denial_is_seen() {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let log_path = log.path().to_str().expect("UTF-8");
    let shop = Controlled::start(RULES, &["--max-counters", "2", "--decision-log", log_path]);
    let mut client = shop.server.client().await;
    for user in ["a", "b", "c", "d"] {
        client.hit("shop", &[("user", user)]).await.expect("a decision");
    }
    for (command, expected) in [
        (
            &["ctl", "explain", "shop", "user=new"][..],
            "user=new: OVER_LIMIT, because the counters are full: no limit is exceeded",
        ),
        (&["ctl", "peek", "shop", "user=new"], "because the counters are full"),
        (&["call", "shop", "user=new"], "unknown: the counters are full"),
        (&["call", "shop", "user=new", "--json"], r#""cause":"counters_full""#),
    ] {
        let (_, shown) = tidegate(&shop, command).await;
        assert!(shown.contains(expected), "{command:?}: {shown}");
    }
    // Keys that have counters are limited as always.
    let (_, known) = tidegate(&shop, &["ctl", "explain", "shop", "user=a"]).await;
    assert!(known.contains("user=a: OK") && known.contains("1 used, 2 remaining"), "{known}");
    eventually("the cause in `top`", async || match tidegate(&shop, &["ctl", "top"]).await.1 {
        shown if shown.contains("(counters full)") => Ok(()),
        shown => Err(shown),
    })
    .await;
    eventually("the cause in the decision log", async || match std::fs::read_to_string(log.path()) {
        Ok(lines) if lines.contains(r#""cause":"counters_full""#) => Ok(()),
        lines => Err(format!("{lines:?}")),
    })
    .await;
    let page = page_with_token(shop.port, &shop.read).await;
    let hits = |outcome: &str| {
        page[&format!(
            "tidegate_limit_hits_total{{domain=\"shop\",limit=\"per-user\",outcome=\"{outcome}\"}}"
        )]
    };
    assert!(hits("denied_counters_full") >= 3.0 && hits("denied") == 0.0, "{page:#?}");
    shop.server.logged("counters are full: requests with new keys are denied although they exceed no limit");
}

/// Metrics and alerts name the limit `per-user`, and the rule is `user`. An unknown name used to give an empty table.
#[tokio::test]
async fn limits_are_found_by_the_names_that_metrics_have() {
    let shop = Controlled::start(RULES, &[]);
    assert_eq!(shop.call(&shop.read, "RecordDecisions", &json!({})).await.0, 200);
    let mut client = shop.server.client().await;
    for _ in 0..5 {
        client.hit("shop", &[("user", "mallory")]).await.expect("a decision");
    }
    for name in ["user", "per-user"] {
        let (status, top) = shop.call(&shop.read, "TopKeys", &json!({ "rule": name })).await;
        assert_eq!((status, &top["keys"][0]["limits"]), (200, &json!(["per-user"])), "{name}: {top}");
    }
    assert!(tidegate(&shop, &["ctl", "top", "--rule", "per-user"]).await.1.contains("user (per-user)"));
    let (is_success, error) = tidegate(&shop, &["ctl", "top", "--rule", "per-usr"]).await;
    assert!(!is_success && error.contains("did you mean \"per-user\"?"), "{error}");
    for method in ["TopKeys", "Tail"] {
        let (status, error) = shop.call(&shop.read, method, &json!({ "rule": "nosuch" })).await;
        assert_eq!((status, &error["code"]), (404, &json!("NOT_FOUND")), "{method}: {error}");
    }
    let what_if = json!({ "rules": RULES, "suggestFor": ["per-user"] });
    let report =
        eventually("recorded decisions", async || match shop.call(&shop.read, "WhatIf", &what_if).await {
            (200, report) => Ok(report),
            refused => Err(refused),
        })
        .await;
    let row = &report["rules"][0];
    assert_eq!((&row["rule"], &row["limits"]), (&json!("user"), &json!(["per-user"])), "{report}");
    assert_eq!(report["suggestions"][0]["rule"], "user", "{report}");
    let reset = shop.operate("Reset", json!({ "domain": "shop", "rule": "per-user" })).await;
    assert_eq!(reset["counters"], Value::from("1"));
}

/// The limit was shown as "3 per 1m".
#[tokio::test]
async fn a_limit_of_requests_in_flight_is_printed_in_its_units() {
    let shop = Controlled::start(RULES, &[]);
    for command in [&["ctl", "peek", "shop", "stream=x"][..], &["call", "shop", "stream=x"]] {
        let (_, shown) = tidegate(&shop, command).await;
        assert!(shown.contains("3 in flight, held for at most 1m"), "{command:?}: {shown}");
    }
}
