//! What operators see of quotas.

use super::*;
use crate::{admin::page_with_token, control::token};
use serde_json::json;
use std::process::Command;

/// The output of `tidegate ctl quotas`.
async fn ctl_quotas(server: &Server, token: &str, args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["ctl", "quotas", "--addr", server.address()]).args(args).env("TIDEGATE_TOKEN", token);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic");
    let output = output.expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[tokio::test]
async fn operators_see_buckets_and_clients_with_what_rules_redact() {
    let rules = RULES.replace(
        "  - key: plan\n",
        "  - { key: user, log: hash, rate_limit: { per: 5s, requests_per_unit: 500 } }\n  - key: plan\n",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let tokens = folder.path().join("tokens");
    let reader = token(&tokens, "reader", &["--role", "read"]);
    let log = folder.path().join("decisions.jsonl");
    let args = [
        "--http-listen",
        "127.0.0.1:0",
        "--control",
        "loopback",
        "--http-token-file",
        tokens.to_str().expect("UTF-8"),
    ];
    let logged = ["--decision-log", log.to_str().expect("UTF-8")];
    let mut server = serve(&rules, &[&args[..], &logged].concat());
    let (mut one, mut other) = (Client::open(&server).await, Client::open(&server).await);
    one.report("shop", &[&[("plan", "gold")], &[("user", "zoe")]], 1).await;
    assert_eq!(one.strategy().await, ALLOW_ALL);
    let listed = ctl_quotas(&server, &reader, &[]).await;
    assert!(listed.contains("1 bucket, 1 stream; 1 bucket of streams that no limit divides"), "{listed}");
    assert!(
        listed.contains("what a former process may have assigned") && !listed.contains("zoe"),
        "{listed}"
    );

    tokio::time::sleep(LEARNING).await;
    for client in [&mut one, &mut other] {
        client.report("shop", &[&[("plan", "free")]], 1).await;
        while client
            .next()
            .await
            .expect("assignments")
            .iter()
            .all(|(id, _)| *id != bucket(&[("plan", "free")]))
        {}
    }
    let listed = ctl_quotas(&server, &reader, &["plan=free", "--domain", "shop", "--json"]).await;
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let [of_plan] = &**listed["buckets"].as_array().expect("a list") else { panic!("one bucket: {listed}") };
    assert_eq!(
        (&of_plan["entries"], &of_plan["rule"]),
        (&json!([{ "key": "plan", "value": "free" }]), &json!("plan=free"))
    );
    assert_eq!((&of_plan["requests"], &of_plan["window"]), (&json!(100), &json!("1s")));
    assert_eq!(
        (&listed["total"], &listed["streams"], &of_plan["subscriberCount"]),
        (&json!(1), &json!("2"), &json!(2))
    );
    let clients = of_plan["subscribers"].as_array().expect("a list");
    for (client, stream) in clients.iter().zip(["0", "1"]) {
        assert_eq!(
            (&client["assignment"], &client["peer"]),
            (&json!("TOKENS"), &json!("127.0.0.1")),
            "{client}"
        );
        assert_eq!(client.get("stream").map_or("0", |number| number.as_str().expect("a text")), stream);
        assert!(client["expires"].is_string() && client["lastReport"].is_string(), "{client}");
    }
    let rate = |of: &serde_json::Value| of["rate"].as_f64().expect("a rate");
    assert!(rate(of_plan) <= 100.0 && clients.iter().map(rate).sum::<f64>() <= rate(of_plan), "{of_plan}");

    let page = page_with_token(server.admin_port(), &reader).await;
    let value = |name: &str| page.get(name).copied().unwrap_or_else(|| panic!("no {name} in {page:?}"));
    assert!((rate(of_plan)..=200.0).contains(&value("tidegate_quota_assigned_rate")), "{page:?}");
    assert!(value("tidegate_quota_assigned_tokens") >= 1.0);
    assert_eq!((value("tidegate_quota_streams"), value("tidegate_quota_reports_total")), (2.0, 4.0));
    assert_eq!(value("tidegate_quota_assignments_total{kind=\"allow_all\"}"), 1.0);
    assert!(value("tidegate_quota_assignments_total{kind=\"tokens\"}") >= 2.0);
    assert_eq!(value("tidegate_quota_refused_reports_total{reason=\"counters\"}"), 0.0);

    // Values that rules hash are neither shown nor found.
    let listed = ctl_quotas(&server, &reader, &["user="]).await;
    assert!(listed.contains("shop: user=hash:") && listed.contains("\n1 bucket, "), "{listed}");
    assert!(ctl_quotas(&server, &reader, &["zoe"]).await.contains("\n0 buckets, "));
    assert!(ctl_quotas(&server, &reader, &["--domain", "other"]).await.contains("\n0 buckets, "));

    // An assignment that is sent again is not logged again.
    one.report("shop", &[&[("plan", "gold")]], 1).await;
    while one.next().await.expect("assignments").iter().all(|(id, _)| *id != bucket(&[("plan", "gold")])) {}
    drop((one, other));
    server.signal(rustix::process::Signal::TERM);
    assert!(server.wait().success());
    let log = std::fs::read_to_string(log).expect("a log");
    let lines = log.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let lines: Vec<serde_json::Value> = lines.map(|mut line| line["assignment"].take()).collect();
    let of = |value: &str| -> Vec<&serde_json::Value> {
        lines.iter().filter(|line| line["bucket"][0]["value"] == value).collect()
    };
    let [gold] = &*of("gold") else { panic!("one assignment: {log}") };
    assert_eq!((&gold["kind"], &gold["stream"]), (&json!("allow_all"), &json!(0)));
    let free = of("free");
    assert!(free.len() >= 2 && free.iter().all(|line| line["max_tokens"].is_u64()), "{log}");
    assert!([0, 1].into_iter().all(|stream| free.iter().any(|line| line["stream"] == stream)), "{log}");
    assert!(free.iter().all(|line| line["peer"] == "127.0.0.1" && line["domain"] == "shop"), "{log}");
    assert!(!log.contains("\"zoe\"") && log.contains("value_hash"), "{log}");
}
