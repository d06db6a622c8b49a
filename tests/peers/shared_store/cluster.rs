//! Servers that share counters in a cluster of three primaries: requests over several slots, and status.

use super::{RedisCluster, RedisServer, random_rules::Random};
use crate::{
    support::{Server, descriptor, eventually, http1, limiter, rules_file},
    tests_with,
};
use std::{collections::BTreeMap, net::Ipv4Addr, process::Command};
use tempfile::NamedTempFile;
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tidegate_core::limit::{Descriptor, Entry, Hits, Request, RequestLimits, Timestamp};

tests_with! {
    REDIS:
    denied_requests_over_several_slots_consume_nothing,
    counters_sharded_by_an_entry_are_in_one_slot,
    the_status_of_a_cluster_has_the_counters_of_all_nodes,
    leases_in_a_cluster_are_off_and_refused_on_demand,
    a_node_of_a_cluster_and_a_single_store_are_refused_under_the_scheme_of_the_other,
}

/// Keys, which are in different groups.
pub(super) const KEYS: usize = 24;

pub(super) const ONE_LIMIT: &str =
    "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 40}}]";

pub(super) struct World {
    pub(super) cluster: RedisCluster,
    pub(super) servers: Vec<Server>,
    _rules: NamedTempFile,
}

impl World {
    pub(super) fn start(has_replicas: bool, rules: &str, servers: usize) -> Self {
        // A loaded machine keeps within this time limit.
        Self::start_in(RedisCluster::start(has_replicas), rules, servers, "1s")
    }

    pub(super) fn start_in(cluster: RedisCluster, rules: &str, servers: usize, timeout: &str) -> Self {
        let rules = rules_file(rules);
        let url = cluster.url();
        let args = ["--counters", &url, "--on-store-failure", "deny", "--counters-timeout", timeout];
        let args = [&args[..], &["--http-listen", "127.0.0.1:0"]].concat();
        let servers = (0..servers).map(|_| Server::with_rules(rules.path(), &args)).collect();
        Self { cluster, servers, _rules: rules }
    }

    async fn metric(&self, server: usize, name: &str) -> u64 {
        self.servers[server].metric(name).await
    }

    pub(super) async fn are_ready(&self) -> bool {
        for server in &self.servers {
            let ready = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get("/readyz"));
            let response = ready.await.expect("a response");
            if !String::from_utf8_lossy(response.body()).contains("shared store: available") {
                return false;
            }
        }
        true
    }
}

const SEVERAL: &str = "domain: d
descriptors:
  - {key: window, rate_limit: {unit: day, requests_per_unit: 30}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 20, algorithm: sliding_log}}
  - {key: fixed, rate_limit: {unit: day, requests_per_unit: 10, algorithm: fixed_window, aligned: first_hit}}
  - {key: precise, rate_limit: {unit: day, requests_per_unit: 16, precision: 4}}
  - {key: refilled, rate_limit: {unit: day, requests_per_unit: 12, algorithm: token_bucket, refill: intervals}}
  - key: two
    rate_limits:
      - {name: all, unit: day, requests_per_unit: 25}
      - {name: most, unit: day, requests_per_unit: 14, algorithm: sliding_log}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 3}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 6}}
  - {key: always, rate_limit: {unit: day, requests_per_unit: 9, charge: always}}
";

const SEVERAL_KEYS: [&str; 9] =
    ["window", "log", "fixed", "precise", "refilled", "two", "shadow", "quota", "always"];

/// A request as data: key, value, hits. Zero hits are a peek.
type Sketch = Vec<(&'static str, &'static str, u64)>;

fn request(sketch: &Sketch) -> Request<'static> {
    let mut request = Request::new("d");
    for &(key, value, hits) in sketch {
        let entries = [Entry { key, value }].into_iter().collect();
        let hits = if hits == 0 { Hits::Peek } else { Hits::new(Some(hits), 0, false) };
        request.push(Descriptor { entries, limit: None, hits });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

fn descriptors(sketch: &Sketch) -> Vec<RateLimitDescriptor> {
    let with_hits = |&(key, value, hits): &(&str, &str, u64)| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[(key, value)])
    };
    sketch.iter().map(with_hits).collect()
}

/// Random requests over counters of several slots have the decisions of a limiter with all counters. Once the hits that a denied request
/// has charged are taken back, it has consumed nothing. `TIDEGATE_CLUSTER_REQUESTS` raises the number.
async fn denied_requests_over_several_slots_consume_nothing() {
    let requests =
        std::env::var("TIDEGATE_CLUSTER_REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(250);
    let world = World::start(false, SEVERAL, 2);
    let mut clients = [world.servers[0].client().await, world.servers[1].client().await];
    let model = limiter(SEVERAL);
    let now = Timestamp::from_millis(1_790_000_000_000);
    let (mut random, mut denied, mut history) = (Random(7), 0, Vec::new());
    for index in 0..requests {
        let count = 1 + random.below(4) as usize;
        let mut sketch: Sketch = Vec::new();
        for _ in 0..count {
            let key = SEVERAL_KEYS[random.below(SEVERAL_KEYS.len() as u64) as usize];
            sketch.push((key, ["x", "y", "z"][random.below(3) as usize], random.below(4)));
        }
        let response =
            clients[index % 2].should_rate_limit("d", descriptors(&sketch)).await.expect("a decision");
        let expected = model.pin().decide(&request(&sketch), now).code;
        history.push(format!("{sketch:?}"));
        let code = if expected == tidegate_core::limit::Code::Ok { Code::Ok } else { Code::OverLimit };
        assert_eq!(response.overall_code(), code, "{}", history.join("\n"));
        denied += u32::from(code == Code::OverLimit);
        // All counters equal the model's as soon as everything is taken back.
        let peeks: Sketch = sketch.iter().map(|&(key, value, _)| (key, value, 0)).collect();
        let expected: Vec<u32> = model
            .pin()
            .decide(&request(&peeks), now)
            .statuses
            .iter()
            .map(|status| status.remaining)
            .collect();
        eventually(&format!("{expected:?} after\n{}", history.join("\n")), async || {
            let response = clients[(index + 1) % 2]
                .should_rate_limit("d", descriptors(&peeks))
                .await
                .expect("a decision");
            let left: Vec<u32> = response.statuses.iter().map(|status| status.limit_remaining).collect();
            if left == expected { Ok(()) } else { Err(left) }
        })
        .await;
    }
    let mut undone = 0;
    for server in 0..2 {
        undone += world.metric(server, "tidegate_shared_store_undone_total{result=\"done\"}").await;
        assert_eq!(world.metric(server, "tidegate_shared_store_undone_total{result=\"failed\"}").await, 0);
    }
    println!(
        "cluster of 3: {requests} requests over several slots, {denied} denied, {undone} charges taken back, 0 deviations from one limiter"
    );
    assert!(denied > requests as u32 / 10 && undone > 20, "{denied} {undone}");
}

const SHARDED: &str = "domain: d
descriptors:
  - key: user
    shard_by: user
    rate_limits:
      - {name: minute, unit: day, requests_per_unit: 5}
      - {name: day, unit: day, requests_per_unit: 50, algorithm: sliding_log}
    descriptors:
      - {key: route, shard_by: user, rate_limit: {unit: day, requests_per_unit: 3}}
";

async fn counters_sharded_by_an_entry_are_in_one_slot() {
    let world = World::start(false, SHARDED, 1);
    let mut client = world.servers[0].client().await;
    let mut codes = BTreeMap::new();
    for call in 0..6 {
        let descriptors = vec![
            descriptor(&[("user", "ada")]),
            descriptor(&[("user", "ada"), ("route", if call < 4 { "login" } else { "search" })]),
        ];
        let response = client.should_rate_limit("d", descriptors).await.expect("a decision");
        *codes.entry(response.overall_code().as_str_name()).or_insert(0) += 1;
    }
    // The fourth request is denied by its route, the last by no limit: the user still has the hits that the fourth would have taken.
    assert_eq!(codes, BTreeMap::from([("OK", 5), ("OVER_LIMIT", 1)]));
    let keys = (0..3).flat_map(|node| world.cluster.keys(node));
    let counters: Vec<String> = keys.filter(|key| key.len() > 42 && key.contains('}')).collect();
    let mut slots: Vec<u16> = counters.iter().map(|key| world.cluster.slot(key)).collect();
    slots.dedup();
    assert_eq!((counters.len(), slots.len()), (4, 1), "{counters:?}");
    assert_eq!(world.metric(0, "tidegate_shared_store_undone_total{result=\"done\"}").await, 0);
}

fn store(args: &[&str]) -> String {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("store").args(args).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn the_status_of_a_cluster_has_the_counters_of_all_nodes() {
    let world = World::start(false, ONE_LIMIT, 1);
    let mut client = world.servers[0].client().await;
    for key in 0..KEYS {
        client.hit("d", &[("k", &key.to_string())]).await.expect("a decision");
    }
    let status: serde_json::Value =
        serde_json::from_str(&store(&["status", &world.cluster.url(), "--json"])).expect("JSON");
    assert_eq!((&status["nodes"], &status["layout"]), (&3.into(), &true.into()), "{status}");
    assert_eq!(status["counters"]["sliding_window"], KEYS, "{status}");
    let verified = store(&["verify", &world.cluster.url()]);
    assert!(
        verified.starts_with(&format!("{KEYS} counters are good, 0 are not, 0 never expire")),
        "{verified}"
    );
}

async fn leases_in_a_cluster_are_off_and_refused_on_demand() {
    let world = World::start(false, "{ domain: d }", 1);
    let log = world.servers[0].log().join("\n");
    assert!(log.contains(r#""leases":"off""#), "{log}");
    let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--lease", "auto", "--counters", &world.cluster.url()])
        .output()
        .expect("it runs");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("remove --lease auto"), "{error}");
}

async fn a_node_of_a_cluster_and_a_single_store_are_refused_under_the_scheme_of_the_other() {
    let refused = |url: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["serve", "--listen", "127.0.0.1:0", "--counters", url])
            .output()
            .expect("it runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let cluster = RedisCluster::start(false);
    let error = refused(&cluster.node(0).url());
    assert!(error.contains("redis+cluster://"), "{error}");
    let port = super::process::free_port();
    let _single = RedisServer::start_on(port, &[]);
    let error = refused(&format!("redis+cluster://127.0.0.1:{port}"));
    assert!(error.contains("cluster"), "{error}");
}
