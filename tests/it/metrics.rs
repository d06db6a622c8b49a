//! Metrics of a real server: their documentation, and the figures of each limit.

use crate::{
    admin::{get, metrics, start, start_from},
    support::rules_file,
};
use std::collections::BTreeMap;

/// The families in docs/metrics.md with their types, and the labels of each.
fn documented() -> BTreeMap<String, String> {
    let text = include_str!("../../docs/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let families = rows.filter_map(|row| {
        let (name, rest) = row.split_once('`')?;
        let kind = rest.split('|').nth(1)?.trim();
        let is_family = ["counter", "gauge", "histogram"].contains(&kind);
        is_family.then(|| (name.split('{').next().unwrap_or(name).to_owned(), kind.to_owned()))
    });
    families.collect()
}

#[tokio::test]
async fn the_documentation_lists_exactly_the_families_that_a_server_has() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (folder, log) = (data.path().join("data"), data.path().join("decisions.log"));
    let (_server, port) = start(
        "domain: d\n",
        &["--data", folder.to_str().expect("UTF-8"), "--decision-log", log.to_str().expect("UTF-8")],
    );
    let (status, text) = get(port, "/metrics").await;
    assert_eq!(status, 200);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeMap<_, _> = types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect();
    assert!(found.len() > 20, "{text}");
    assert_eq!(found, documented());
}

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: per_user, unit: day, requests_per_unit: 4 } }
  - { key: trial, shadow_mode: true, rate_limit: { per: 10m, requests_per_unit: 1 } }
  - { key: tenant, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 9 } }
";

#[tokio::test]
async fn each_limit_is_counted_by_its_name_and_outcome() {
    let (server, port) = start(RULES, &["--near-limit-percent", "50"]);
    let mut client = server.client().await;
    for (key, value, times) in [("user", "ann", 6), ("trial", "", 3), ("tenant", "x\"y", 2)] {
        for _ in 0..times {
            client.hit("shop", &[(key, value)]).await.expect("a response");
        }
    }
    let found = metrics(port).await;
    for (name, value) in [
        (r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="admitted"}"#, 4.0),
        (r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="near_limit"}"#, 2.0),
        (r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="denied"}"#, 2.0),
        (r#"tidegate_limit_requests_total{domain="shop",limit="trial",outcome="shadow_denied"}"#, 2.0),
        (r#"tidegate_limit_requests_total{domain="shop",limit="trial",outcome="denied"}"#, 0.0),
        (
            r#"tidegate_limit_hits_total{domain="shop",limit="tenant",values="tenant=x\"y",outcome="admitted"}"#,
            2.0,
        ),
        (r#"tidegate_limit_max_hits{domain="shop",limit="per_user"}"#, 4.0),
        (r#"tidegate_limit_window_seconds{domain="shop",limit="trial"}"#, 600.0),
        ("tidegate_limit_value_series", 1.0),
        ("tidegate_limits_without_series", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name} of {found:#?}");
    }
}

#[tokio::test]
async fn limits_beyond_the_bound_on_series_share_one() {
    let (server, port) = start(RULES, &["--metrics-series-max", "1"]);
    let mut client = server.client().await;
    for key in ["user", "trial", "tenant"] {
        client.hit("shop", &[(key, "x")]).await.expect("a response");
    }
    let found = metrics(port).await;
    assert_eq!(
        found.get(r#"tidegate_limit_hits_total{domain="",limit="other",outcome="admitted"}"#),
        Some(&2.0)
    );
    assert_eq!(
        found.get(r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="admitted"}"#),
        Some(&1.0)
    );
}

#[tokio::test]
async fn counts_of_a_limit_go_on_across_a_reload_that_renumbers_it() {
    let rules = rules_file(RULES);
    let (server, port) = start_from(rules.path(), &["--rules-watch", "off"]);
    let mut client = server.client().await;
    client.hit("shop", &[("user", "ann")]).await.expect("a response");
    let changed = RULES.replace(
        "descriptors:",
        "descriptors:\n  - { key: first, rate_limit: { unit: day, requests_per_unit: 1 } }",
    );
    std::fs::write(rules.path(), changed).expect("it is written");
    server.signal(rustix::process::Signal::HUP);
    // The reload takes its time.
    while metrics(port).await["tidegate_rules_generation"] < 2.0 {}
    client.hit("shop", &[("user", "ann")]).await.expect("a response");
    let found = metrics(port).await;
    assert_eq!(
        found.get(r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="admitted"}"#),
        Some(&2.0),
        "{found:#?}"
    );
}
