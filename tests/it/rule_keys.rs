//! Keys that select descriptors by their values, schedules, bans and conditions in each place that has rules: decisions, `explain`, the
//! control API, overrides, blocks, and What-if. `replay.rs` tests them in replays, `core` in extensions of a control plane.

use crate::{
    control::{Controlled, descriptors},
    support::Client,
};
use serde_json::{Value, json};
use std::{process::Command, time::Duration};

const RULES: &str = "
domain: keys
descriptors:
  - { key: plan, values: [free, trial], value_ignore_case: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: address, value_network: [10.0.0.0/8, '2001:db8::/32'], rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: path, value_regex: '^/v[0-9]+/export', rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: partner, rate_limit: { unit: day, requests_per_unit: 9, schedule: [{ hours: '00:00-24:00', requests_per_unit: 1 }] } }
  - { key: client, rate_limit: { unit: day, requests_per_unit: 1, ban: { after: 9, within: 1m, for: 10m } } }
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1, when: 'descriptors[0].user != \"admin\"' } }
";

/// Key, a value that its limit of one request is for, the name of the rule, and a value without a limit.
const CASES: [(&str, &str, &str, Option<&str>); 6] = [
    ("plan", "TRIAL", "plan=(list free, any case)", Some("gold")),
    ("address", "2001:DB8:0::7", "address=(network 10.0.0.0/8)", Some("192.0.2.1")),
    ("path", "/v12/export/all", "path=(regex ^/v[0-9]+/export)", Some("/export/v1")),
    ("partner", "p", "partner", None),
    ("client", "c", "client", None),
    ("user", "ann", "user", Some("admin")),
];

async fn codes(client: &mut Client, key: &str, value: &str, requests: usize) -> Vec<i32> {
    let mut codes = Vec::new();
    for _ in 0..requests {
        codes.push(client.hit("keys", &[(key, value)]).await.expect("a response").overall_code);
    }
    codes
}

const OK: i32 = 1;
const OVER: i32 = 2;

#[tokio::test]
async fn each_key_holds_under_overrides_blocks_explanations_and_what_if() {
    let keys = Controlled::start(RULES, &[]);
    keys.call(&keys.read, "RecordDecisions", &json!({})).await;
    let mut client = keys.server.client().await;
    let rules = keys.operate("ListRules", json!({})).await.to_string();
    for (key, value, rule, other) in CASES {
        assert_eq!(codes(&mut client, key, value, 2).await, [OK, OVER], "{key}");
        if let Some(other) = other {
            assert_eq!(codes(&mut client, key, other, 2).await, [OK, OK], "{key}");
        }
        assert!(rules.contains(rule), "{rule} is not in {rules}");
        let of = json!({ "domain": "keys", "descriptors": descriptors(&[(key, value)]) });
        let explained = keys.operate("Explain", of.clone()).await;
        assert_eq!(explained["descriptors"][0]["rule"], rule, "{explained}");
        let shown = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args([
                "explain",
                "--rules",
                keys.rules.path().to_str().expect("UTF-8"),
                "keys",
                &format!("{key}={value}"),
            ])
            .output()
            .expect("the command runs");
        assert!(shown.status.success(), "{key}: {shown:?}");
    }
    let of = json!({ "domain": "keys", "descriptors": descriptors(&[("user", "admin")]) });
    let explained = keys.operate("Explain", of).await["descriptors"][0].take();
    assert_eq!(
        explained["outcome"],
        "user: limited; the limit user does not apply: its `when` does not hold"
    );
    assert_eq!(explained["counters"], Value::Null);
    until_recorded(&keys, "20").await;

    // All rules have another number, at all times.
    let proposed = RULES.replace("requests_per_unit: 1", "requests_per_unit: 2");
    let report = keys.operate("WhatIf", json!({ "rules": proposed })).await;
    assert_eq!((&report["requests"], &report["newlyAdmitted"]), (&json!("20"), &json!("6")), "{report}");
    let same = keys.operate("WhatIf", json!({ "rules": RULES, "against": "RECORDED" })).await;
    assert_eq!((&same["newlyAdmitted"], &same["newlyDenied"]), (&Value::Null, &Value::Null), "{same}");

    for (key, value, ..) in CASES {
        let entries = json!([{ "key": key, "value": value }]);
        let limit = json!({ "requests": 3, "unit": "day" });
        let of = json!({ "id": key, "domain": "keys", "entries": entries, "limit": limit, "reason": "test" });
        keys.operate("SetOverride", json!({ "override": of })).await;
        // Hits that were used before count.
        assert_eq!(codes(&mut client, key, value, 3).await, [OK, OK, OVER], "{key}");
        keys.operate("DeleteOverride", json!({ "id": key })).await;
        assert_eq!(codes(&mut client, key, value, 1).await, [OVER], "{key}");
        let of = json!({ "domain": "keys", "descriptors": descriptors(&[(key, value)]) });
        keys.operate("Reset", of).await;
        let block = json!({ "id": key, "key": key, "value": value, "reason": "test" });
        keys.operate("SetBlock", json!({ "block": block })).await;
        assert_eq!(codes(&mut client, key, value, 1).await, [OVER], "{key}");
        keys.operate("DeleteBlock", json!({ "id": key })).await;
        assert_eq!(codes(&mut client, key, value, 2).await, [OK, OVER], "{key}");
    }
}

async fn until_recorded(keys: &Controlled, decisions: &str) {
    for _ in 0..200 {
        if keys.operate("RecordDecisions", json!({})).await["decisions"] == decisions {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("not recorded: {decisions} decisions");
}
