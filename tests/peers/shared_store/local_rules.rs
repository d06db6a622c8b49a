//! Rules with local counters, and rules without leases, in a domain whose counters are in a store.

use super::RedisServer;
use crate::{
    support::{Client, Server, descriptor, eventually, rules_file},
    tests_with,
};
use tempfile::NamedTempFile;
use tidegate::api::pb::service::{RateLimitResponse, rate_limit_response::Code};
use tokio::task::JoinSet;

tests_with! {
    REDIS:
    rules_with_local_counters_are_decided_without_the_store,
    a_denied_request_with_local_and_shared_counters_consumes_nothing,
    hits_are_taken_back_from_the_store_if_a_local_counter_denies_after_it,
    local_counters_apply_while_the_store_is_gone,
    rules_with_lease_off_are_decided_by_the_store,
}

const RULES: &str = "
domain: d
descriptors:
  - {key: here, counters: local, rate_limit: {unit: day, requests_per_unit: 50}}
  - {key: everywhere, lease: off, rate_limit: {unit: day, requests_per_unit: 60}}
  - {key: plenty, lease: off, rate_limit: {unit: day, requests_per_unit: 1000}}
  - {key: exact, lease: off, rate_limit: {unit: day, requests_per_unit: 100000}}
  - {key: leased, rate_limit: {unit: day, requests_per_unit: 100000}}
";

struct World {
    store: Option<RedisServer>,
    server: Server,
    _rules: NamedTempFile,
}

impl World {
    fn start(policy: &str) -> Self {
        let (store, rules) = (RedisServer::start(), rules_file(RULES));
        let url = store.url();
        let args = ["--counters", &url, "--counters-timeout", "2s", "--on-store-failure", policy];
        let args = [&args[..], &["--http-listen", "127.0.0.1:0"]].concat();
        let server = Server::with_rules(rules.path(), &args);
        Self { store: Some(store), server, _rules: rules }
    }

    async fn metric(&self, name: &str) -> u64 {
        self.server.metric(name).await
    }
}

/// One hit of each key.
async fn hit(client: &mut Client, keys: &[&str]) -> RateLimitResponse {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "v")])).collect();
    client.should_rate_limit("d", descriptors).await.expect("a decision")
}

/// Remaining hits of a key.
async fn remaining(client: &mut Client, key: &str) -> u32 {
    let mut peek = descriptor(&[(key, "v")]);
    peek.hits_addend = Some(0);
    client.should_rate_limit("d", vec![peek]).await.expect("a decision").statuses[0].limit_remaining
}

async fn rules_with_local_counters_are_decided_without_the_store() {
    let world = World::start("deny");
    let mut client = world.server.client().await;
    let mut admitted = 0;
    for _ in 0..60 {
        admitted += u32::from(hit(&mut client, &["here"]).await.overall_code() == Code::Ok);
    }
    assert_eq!(admitted, 50);
    let decided = "tidegate_shared_decisions_total{result=\"decided\"}";
    assert_eq!(world.metric(decided).await, 0, "no call of the store");
    hit(&mut client, &["here", "plenty"]).await;
    assert_eq!(world.metric(decided).await, 1);
}

async fn a_denied_request_with_local_and_shared_counters_consumes_nothing() {
    let world = World::start("deny");
    let mut client = world.server.client().await;
    for _ in 0..20 {
        assert_eq!(hit(&mut client, &["everywhere", "plenty"]).await.overall_code(), Code::Ok);
    }
    // 40 requests exhaust the shared limit: later requests charge no local hit.
    let mut codes = Vec::new();
    for _ in 0..45 {
        codes.push(hit(&mut client, &["here", "everywhere"]).await.overall_code());
    }
    assert_eq!(codes.iter().filter(|&&code| code == Code::Ok).count(), 40);
    assert_eq!(remaining(&mut client, "here").await, 10);
    // Ten more exhaust the local limit: later requests charge no shared hit.
    let mut codes = Vec::new();
    for _ in 0..15 {
        let response = hit(&mut client, &["plenty", "here"]).await;
        codes.push(response.overall_code());
        let [shared, local] = &response.statuses[..] else { panic!("two statuses") };
        assert_eq!(shared.code(), Code::Ok);
        assert_eq!(local.code(), response.overall_code());
    }
    assert_eq!(codes.iter().filter(|&&code| code == Code::Ok).count(), 10);
    assert_eq!(remaining(&mut client, "plenty").await, 1_000 - 20 - 10);
}

async fn hits_are_taken_back_from_the_store_if_a_local_counter_denies_after_it() {
    let world = World::start("deny");
    let mut callers = JoinSet::new();
    for _ in 0..16 {
        let mut client = world.server.client().await;
        callers.spawn(async move {
            let mut admitted = 0;
            for _ in 0..20 {
                admitted += u32::from(hit(&mut client, &["here", "plenty"]).await.overall_code() == Code::Ok);
            }
            admitted
        });
    }
    let admitted: u32 = callers.join_all().await.into_iter().sum();
    assert_eq!(admitted, 50, "the local limit");
    let mut client = world.server.client().await;
    eventually("950 remain", async || match remaining(&mut client, "plenty").await {
        950 => Ok(()),
        other => Err(other),
    })
    .await;
    let undone = world.metric("tidegate_shared_store_undone_total{result=\"done\"}").await;
    println!(
        "320 requests at once for a local limit of 50: {admitted} admitted, {undone} taken back from the store"
    );
}

async fn local_counters_apply_while_the_store_is_gone() {
    for (policy, expected) in [("deny", 0), ("allow", 50), ("local", 50)] {
        let mut world = World::start(policy);
        let mut client = world.server.client().await;
        drop(world.store.take());
        let (mut mixed, mut local) = (0, 0);
        for _ in 0..55 {
            mixed += u32::from(hit(&mut client, &["here", "plenty"]).await.overall_code() == Code::Ok);
        }
        for _ in 0..55 {
            local += u32::from(hit(&mut client, &["here"]).await.overall_code() == Code::Ok);
        }
        assert_eq!((mixed, local), (expected, 50 - expected), "{policy}");
    }
}

async fn rules_with_lease_off_are_decided_by_the_store() {
    let world = World::start("deny");
    let mut client = world.server.client().await;
    let by_lease = "tidegate_lease_decisions_total{result=\"admitted\"}";
    eventually("a decision by a lease", async || {
        for _ in 0..100 {
            hit(&mut client, &["leased"]).await;
            hit(&mut client, &["exact"]).await;
        }
        world.metric(by_lease).await > 0
    })
    .await;
    let before = world.metric(by_lease).await;
    for _ in 0..200 {
        hit(&mut client, &["exact"]).await;
    }
    assert_eq!(world.metric(by_lease).await, before);
}
