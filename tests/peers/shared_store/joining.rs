//! Two servers that join a store, late or again, and hits that the store has counted for late responses.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisServer,
    faults::{LIMIT, TIMEOUT, World},
    process::free_port,
    proxy::Proxy,
};
use crate::{
    support::{Server, eventually, rules_file},
    tests_with,
};
use std::time::{Duration, Instant};

tests_with! {
    REDIS:
    servers_adopt_the_secret_of_one_that_reached_an_empty_store_first,
    what_was_charged_for_a_late_response_is_taken_back,
    a_denial_is_kept_without_leases,
    a_server_starts_without_its_store_and_joins_it_later,
    a_server_starts_beside_a_full_store_and_joins_it_when_it_has_room,
    a_server_starts_beside_a_replica_and_joins_it_when_it_is_promoted,
}

impl World {
    /// Waits until both servers have adopted another secret this many times.
    async fn adoptions(&self, times: usize) {
        let of = |server: &Server| server.logged("whose secret of keys is adopted").len();
        eventually("the secret is adopted", async || self.servers.iter().all(|server| of(server) == times))
            .await;
    }
}

/// Twenty times: the store is killed, and when it is back, empty, another server has written its secret.
async fn servers_adopt_the_secret_of_one_that_reached_an_empty_store_first() {
    let mut world = World::start("deny", TIMEOUT).await;
    for trial in 0..20 {
        world.call(10).await;
        drop(world.store.take());
        world.call(4).await;
        // These servers do not reach it meanwhile.
        world.proxy.cut(true);
        world.store = Some(RedisServer::start_on(world.port, &[]));
        let layout = format!("tidegate 3 {trial:032x}");
        world.command(&["SET", "tidegate:layout", &layout]);
        world.proxy.cut(false);
        // A denial that is kept, for a second at most, belongs to the former secret.
        world.adoptions(trial + 1).await;
        world.recovery().await;
        let after = world.call(LIMIT + 20).await;
        assert_eq!((after.admitted, after.undecided), (LIMIT, 0), "trial {trial}: {after:?}");
        let layout_now: String =
            redis::cmd("GET").arg("tidegate:layout").query(&mut world.store().connection()).expect("a text");
        assert!(layout_now.starts_with(&layout), "trial {trial}: {layout_now}");
    }
    println!("store back with another secret: 20 trials, 0 splits");
}

/// One of four responses is late. Hits that were charged for late responses are not admitted, and have to be free again.
async fn what_was_charged_for_a_late_response_is_taken_back() {
    let mut world = World::start("deny", "60ms").await;
    world.proxy.delay_one_in(4, Duration::from_millis(150));
    let (mut admitted, mut undecided) = (0, 0);
    for _ in 0..12 {
        let results = world.call(10).await;
        (admitted, undecided) = (admitted + results.admitted, undecided + results.undecided);
    }
    world.proxy.delay(Duration::ZERO);
    world.recovery().await;
    let began = Instant::now();
    let mut counted = u32::MAX;
    while counted != admitted && began.elapsed() < Duration::from_secs(5) {
        let mut peek = crate::support::descriptor(&[("k", "v")]);
        peek.hits_addend = Some(0);
        let response = world.clients[0].should_rate_limit("d", vec![peek]).await.expect("a decision");
        counted = LIMIT - response.statuses[0].limit_remaining;
    }
    println!(
        "one of four responses late: 120 calls, {admitted} admitted, {undecided} undecided, {counted} counted"
    );
    assert!(undecided > 0, "no response was late");
    assert_eq!(counted, admitted);
}

/// Calls of the script that the store has run.
fn script_calls(store: &RedisServer) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query(&mut store.connection()).expect("a text");
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).expect("the script was called")
}

async fn a_denial_is_kept_without_leases() {
    let mut world = World::start("deny", TIMEOUT).await;
    world.call(LIMIT + 2).await;
    let before = script_calls(world.store());
    let results = world.call(200).await;
    let calls = script_calls(world.store()) - before;
    println!("--lease off: of {} denials the store made {calls}", results.denied);
    assert_eq!(results.denied, 200);
    // One call for each server and second, and the keeper's calls.
    assert!(calls <= 60, "{calls} calls");
}

async fn a_server_starts_without_its_store_and_joins_it_later() {
    let port = free_port();
    let rules = rules_file(&format!(
        "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: {LIMIT}}}}}]"
    ));
    let url = format!("redis://127.0.0.1:{port}");
    let args = ["--counters", &url, "--on-store-failure", "deny", "--counters-timeout", TIMEOUT];
    let args = [&args[..], &["--http-listen", "127.0.0.1:0"]].concat();
    let servers = vec![Server::with_rules(rules.path(), &args), Server::with_rules(rules.path(), &args)];
    let clients = vec![servers[0].client().await, servers[1].client().await];
    let proxy = Proxy::start(port).await;
    let mut world = World { store: None, port, proxy, servers, clients, _rules: rules };
    let without = world.call(10).await;
    assert_eq!(without.undecided, 10, "{without:?}");
    assert!(!world.is_available(&world.servers[0]).await);
    world.store = Some(RedisServer::start_on(port, &[]));
    world.recovery().await;
    let with = world.call(LIMIT + 20).await;
    assert_eq!((with.admitted, with.undecided), (LIMIT, 0), "{with:?}");
}

/// The servers of a rolling restart used to end, although the running servers had gone on.
async fn a_server_starts_beside_a_full_store_and_joins_it_when_it_has_room() {
    let full =
        [&["CONFIG", "SET", "maxmemory-policy", "noeviction"][..], &["CONFIG", "SET", "maxmemory", "1"]];
    joins_a_store_that_refuses_writes("OOM", &full, &["CONFIG", "SET", "maxmemory", "0"]).await;
}

async fn a_server_starts_beside_a_replica_and_joins_it_when_it_is_promoted() {
    let nowhere = free_port().to_string();
    let replica = [&["REPLICAOF", "127.0.0.1", &nowhere][..]];
    joins_a_store_that_refuses_writes("ReadOnly", &replica, &["REPLICAOF", "NO", "ONE"]).await;
}

async fn joins_a_store_that_refuses_writes(error: &str, refuses: &[&[&str]], accepts: &[&str]) {
    let store = RedisServer::start();
    let command = |words: &[&str]| {
        let () =
            redis::cmd(words[0]).arg(&words[1..]).query(&mut store.connection()).expect("the store obeys");
    };
    refuses.iter().for_each(|words| command(words));
    let rules =
        rules_file("domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 9}}]");
    let args = ["--counters", &store.url(), "--on-store-failure", "deny", "--counters-timeout", TIMEOUT];
    let server = Server::with_rules(rules.path(), &args);
    let logged = server.logged("shared store not joined").join("\n");
    assert!(logged.contains(error), "{logged}");
    let mut client = server.client().await;
    let mut is_decided = async || {
        let response = client.hit("d", &[("k", "v")]).await.expect("a decision");
        response.statuses[0].duration_until_reset.is_some()
    };
    assert!(!is_decided().await);
    command(accepts);
    server.logged("shared store joined");
    assert!(is_decided().await);
}
