//! Limits with conditions: Limitador's LIMITS_FILE, over Envoy's and Kuadrant's services.

use crate::{
    control::{Controlled, descriptors},
    replay::{report, text},
    support::{Client, Server, descriptor, eventually, rules_file},
};
use serde_json::{Value, json};
use std::{fs, process::Command};
use tidegate::api::pb::{
    kuadrant_v1::rate_limit_service_client::RateLimitServiceClient,
    service::{RateLimitRequest, rate_limit_response::Code},
};

/// Limits as the Kuadrant operator writes them, and one limit for all requests.
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

/// A limit for each user of a plan, and a limit for all users.
const SHOP: &str = "
- { namespace: shop, max_value: 2, seconds: 86400, name: users, conditions: ['descriptors[0].plan == \"free\"'], variables: ['descriptors[0].user'] }
- { namespace: shop, max_value: 100, seconds: 86400, name: all }
";
/// The path of the first limit.
const USERS: &str = r#"per 86400 s if descriptors[0].plan == "free" for each descriptors[0].user"#;
const ANN: [(&str, &str); 2] = [("user", "ann"), ("plan", "free")];

/// Sends requests of a user of the plan: the number of admitted requests.
async fn admitted(client: &mut Client, requests: usize) -> usize {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += usize::from(client.hit("shop", &ANN).await.expect("a response").overall_code == 1);
    }
    admitted
}

#[tokio::test]
async fn overrides_blocks_and_resets_apply_to_limits_with_conditions() {
    let shop = Controlled::start(SHOP, &[]);
    let mut client = shop.server.client().await;
    assert_eq!(admitted(&mut client, 3).await, 2);
    let rules = shop.operate("ListRules", json!({})).await;
    assert_eq!(
        (&rules["rules"][0]["rule"], &rules["rules"][1]["rule"]),
        (&json!(USERS), &json!("per 86400 s"))
    );
    let ann = json!({ "domain": "shop", "descriptors": descriptors(&ANN) });
    let explained = shop.operate("Explain", ann.clone()).await["descriptors"][0].take();
    assert_eq!(explained["outcome"], format!("limited: {USERS}; per 86400 s"), "{explained}");
    let of = |counters: &Value| {
        [&counters[0], &counters[1]].map(|one| (one["limit"].clone(), one["used"].clone()))
    };
    assert_eq!(of(&explained["counters"]), [(json!("users"), json!(2)), (json!("all"), json!(2))]);
    let peeked = shop.operate("Peek", ann.clone()).await["statuses"][0].take();
    assert_eq!((&peeked["name"], &peeked["code"]), (&json!("users"), &json!("OVER_LIMIT")));
    shop.operate("GiveBack", json!({ "domain": "shop", "descriptors": descriptors(&ANN), "hits": 1 })).await;
    assert_eq!(admitted(&mut client, 2).await, 1);

    // An override has a counter of its own, and leaves the counters of the limits as they are.
    let entries = json!([{ "key": "user", "value": "a*" }, { "key": "plan", "value": "*" }]);
    let limit = json!({ "requests": 3, "unit": "day" });
    shop.operate(
        "SetOverride",
        json!({ "override": { "id": "o", "domain": "shop", "entries": entries, "limit": limit } }),
    )
    .await;
    assert_eq!(admitted(&mut client, 4).await, 3);
    assert_eq!(shop.operate("Explain", ann.clone()).await["descriptors"][0]["rule"], "(override o)");
    shop.operate("DeleteOverride", json!({ "id": "o" })).await;
    assert_eq!(admitted(&mut client, 1).await, 0);
    assert_eq!(shop.operate("Reset", ann.clone()).await, json!({ "counters": "2" }));

    let block = json!({ "block": { "id": "b", "domain": "shop", "key": "user", "value": "ann" } });
    assert!(shop.operate("SetBlock", block).await["warning"].is_null());
    assert_eq!(admitted(&mut client, 1).await, 0);
    assert_eq!(shop.operate("Explain", ann.clone()).await["descriptors"][0]["blockId"], "b");
    shop.operate("DeleteBlock", json!({ "id": "b" })).await;
    assert_eq!(admitted(&mut client, 3).await, 2);
    // Resets the counters of all users at once.
    let rule = json!({ "domain": "shop", "rule": USERS });
    assert_eq!(shop.operate("Reset", rule).await, json!({ "counters": "1" }));
    assert_eq!(admitted(&mut client, 3).await, 2);
}

#[tokio::test]
async fn what_if_compares_limits_with_conditions() {
    let shop = Controlled::start(SHOP, &[]);
    shop.operate("RecordDecisions", json!({})).await;
    let mut client = shop.server.client().await;
    assert_eq!(admitted(&mut client, 8).await, 2);
    eventually("eight decisions are recorded", async || {
        let status = shop.operate("RecordDecisions", json!({})).await;
        if status["decisions"] == "8" { Ok(()) } else { Err(status) }
    })
    .await;
    let proposed = SHOP.replace("max_value: 2", "max_value: 5");
    for against in ["IN_FORCE", "RECORDED"] {
        let report = shop.operate("WhatIf", json!({ "rules": proposed, "against": against })).await;
        assert_eq!((&report["requests"], &report["newlyAdmitted"]), (&json!("8"), &json!("3")), "{report}");
        let same = shop.operate("WhatIf", json!({ "rules": SHOP, "against": against })).await;
        assert_eq!((&same["newlyAdmitted"], &same["newlyDenied"]), (&Value::Null, &Value::Null), "{same}");
    }
    let suggested =
        shop.operate("WhatIf", json!({ "rules": SHOP, "suggestFor": [USERS], "suggestShare": 0.001 })).await;
    assert_eq!(suggested["suggestions"][0]["suggested"], json!({ "requests": 8 }), "{suggested}");
}

/// With a change of the file, an override, a block and a reset in between.
#[tokio::test]
async fn a_log_under_limits_with_conditions_is_replayed_with_the_same_decisions() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log");
    let shop = Controlled::start(SHOP, &["--decision-log", text(&log)]);
    let mut client = shop.server.client().await;
    assert_eq!(admitted(&mut client, 4).await, 2);
    fs::write(shop.rules.path(), SHOP.replace("max_value: 2", "max_value: 5")).expect("written");
    eventually("the file is in force", async || {
        let rules = shop.operate("ListRules", json!({})).await;
        if rules["rules"][0]["limits"][0]["requests"] == 5 { Ok(()) } else { Err(rules) }
    })
    .await;
    assert_eq!(admitted(&mut client, 4).await, 3);
    let entries = json!([{ "key": "user", "value": "ann" }, { "key": "plan", "value": "free" }]);
    let limit = json!({ "requests": 1, "unit": "day" });
    shop.operate(
        "SetOverride",
        json!({ "override": { "id": "o", "domain": "shop", "entries": entries, "limit": limit } }),
    )
    .await;
    assert_eq!(admitted(&mut client, 2).await, 1);
    shop.operate("DeleteOverride", json!({ "id": "o" })).await;
    shop.operate("SetBlock", json!({ "block": { "id": "b", "key": "plan", "value": "free" } })).await;
    assert_eq!(admitted(&mut client, 2).await, 0);
    shop.operate("DeleteBlock", json!({ "id": "b" })).await;
    shop.operate("Reset", json!({ "domain": "shop", "descriptors": descriptors(&ANN) })).await;
    assert_eq!(admitted(&mut client, 6).await, 5);
    assert!(shop.server.terminate().success());

    let replayed = report(&[text(&log)])["report"].take();
    let differences = ["newly_denied", "newly_admitted", "responses_changed"].map(|key| &replayed[key]);
    assert_eq!((&replayed["requests"], differences), (&json!(18), [&json!(0); 3]), "{replayed}");
    let rows = replayed["rules"].as_array().expect("rows").iter();
    let denied: Vec<_> = rows.map(|row| (row["rule"].as_str(), row["proposed"]["denied"].as_u64())).collect();
    for row in [(Some(USERS), Some(4)), (Some("(override o)"), Some(1)), (Some("(blocked)"), Some(2))] {
        assert!(denied.contains(&row), "{row:?} is not in {denied:?}");
    }
    // Under one file with a limit of 4 for the whole log, other requests are admitted and others denied.
    let proposed = rules_file(&SHOP.replace("max_value: 2", "max_value: 4"));
    let other = report(&["--rules", text(proposed.path()), text(&log)])["report"].take();
    assert_eq!(other["current"]["admitted"], 11, "{other}");
    assert!(
        other["newly_admitted"].as_u64() > Some(0) && other["newly_denied"].as_u64() > Some(0),
        "{other}"
    );
}
