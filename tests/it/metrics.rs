//! Metrics of a real server: their documentation, and the figures of each limit.

use crate::{
    admin::{get, metrics, start, start_from},
    support::{descriptor, eventually, rules_file},
};
use std::collections::BTreeMap;
use tidegate::api::pb::service::RateLimitRequest;

/// The families in docs/metrics.md with their types.
pub fn documented() -> BTreeMap<String, String> {
    documented_families().into_iter().map(|(name, (_, kind))| (name, kind)).collect()
}

/// The families in docs/metrics.md with the names of their labels, in braces, and their types.
fn documented_families() -> BTreeMap<String, (String, String)> {
    let text = include_str!("../../docs/metrics.md");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let families = rows.filter_map(|row| {
        let (name, rest) = row.split_once('`')?;
        let kind = rest.split('|').nth(1)?.trim();
        let is_family = ["counter", "gauge", "histogram"].contains(&kind);
        let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
        is_family.then(|| (name.to_owned(), (labels.trim_end_matches('}').to_owned(), kind.to_owned())))
    });
    families.collect()
}

/// Families of servers with `--counters`, which tests/peers/shared_store reads, and with a control plane (xds.rs).
const ELSEWHERE: [&str; 4] =
    ["tidegate_shared_", "tidegate_lease", "tidegate_granted_leases", "tidegate_xds_"];

/// The names of a sample's labels except `le`, as the documentation writes them.
fn label_names(sample: &str) -> String {
    let labels = sample.split_once('{').map_or("", |(_, labels)| labels);
    // No value in these tests has an equals sign or a comma.
    let names =
        labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).filter(|name| *name != "le");
    names.collect::<Vec<_>>().join(",")
}

#[tokio::test]
async fn the_documentation_lists_the_labels_of_each_family() {
    let data = tempfile::tempdir().expect("a temporary folder");
    let (folder, log) = (data.path().join("data"), data.path().join("decisions.log"));
    let certificate =
        rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (cert, key) = (data.path().join("cert.pem"), data.path().join("key.pem"));
    std::fs::write(&cert, certificate.cert.pem()).expect("it is written");
    std::fs::write(&key, certificate.signing_key.serialize_pem()).expect("it is written");
    let paths = [&folder, &log, &cert, &key].map(|path| path.to_str().expect("UTF-8"));
    let names = ["--data", "--decision-log", "--tls-cert", "--tls-key"];
    let args: Vec<&str> = names.into_iter().zip(paths).flat_map(|(name, path)| [name, path]).collect();
    let (_server, port) = start(RULES, &args);
    let found = metrics(port).await;
    let mut without_samples = Vec::new();
    for (name, (labels, kind)) in documented_families() {
        let is_sample = |sample: &&String| {
            let base = sample.split('{').next().unwrap_or(sample);
            base == name
                || kind == "histogram" && base.strip_prefix(&*name).is_some_and(|rest| rest.starts_with('_'))
        };
        let mut samples = found.keys().filter(is_sample).peekable();
        if samples.peek().is_none() {
            without_samples.push(name.clone());
        }
        for sample in samples {
            assert_eq!(label_names(sample), labels, "{sample}");
        }
    }
    // These have samples where counters are shared, and with a control plane.
    without_samples.retain(|name| !ELSEWHERE.iter().any(|begin| name.starts_with(begin)));
    assert_eq!(without_samples, ["tidegate_restored_snapshot_age_seconds"], "{found:#?}");
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
    let mut documented = documented();
    documented.retain(|name, _| !ELSEWHERE.iter().any(|begin| name.starts_with(begin)));
    assert_eq!(found, documented);
}

const RULES: &str = "
domain: shop
descriptors:
  - { key: user, rate_limit: { name: per_user, unit: day, requests_per_unit: 4 } }
  - { key: banned, rate_limit: { unit: day, requests_per_unit: 4, ban: { after: 5, within: 1m, for: 1h } } }
  - { key: trial, shadow_mode: true, rate_limit: { per: 10m, requests_per_unit: 1 } }
  - { key: tenant, value_to_metric: true, rate_limit: { unit: day, requests_per_unit: 9 } }
  - { key: slots, rate_limit: { algorithm: concurrency, requests_in_flight: 4 } }
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
    // The reload takes some time.
    while metrics(port).await["tidegate_rules_generation"] < 2.0 {}
    client.hit("shop", &[("user", "ann")]).await.expect("a response");
    let found = metrics(port).await;
    assert_eq!(
        found.get(r#"tidegate_limit_hits_total{domain="shop",limit="per_user",outcome="admitted"}"#),
        Some(&2.0),
        "{found:#?}"
    );
}

/// The metrics once `has` holds: a response is timed just after it is written.
pub async fn metrics_when(port: u16, has: impl Fn(&BTreeMap<String, f64>) -> bool) -> BTreeMap<String, f64> {
    eventually("the expected metrics", async || {
        let found = metrics(port).await;
        if has(&found) { Ok(found) } else { Err(found) }
    })
    .await
}

#[tokio::test]
async fn each_response_is_timed_once_by_its_code() {
    let (server, port) = start(RULES, &["--metrics-duration-buckets", "1us,1h"]);
    let mut client = server.client().await;
    for _ in 0..6 {
        client.hit("shop", &[("user", "ann")]).await.expect("a response");
    }
    let series = |name: &str, labels: &str| format!("tidegate_decision_duration_seconds_{name}{{{labels}}}");
    let found = metrics_when(port, |found| found[&series("count", "code=\"over_limit\"")] >= 2.0).await;
    for (code, count) in [("ok", 4.0), ("over_limit", 2.0)] {
        let of_code = format!("code=\"{code}\"");
        assert_eq!(found[&series("count", &of_code)], count, "{found:#?}");
        assert_eq!(found[&series("bucket", &format!("le=\"0.000001\",{of_code}"))], 0.0);
        assert_eq!(found[&series("bucket", &format!("le=\"3600.0\",{of_code}"))], count);
        let sum = found[&series("sum", &of_code)];
        assert!(sum > count * 1e-6 && sum < 60.0, "{sum}");
    }
}

#[tokio::test]
async fn a_call_off_the_fast_path_is_timed_too() {
    let (server, port) = start(RULES, &[]);
    let message = RateLimitRequest {
        domain: "shop".into(),
        descriptors: vec![descriptor(&[("user", "ann")])],
        hits_addend: 1,
    };
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("tidegate-windows", "1".parse().expect("ASCII"));
    server.client().await.0.should_rate_limit(request).await.expect("a response");
    let count = r#"tidegate_decision_duration_seconds_count{code="ok"}"#;
    metrics_when(port, |found| found[count] == 1.0).await;
}

#[tokio::test]
async fn waits_in_queues_are_timed_apart() {
    let rules = "
domain: shop
descriptors:
  - { key: k, rate_limit: { unit: second, requests_per_unit: 20, algorithm: leaky_bucket, burst: 1, max_wait: 9s } }
";
    let (server, port) = start(rules, &[]);
    let mut client = server.client().await;
    for _ in 0..3 {
        client.hit("shop", &[("k", "")]).await.expect("a response");
    }
    let (waits, responses) =
        ("tidegate_queue_wait_seconds_count", r#"tidegate_decision_duration_seconds_count{code="ok"}"#);
    let found = metrics_when(port, |found| found[waits] + found[responses] == 3.0).await;
    assert!((1.0..=2.0).contains(&found[waits]), "{found:#?}");
    assert!(found["tidegate_queue_wait_seconds_sum"] > 0.01);
}
