//! Resets of counters in a store, by the control API of one of the servers that share it.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{RedisCluster, RedisServer};
use crate::{
    support::{Client, Server, eventually, http1, rules_file},
    tests_with,
};
use http::Request;
use serde_json::{Value, json};
use std::{
    net::Ipv4Addr,
    process::Command,
    time::{Duration, Instant},
};
use tempfile::{NamedTempFile, TempDir};
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! {
    REDIS:
    counters_of_a_request_are_listed_and_reset_for_all_servers,
    a_rule_and_a_domain_are_reset_on_all_servers_within_a_second,
    a_reset_while_credits_are_outstanding_admits_the_limit_once_more,
    counters_in_a_cluster_are_reset,
    overrides_and_blocks_leave_the_counters_in_a_store_to_their_rule,
    without_its_store_a_server_resets_and_gives_back_nothing,
    a_store_that_loses_its_keys_is_given_the_resets_again,
    a_reset_after_the_clock_of_the_store_went_back_is_in_force_on_all_servers,
}

const LIMIT: u32 = 3;

/// Time within which a reset takes effect on all servers, and more for a loaded machine.
const WITHIN: Duration = Duration::from_secs(10);

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: plan, shadow_mode: true, rate_limit: { unit: day, requests_per_unit: 3, algorithm: token_bucket } }
  - { key: any*, rate_limit: { unit: day, requests_per_unit: 3 } }
  - { key: hot, rate_limit: { unit: day, requests_per_unit: 4000 } }
";

/// Two servers that share a store, with the control API.
struct World {
    servers: Vec<Server>,
    token: String,
    _files: (NamedTempFile, TempDir),
}

impl World {
    fn start(url: &str, args: &[&str]) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
        let tokens = folder.path().join("tokens");
        let tokens = tokens.to_str().expect("UTF-8");
        let made = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["token", "ann", "--role", "operate", "--file", tokens])
            .output()
            .expect("the command runs");
        let token = String::from_utf8(made.stdout).expect("text").trim().to_owned();
        let shared = ["--counters", url, "--counters-timeout", "2s", "--on-store-failure", "deny"];
        let control = ["--http-listen", "127.0.0.1:0", "--control", "loopback", "--http-token-file", tokens];
        let args = [&shared[..], &control, args].concat();
        let servers = (0..2).map(|_| Server::with_rules(rules.path(), &args)).collect();
        Self { servers, token, _files: (rules, folder) }
    }

    async fn call(&self, server: usize, method: &str, body: &Value) -> (u16, Value) {
        let request = Request::post(format!("/control/v1/{method}"))
            .header("authorization", format!("Bearer {}", self.token));
        let body = body.to_string();
        let request = request.body(&*body).expect("well-formed");
        let port = self.servers[server].admin_port();
        let response = http1::send(Ipv4Addr::LOCALHOST, port, request).await.expect("a response");
        (response.status().as_u16(), serde_json::from_slice(response.body()).expect("JSON"))
    }

    /// The response of the first server to a call that succeeds.
    async fn operate(&self, method: &str, body: Value) -> Value {
        let (status, response) = self.call(0, method, &body).await;
        assert_eq!(status, 200, "{method}: {response}");
        response
    }

    async fn clients(&self) -> [Client; 2] {
        [self.servers[0].client().await, self.servers[1].client().await]
    }
}

async fn is_admitted(client: &mut Client, key: &str, value: &str) -> bool {
    client.hit("d", &[(key, value)]).await.expect("a decision").overall_code() == Code::Ok
}

/// Calls both servers in turn until both deny; returns how many were admitted.
async fn use_up(clients: &mut [Client; 2], key: &str, value: &str) -> u32 {
    let mut admitted = 0;
    loop {
        let [first, second] = clients;
        let both = [is_admitted(first, key, value).await, is_admitted(second, key, value).await];
        if both == [false; 2] {
            return admitted;
        }
        admitted += both.into_iter().map(u32::from).sum::<u32>();
    }
}

/// Waits until a server admits a key; the hit is counted.
async fn until_admitted(client: &mut Client, key: &str, value: &str) {
    let (what, began) = (format!("{key}={value} is admitted after a reset"), Instant::now());
    eventually(&what, async || is_admitted(client, key, value).await).await;
    assert!(began.elapsed() < WITHIN, "{what} {:?} later", began.elapsed());
}

fn of(entries: &[(&str, &str)]) -> Value {
    let descriptor = |(key, value): &(&str, &str)| json!({ "entries": [{ "key": key, "value": value }] });
    json!({ "domain": "d", "descriptors": entries.iter().map(descriptor).collect::<Vec<_>>() })
}

/// Hits used of each descriptor's only counter.
async fn used(world: &World, entries: &[(&str, &str)]) -> Vec<u64> {
    let listed = world.operate("ListCounters", of(entries)).await;
    let descriptors = listed["descriptors"].as_array().expect("descriptors");
    let used = |descriptor: &Value| match &descriptor["counters"][0]["used"] {
        Value::Null => 0,
        used => used.as_u64().or_else(|| used.as_str()?.parse().ok()).expect("a number"),
    };
    descriptors.iter().map(used).collect()
}

/// In one store, and in a cluster, where the counters of the rule are in different slots.
async fn overrides_and_blocks_leave_the_counters_in_a_store_to_their_rule() {
    let (store, cluster) = (RedisServer::start(), RedisCluster::start(false));
    for url in [store.url(), cluster.url()] {
        let world = World::start(&url, &[]);
        let mut clients = world.clients().await;
        let keys = [("user", "ann")];
        for _ in 0..2 {
            assert!(is_admitted(&mut clients[0], "user", "ann").await);
        }
        let of_override = |requests: u32, unit: &str| {
            let entries = json!([{ "key": "user", "value": "ann" }]);
            let limit = json!({ "requests": requests, "unit": unit });
            json!({ "override": { "id": "o", "domain": "d", "entries": entries, "limit": limit } })
        };
        world.operate("SetOverride", of_override(2, "day")).await;
        assert!(!is_admitted(&mut clients[0], "user", "ann").await, "{url}: two are used");
        world.operate("SetOverride", of_override(5, "day")).await;
        assert_eq!(used(&world, &keys).await, [2], "{url}");
        // Of a shorter window: the counter of the day stays as it is.
        world.operate("SetOverride", of_override(5, "hour")).await;
        assert!(is_admitted(&mut clients[0], "user", "ann").await, "{url}");
        assert_eq!(used(&world, &keys).await, [1], "{url}");
        world.operate("DeleteOverride", json!({ "id": "o" })).await;
        assert_eq!(used(&world, &keys).await, [2], "{url}");

        world.operate("SetBlock", json!({ "block": { "id": "b", "key": "user", "value": "ann" } })).await;
        let mut give_back = of(&keys);
        give_back["hits"] = json!(1);
        world.operate("GiveBack", give_back).await;
        world.operate("DeleteBlock", json!({ "id": "b" })).await;
        assert_eq!(used(&world, &keys).await, [1], "{url}");
        world.operate("SetBlock", json!({ "block": { "id": "b", "key": "user", "value": "ann" } })).await;
        assert_eq!(world.operate("Reset", of(&keys)).await["counters"], "1", "{url}");
        world.operate("DeleteBlock", json!({ "id": "b" })).await;
        assert_eq!(used(&world, &keys).await, [0], "{url}");
    }
}

async fn counters_of_a_request_are_listed_and_reset_for_all_servers() {
    let store = RedisServer::start();
    let world = World::start(&store.url(), &[]);
    let mut clients = world.clients().await;
    let keys = [("user", "ann"), ("user", "bob"), ("plan", "free")];
    for (key, value) in &keys[..2] {
        assert_eq!(use_up(&mut clients, key, value).await, LIMIT);
    }
    for _ in 0..2 {
        assert!(is_admitted(&mut clients[1], "plan", "free").await);
    }
    assert_eq!(used(&world, &keys).await, [3, 3, 2], "as the other server has counted, shadow rules too");
    let explained = world.operate("Explain", of(&keys[..1])).await;
    assert_eq!(explained["descriptors"][0]["counters"][0]["used"], 3, "{explained}");

    let reset = world.operate("Reset", of(&[("user", "ann"), ("plan", "free")])).await;
    assert_eq!(reset["counters"], "2");
    assert_eq!(used(&world, &keys).await, [0, 3, 0]);
    assert!(!is_admitted(&mut clients[0], "user", "bob").await, "another counter");
    until_admitted(&mut clients[1], "user", "ann").await;
    assert_eq!(use_up(&mut clients, "user", "ann").await, LIMIT - 1, "the limit once more, by both servers");
}

async fn a_rule_and_a_domain_are_reset_on_all_servers_within_a_second() {
    let store = RedisServer::start();
    let url = store.url();
    let world = World::start(&url, &[]);
    let mut clients = world.clients().await;
    let keys = [("user", "ann"), ("user", "bob"), ("any-key", "x")];
    for (key, value) in keys {
        assert_eq!(use_up(&mut clients, key, value).await, LIMIT);
    }
    world.operate("Reset", json!({ "domain": "d", "rule": "user" })).await;
    assert_eq!(used(&world, &keys).await, [0, 0, 3]);
    assert!(is_admitted(&mut clients[0], "user", "ann").await, "at once on the server that was called");
    until_admitted(&mut clients[1], "user", "ann").await;
    assert_eq!(use_up(&mut clients, "user", "ann").await, LIMIT - 2);
    assert!(!is_admitted(&mut clients[0], "any-key", "x").await, "a counter of another rule");

    // A server that starts later counts in the same keys.
    let later = World::start(&url, &[]);
    let mut of_later = later.clients().await;
    assert!(!is_admitted(&mut of_later[0], "user", "ann").await);
    assert!(is_admitted(&mut of_later[0], "user", "bob").await);
    assert_eq!(used(&world, &keys).await, [3, 1, 3]);

    world.operate("Reset", json!({ "domain": "d" })).await;
    assert_eq!(used(&world, &keys).await, [0, 0, 0]);
    for client in clients.iter_mut().chain(&mut of_later) {
        until_admitted(client, "any-key", "x").await;
        world.operate("Reset", of(&[("any-key", "x")])).await;
    }
    let (status, error) = world.call(0, "Reset", &json!({ "domain": "d", "rule": "none" })).await;
    assert_eq!((status, &error["code"]), (404, &json!("NOT_FOUND")), "{error}");
}

/// Credits that are outstanding when the counter is reset count afterwards: no more than the limit is admitted after the reset.
async fn a_reset_while_credits_are_outstanding_admits_the_limit_once_more() {
    const HOT: u32 = 4_000;
    let store = RedisServer::start();
    let world = World::start(&store.url(), &["--lease", "auto"]);
    let mut clients = world.clients().await;
    let is_leased = || {
        let keys: Vec<String> =
            redis::cmd("KEYS").arg("tidegate:*").query(&mut store.connection()).expect("keys");
        keys.iter().filter(|key| key.len() == "tidegate:".len() + 32).any(|key| {
            let value: Vec<u8> = redis::cmd("GET").arg(key).query(&mut store.connection()).expect("a value");
            value.first() == Some(&0)
        })
    };
    let mut before = 0;
    while before < 1_000 || !is_leased() {
        for client in &mut clients {
            for _ in 0..20 {
                before += u32::from(is_admitted(client, "hot", "v").await);
            }
        }
        assert!(before < HOT / 2, "nothing is leased");
    }
    assert_eq!(world.operate("Reset", of(&[("hot", "v")])).await["counters"], "1");
    let (mut after, mut denied) = (0, 0);
    // Until nothing was admitted for longer than a lease and a kept denial last.
    while denied < 300 {
        for client in &mut clients {
            match is_admitted(client, "hot", "v").await {
                true => (after, denied) = (after + 1, 0),
                false => denied += 1,
            }
        }
        if denied > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    println!("reset with outstanding credits: limit {HOT}, admitted {before} before and {after} after");
    assert!(after <= HOT, "{after} were admitted after the reset");
    assert!(after > HOT - before, "the reset freed nothing: {after} after {before}");
}

async fn counters_in_a_cluster_are_reset() {
    let cluster = RedisCluster::start(false);
    let world = World::start(&cluster.url(), &[]);
    let mut clients = world.clients().await;
    let keys = [("user", "ann"), ("user", "bob"), ("user", "eve"), ("any-key", "x")];
    for (key, value) in keys {
        assert_eq!(use_up(&mut clients, key, value).await, LIMIT);
    }
    assert_eq!(world.operate("Reset", of(&[keys[0], keys[1], keys[3]])).await["counters"], "3");
    assert_eq!(used(&world, &keys).await, [0, 0, 3, 0]);
    world.operate("Reset", json!({ "domain": "d", "rule": "user" })).await;
    assert_eq!(used(&world, &keys).await, [0; 4]);
    until_admitted(&mut clients[1], "user", "eve").await;
    assert_eq!(use_up(&mut clients, "user", "eve").await, LIMIT - 1);
}

async fn without_its_store_a_server_resets_and_gives_back_nothing() {
    let store = RedisServer::start();
    let world = World::start(&store.url(), &[]);
    assert!(is_admitted(&mut world.clients().await[0], "user", "ann").await);
    drop(store);
    let calls = [
        ("ListCounters", of(&[("user", "ann")])),
        ("Reset", of(&[("user", "ann")])),
        ("Reset", json!({ "domain": "d", "rule": "user" })),
        // `--on-store-failure` does not decide it, unlike requests of clients: the hits would be gone.
        ("GiveBack", of(&[("user", "ann")])),
    ];
    for (method, body) in calls {
        let (status, error) = world.call(0, method, &body).await;
        assert_eq!((status, &error["code"]), (503, &json!("UNAVAILABLE")), "{method}: {error}");
        assert!(error["message"].as_str().is_some_and(|text| text.contains("store")), "{error}");
    }
}

/// Otherwise a server that starts later would count in other keys.
async fn a_store_that_loses_its_keys_is_given_the_resets_again() {
    let store = RedisServer::start();
    let url = store.url();
    let world = World::start(&url, &[]);
    let resets = || -> Vec<(String, u64)> {
        redis::cmd("HGETALL").arg("tidegate:resets").query(&mut store.connection()).expect("a hash")
    };
    let mut clients = world.clients().await;
    use_up(&mut clients, "user", "bob").await;
    world.operate("Reset", json!({ "domain": "d", "rule": "user" })).await;
    let before = resets();
    assert_eq!(before.iter().map(|(field, _)| field.as_str()).collect::<Vec<_>>(), ["1:duser"]);
    // Both servers know the reset.
    for client in &mut clients {
        until_admitted(client, "user", "bob").await;
    }
    let _: () = redis::cmd("FLUSHALL").query(&mut store.connection()).expect("the store obeys");
    eventually("the store has the resets again", async || match resets() {
        found if found == before => Ok(()),
        found => Err(found),
    })
    .await;
    // A call gives the store its layout again, before a server that starts gives it another secret.
    is_admitted(&mut clients[0], "any-key", "x").await;
    let later = World::start(&url, &[]);
    let mut of_later = later.clients().await;
    until_admitted(&mut clients[0], "user", "ann").await;
    assert_eq!(use_up(&mut of_later, "user", "ann").await, LIMIT - 1, "the same counter");
}

/// The server that was called counted in the keys of the new time, and the others in those of the earlier reset: the limit applied twice.
async fn a_reset_after_the_clock_of_the_store_went_back_is_in_force_on_all_servers() {
    let store = RedisServer::start();
    let world = World::start(&store.url(), &[]);
    let mut clients = world.clients().await;
    let mut connection = store.connection();
    let (seconds, _): (u64, u64) = redis::cmd("TIME").query(&mut connection).expect("a time");
    // The clock was an hour ahead at the last reset.
    let last = (seconds + 3_600) * 1_000_000;
    use_up(&mut clients, "user", "ann").await;
    let mut write = redis::cmd("HSET");
    let () = write.arg("tidegate:resets").arg("1:duser").arg(last).query(&mut connection).expect("written");
    for client in &mut clients {
        until_admitted(client, "user", "ann").await;
    }
    let resets =
        [(json!({ "domain": "d", "rule": "user" }), "1:duser", 1), (json!({ "domain": "d" }), "1:d", 2)];
    for (reset, field, more) in resets {
        use_up(&mut clients, "user", "ann").await;
        world.operate("Reset", reset).await;
        let mut read = redis::cmd("HGET");
        let time: u64 = read.arg("tidegate:resets").arg(field).query(&mut connection).expect("a time");
        assert_eq!(time, last + more);
        for client in &mut clients {
            until_admitted(client, "user", "ann").await;
        }
        assert_eq!(use_up(&mut clients, "user", "ann").await, LIMIT - 2, "one counter for both servers");
    }
}
