//! `RecordDecisions` and `WhatIf` of a real server.

use crate::{
    control::Controlled,
    support::{Server, descriptor, eventually},
};
use serde_json::{Value, json};

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: email, log: hash, rate_limit: { unit: day, requests_per_unit: 3 } }
";

const PROPOSED: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 2 } }
  - { key: email, rate_limit: { unit: day, requests_per_unit: 4 } }
";

async fn send(server: &Server, key: &str, value: &str, hits: usize) {
    let mut client = server.client().await;
    for _ in 0..hits {
        client.should_rate_limit("shop", vec![descriptor(&[(key, value)])]).await.expect("a decision");
    }
}

/// Waits until this many decisions are recorded.
async fn recorded(shop: &Controlled, decisions: &str) {
    eventually(&format!("{decisions} recorded decisions"), async || {
        let status = shop.call(&shop.read, "RecordDecisions", &json!({})).await.1;
        if status["decisions"] == decisions { Ok(()) } else { Err(status) }
    })
    .await;
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |group: &[u8]| {
        let bits = (0..3).fold(0, |bits, at| bits << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        let digit = move |at: usize| match at <= group.len() {
            true => char::from(ALPHABET[(bits >> (18 - 6 * at)) as usize & 63]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

fn keys(list: &Value) -> Vec<(String, String)> {
    let of = |key: &Value| {
        let value = key["descriptor"]["entries"][0]["value"].as_str().unwrap_or_default();
        (value.to_owned(), key["requests"].as_str().unwrap_or_default().to_owned())
    };
    list.as_array().map(|keys| keys.iter().map(of).collect()).unwrap_or_default()
}

#[tokio::test]
async fn proposed_rules_are_compared_with_those_in_force_on_recorded_decisions() {
    let shop = Controlled::start(RULES, &[]);
    let (status, error) = shop.call(&shop.read, "WhatIf", &json!({ "rules": PROPOSED })).await;
    assert_eq!((status, error["code"].as_str()), (400, Some("FAILED_PRECONDITION")), "{error}");
    assert_eq!(shop.call(&shop.read, "RecordDecisions", &json!({})).await.0, 200);
    send(&shop.server, "user", "ada", 5).await;
    send(&shop.server, "email", "a@example.org", 4).await;
    recorded(&shop, "9").await;
    for against in ["IN_FORCE", "RECORDED"] {
        let request = json!({ "rules": PROPOSED, "against": against, "last": "600s" });
        let (status, report) = shop.call(&shop.read, "WhatIf", &request).await;
        assert_eq!((status, &report["requests"]), (200, &json!("9")), "{report}");
        assert_eq!((&report["proposed"]["denied"], &report["current"]["denied"]), (&json!("3"), &json!("3")));
        assert_eq!(keys(&report["keysNewlyDenied"]), [("ada".to_owned(), "1".to_owned())]);
        let admitted = &keys(&report["keysNewlyAdmitted"])[0];
        assert!(admitted.0.starts_with("hash:") && admitted.1 == "1", "values are redacted: {admitted:?}");
        let points = report["overTime"]["points"].as_array().expect("a series");
        let of_point =
            |point: &Value| point["requests"].as_str().map_or(0, |text| text.parse().expect("a number"));
        assert_eq!(points.iter().map(of_point).sum::<u64>(), 9);
        assert_eq!(report.get("notes"), None, "{report}");
    }
    // The counters and the rules of the server are as before.
    let peek =
        json!({ "domain": "shop", "descriptors": [{ "entries": [{ "key": "user", "value": "bob" }] }] });
    assert_eq!(shop.call(&shop.read, "Peek", &peek).await.1["statuses"][0]["remaining"], 3);
}

#[tokio::test]
async fn overrides_in_force_apply_to_both_sides_and_other_domains_are_left_out() {
    let shop = Controlled::start(RULES, &[]);
    let entries = json!([{ "key": "user", "value": "ada" }]);
    let unlimited = json!({ "domain": "shop", "entries": entries, "unlimited": true, "reason": "test" });
    shop.operate("SetOverride", json!({ "override": unlimited })).await;
    shop.call(&shop.read, "RecordDecisions", &json!({})).await;
    send(&shop.server, "user", "ada", 5).await;
    recorded(&shop, "5").await;
    let report = shop.call(&shop.read, "WhatIf", &json!({ "rules": PROPOSED })).await.1;
    assert_eq!(
        (&report["proposed"]["admitted"], &report["newlyDenied"]),
        (&json!("5"), &Value::Null),
        "{report}"
    );
    let other = PROPOSED.replace("shop", "other");
    let (status, error) = shop.call(&shop.read, "WhatIf", &json!({ "rules": other })).await;
    assert_eq!((status, error["code"].as_str()), (400, Some("FAILED_PRECONDITION")), "{error}");
}

#[tokio::test]
async fn a_log_in_the_request_is_replayed_and_errors_name_the_field_and_the_line() {
    let shop = Controlled::start(RULES, &["--http-max-body-bytes", "4000000"]);
    let line = |second: u32| {
        format!(
            r#"{{"v":1,"time":"2026-03-01T12:00:{second:02}Z","domain":"shop","code":"OK","descriptors":[{{"entries":[{{"key":"user","value":"eve"}}],"hits":1,"code":"OK","limit":null,"remaining":0,"reset_ns":null}}]}}"#
        ) + "\n"
    };
    let log = base64(((0..5).map(line).collect::<String>() + "bad\n").as_bytes());
    let request = json!({ "rules": PROPOSED, "log": log, "against": "RECORDED" });
    let (status, report) = shop.call(&shop.read, "WhatIf", &request).await;
    assert_eq!((status, &report["newlyDenied"]), (200, &json!("3")), "{report}");
    assert_eq!(report["notes"][0], "1 lines could not be read");
    // Five hits of the only key are admitted by a limit of five, and by no lower limit.
    let request = json!({ "rules": PROPOSED, "log": log, "suggestFor": ["user"] });
    let (status, report) = shop.call(&shop.read, "WhatIf", &request).await;
    let suggestion = &report["suggestions"][0];
    assert_eq!((status, &suggestion["suggested"]), (200, &json!({ "requests": 5 })), "{report}");
    assert_eq!((&suggestion["proposed"]["hits"], &suggestion["max"]), (&json!("3"), &json!("5")), "{report}");
    let request = json!({ "rules": PROPOSED, "log": log, "suggestFor": ["none"] });
    let (status, error) = shop.call(&shop.read, "WhatIf", &request).await;
    assert_eq!((status, error["fields"][0]["field"].as_str()), (400, Some("suggest_for")), "{error}");
    let request = json!({ "rules": PROPOSED, "log": base64(b"\x1f\x8bno gzip") });
    let (status, error) = shop.call(&shop.read, "WhatIf", &request).await;
    assert_eq!((status, error["fields"][0]["field"].as_str()), (400, Some("log")), "{error}");
    let broken =
        "domain: shop\n---\ndomain: other\ndescriptors:\n  - { key: user, rate_limit: { unit: eon } }\n";
    let (status, error) = shop.call(&shop.read, "WhatIf", &json!({ "rules": broken })).await;
    assert_eq!((status, error["fields"][0]["field"].as_str()), (400, Some("rules")), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("proposed:5:")), "{error}");
}
