//! A ban as its operators see it: the control API, the command, metrics and the decision log. Schedules are tested in the same places.

use crate::{
    control::{Controlled, descriptors},
    support::{eventually, http1},
};
use http::Request;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, process::Command};

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit:
      name: per-user
      unit: day
      requests_per_unit: 2
      ban: { after: 2 denials, within: 1m, for: 10m }
  - key: partner
    rate_limit: { unit: day, requests_per_unit: 2, schedule: [{ hours: '00:00-24:00', requests_per_unit: 9 }] }
";

fn seconds(text: &Value) -> f64 {
    let text = text.as_str().expect("a duration");
    text.trim_end_matches('s').parse().expect("seconds")
}

#[tokio::test]
async fn a_ban_is_shown_wherever_its_key_is_and_a_reset_lifts_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("decisions.jsonl");
    let shop = Controlled::start(RULES, &["--decision-log", log.to_str().expect("UTF-8")]);
    let mut client = shop.server.client().await;
    for _ in 0..5 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
    }
    let ann = json!({ "domain": "shop", "descriptors": descriptors(&[("user", "ann")]) });
    let status = shop.operate("Peek", ann.clone()).await["statuses"][0].clone();
    assert_eq!((&status["ban"], &status["code"]), (&json!("in_force"), &json!("OVER_LIMIT")));
    let counters = shop.operate("ListCounters", ann.clone()).await;
    let counter = &counters["descriptors"][0]["counters"][0];
    let left = seconds(&counter["bannedFor"]);
    assert!((540.0..=600.0).contains(&left), "{counter}");
    assert!(seconds(&status["resetAfter"]) >= left, "the limit of a day admits later than the ban ends");
    let rules = shop.operate("ListRules", json!({})).await;
    assert_eq!(rules["rules"][0]["limits"][0]["ban"], "10m after 2 denials within 1m");
    assert_eq!(rules["rules"][1]["limits"][0]["schedule"], json!(["9 mon-sun 00:00-24:00 UTC"]));
    let partner = json!({ "domain": "shop", "descriptors": descriptors(&[("partner", "x")]) });
    assert_eq!(shop.operate("Explain", partner).await["descriptors"][0]["counters"][0]["requests"], 9);
    let ctl = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["ctl", "--addr", shop.server.address(), "counters", "shop", "user=ann"])
        .env("TIDEGATE_TOKEN", &shop.read)
        .output()
        .expect("the command runs");
    assert!(String::from_utf8_lossy(&ctl.stdout).contains(", banned for "), "{ctl:?}");

    let request = Request::get("/metrics").header("host", "test");
    let request = request.header("authorization", format!("Bearer {}", shop.read));
    let page = http1::fetch(Ipv4Addr::LOCALHOST, shop.port, request).await.expect("a page").into_body();
    let page = String::from_utf8(page).expect("text");
    for sample in [
        r#"tidegate_limit_bans_total{domain="shop",limit="per-user"} 1"#,
        r#"tidegate_limit_banned_requests_total{domain="shop",limit="per-user"} 2"#,
        r#"tidegate_limit_requests_total{domain="shop",limit="per-user",outcome="denied"} 3"#,
    ] {
        assert!(page.contains(sample), "{sample} is missing in {page}");
    }
    let phases = eventually("five decisions in the log", async || {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let phases: Vec<Value> =
            lines.filter_map(|line| Some(line.get("descriptors")?[0]["ban"].clone())).collect();
        if phases.len() == 5 { Ok(phases) } else { Err(phases) }
    })
    .await;
    assert_eq!(phases, [Value::Null, Value::Null, Value::Null, json!("begins"), json!("in_force")]);

    assert_eq!(shop.operate("Reset", ann.clone()).await, json!({ "counters": "2" }));
    assert_eq!(shop.operate("Peek", ann).await["statuses"][0]["remaining"], 2);
}
