//! Descriptors that nothing limits although no rule says so, and descriptors that state no day for their windows: as the control API,
//! `tidegate ctl` and the log show them.

use crate::{control::Controlled, support::http1};
use http::Request;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, process::Command};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 100 }
    descriptors:
      - { key: path, value: /login, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: partner, rate_limit: { unlimited: true } }
  - { key: plan, value: staff }
  - { key: plan, value: free, rate_limit: { unit: day, requests_per_unit: 100 } }
  - { key: stream, rate_limit: { algorithm: concurrency, requests_in_flight: 5, max_hold: 60s } }
";

async fn ctl(shop: &Controlled, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("ctl").args(args).args(["--addr", shop.server.address(), "--token", &shop.read]);
    let run = tokio::task::spawn_blocking(move || command.output()).await;
    let output = run.expect("no panic").expect("it runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn what_no_rule_decides_on_is_seen_and_what_rules_admit_on_purpose_is_not() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    assert!(ctl(&shop, &["unlimited"]).await.contains("no descriptor was without a limit"));
    for entries in [
        // These descriptors are decided by a rule: limits, `unlimited`, an allow-list entry, slots.
        &[("user", "ann")][..],
        &[("user", "ann"), ("path", "/login")],
        &[("partner", "x")],
        &[("plan", "staff")],
        &[("plan", "free")],
        &[("stream", "1")],
        // These descriptors are decided by no rule.
        &[("user", "ann"), ("path", "/secret-value")],
        &[("user", "bob"), ("path", "/other-value")],
        &[("usr", "ann")],
    ] {
        client.hit("shop", entries).await.expect("a response");
    }
    client.hit("shop-api", &[("user", "ann")]).await.expect("a response");
    let peek = json!({
        "domain": "shop",
        "descriptors": [{ "entries": [{ "key": "by-json", "value": "1" }] }],
    });
    let peek = peek.to_string();
    let token = format!("Bearer {}", shop.read);
    let request = Request::post("/json").header("authorization", token).body(&*peek).expect("well-formed");
    let response = http1::send(Ipv4Addr::LOCALHOST, shop.port, request).await;
    assert_eq!(response.expect("a response").status(), 200);

    let (status, listed) = shop.call(&shop.read, "ListUnlimited", &json!({})).await;
    assert_eq!((status, &listed["total"]), (200, &json!(4)), "{listed}");
    let mut paths: Vec<(String, Value, String)> = listed["paths"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|path| {
            let text = |name: &str| path[name].as_str().unwrap_or_default().to_owned();
            (format!("{} {}", text("domain"), path["keys"]), path["descriptors"].clone(), text("nearest"))
        })
        .collect();
    paths.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        (r#"shop ["by-json"]"#, "1", ""),
        (r#"shop ["user","path"]"#, "2", "user → path=/login"),
        (r#"shop ["usr"]"#, "1", "user"),
        (r#"shop-api ["user"]"#, "1", "shop"),
    ];
    assert_eq!(
        paths,
        expected.map(|(path, count, nearest)| (path.to_owned(), json!(count), nearest.to_owned()))
    );
    assert!(!listed.to_string().contains("secret"), "values are not kept: {listed}");
    let (_, of_domain) = shop.call(&shop.read, "ListUnlimited", &json!({ "domain": "shop-api" })).await;
    assert_eq!(of_domain["paths"][0]["reason"], "no rules have the domain shop-api; did you mean shop?");

    let text = ctl(&shop, &["unlimited"]).await;
    for line in [
        "shop-api  user",
        "descriptors below user have the key path with these values only: /login",
        "  - key: path\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(
        serde_json::from_str::<Value>(&ctl(&shop, &["unlimited", "shop-api", "--json"]).await).expect("JSON")
            ["total"],
        1
    );

    // The log has it once.
    let line: Value = serde_json::from_str(&shop.server.logged("did you mean shop?")[0]).expect("JSON");
    assert_eq!(
        (&line["level"], &line["domain"], &line["keys"], &line["descriptors"]),
        (&json!("WARN"), &json!("shop-api"), &json!("user"), &json!(1))
    );
}

/// Limits by conditions belong to a whole request.
#[tokio::test]
async fn a_request_for_which_no_condition_holds_is_seen_once() {
    let limits = "- namespace: shop\n  max_value: 100\n  seconds: 60\n  conditions: [\"descriptors[0].method == 'POST'\"]\n  variables: [\"descriptors[0].user\"]\n";
    let shop = Controlled::start(limits, &[]);
    let mut client = shop.server.client().await;
    client.hit("shop", &[("method", "POST"), ("user", "ann")]).await.expect("a response");
    client.hit("shop", &[("method", "GET"), ("user", "ann")]).await.expect("a response");
    let (_, listed) = shop.call(&shop.read, "ListUnlimited", &json!({})).await;
    assert_eq!(
        (&listed["total"], &listed["paths"][0]["keys"]),
        (&json!(1), &json!(["method", "user"])),
        "{listed}"
    );
    let line: Value =
        serde_json::from_str(&shop.server.logged("the conditions of no limit hold")[0]).expect("JSON");
    assert_eq!(line["level"], "INFO", "their author wrote them");
}

#[tokio::test]
async fn descriptors_that_state_no_day_are_listed_with_the_days_that_their_rule_accepts() {
    let rules = "domain: shop\ndescriptors:\n\
        - key: customer\n  descriptors:\n\
        \x20 - key: billing_day\n    rate_limit: {requests_per_unit: 100, algorithm: fixed_window, calendar: {month: {entry: billing_day}}}\n";
    let shop = Controlled::start(rules, &[]);
    let mut client = shop.server.client().await;
    for (customer, day) in [("ann", "17"), ("bob", "secret-day"), ("cid", "32")] {
        client.hit("shop", &[("customer", customer), ("billing_day", day)]).await.expect("a response");
    }

    let (_, listed) = shop.call(&shop.read, "ListUnlimited", &json!({})).await;
    let path = &listed["unknownDays"][0];
    assert_eq!((&listed["unknownDaysTotal"], &listed["total"]), (&json!(1), &Value::Null), "{listed}");
    assert_eq!(
        (&path["domain"], &path["keys"], &path["descriptors"], &path["rule"]),
        (&json!("shop"), &json!(["customer", "billing_day"]), &json!("2"), &json!("customer → billing_day"))
    );
    assert_eq!(
        path["reason"],
        "the value of billing_day is no day of the month, so the windows begin on the 1st"
    );
    assert!(!listed.to_string().contains("secret"), "values are not kept: {listed}");
    let (_, of_other) = shop.call(&shop.read, "ListUnlimited", &json!({ "domain": "other" })).await;
    assert_eq!(of_other["unknownDays"], Value::Null, "{of_other}");

    let text = ctl(&shop, &["unlimited"]).await;
    for line in [
        "customer → billing_day  2 ",
        "\n  send a day from 1 to 31 as billing_day, such as 17; or correct `entry` of the limit at ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let json = ctl(&shop, &["unlimited", "--json"]).await;
    assert_eq!(serde_json::from_str::<Value>(&json).expect("JSON")["unknownDays"][0]["rule"], path["rule"]);
    let line: Value = serde_json::from_str(&shop.server.logged("is no day")[0]).expect("JSON");
    assert_eq!((&line["level"], &line["keys"]), (&json!("WARN"), &json!("customer → billing_day")));
}
