//! Faults of a cluster under load. Each fault prints a row of a table.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisCluster,
    cluster::{KEYS, ONE_LIMIT, World},
};
use crate::{
    support::{Client, descriptor, eventually},
    tests_with,
};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};

tests_with! {
    REDIS:
    slots_move_under_load,
    a_node_is_added_under_load,
    a_primary_is_killed_under_load,
    a_node_stays_available_while_the_slot_of_the_servers_moves,
    a_node_stays_available_while_new_counters_of_a_moving_slot_are_not_decided,
    a_worker_has_one_connection_to_the_new_node_of_a_moving_slot,
    a_server_starts_and_follows_resets_while_a_node_of_the_cluster_is_dead,
}

/// Hits that each key admits under [`ONE_LIMIT`], in a window longer than any test.
const LIMIT: u32 = 40;

/// Results of a load.
#[derive(Default, Debug)]
struct Results {
    calls: u32,
    failed: u32,
    admitted: BTreeMap<usize, u32>,
    slowest: Duration,
}

impl Results {
    fn over(&self) -> u32 {
        self.admitted.values().map(|admitted| admitted.saturating_sub(LIMIT)).sum()
    }

    fn add(&mut self, other: &Self) {
        self.calls += other.calls;
        self.failed += other.failed;
        other.admitted.iter().for_each(|(key, admitted)| *self.admitted.entry(*key).or_default() += admitted);
        self.slowest = self.slowest.max(other.slowest);
    }
}

/// Calls all keys in turn until it is stopped.
async fn load(mut client: Client, is_stopped: Arc<AtomicBool>) -> Results {
    let mut results = Results::default();
    for key in (0..KEYS).cycle() {
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        let response = client.hit("d", &[("k", &key.to_string())]).await.expect("a decision");
        results.slowest = results.slowest.max(began.elapsed());
        results.calls += 1;
        if response.overall_code() == Code::Ok {
            *results.admitted.entry(key).or_default() += 1;
        } else if response.statuses[0].duration_until_reset.is_none() {
            results.failed += 1;
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    results
}

/// A fault under load; returns the results, and the time after the fault until all keys were decided again.
async fn under_load(name: &str, has_replicas: bool, fault: impl AsyncFnOnce(&mut World)) -> Results {
    let mut world = World::start(has_replicas, ONE_LIMIT, 2);
    let is_stopped = Arc::new(AtomicBool::new(false));
    let mut loads = Vec::new();
    for server in &world.servers {
        loads.push(tokio::spawn(load(server.client().await, Arc::clone(&is_stopped))));
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    fault(&mut world).await;
    let began = Instant::now();
    let mut clients = vec![world.servers[0].client().await, world.servers[1].client().await];
    eventually(&format!("{name}: all keys are decided again"), async || {
        for client in &mut clients {
            for key in 0..KEYS {
                let peek =
                    RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("k", &key.to_string())]) };
                let response = client.should_rate_limit("d", vec![peek]).await.expect("a decision");
                if response.statuses[0].duration_until_reset.is_none() {
                    return false;
                }
            }
        }
        world.are_ready().await
    })
    .await;
    let recovery = began.elapsed();
    // Each key reaches its limit, and exceeds it if hits were lost.
    tokio::time::sleep(Duration::from_millis(500)).await;
    is_stopped.store(true, Ordering::Relaxed);
    let mut results = Results::default();
    for load in loads {
        results.add(&load.await.expect("a load"));
    }
    let mut rest = Results::default();
    for (index, client) in clients.iter_mut().enumerate() {
        for key in 0..KEYS {
            for _ in 0..=LIMIT {
                let response = client.hit("d", &[("k", &key.to_string())]).await.expect("a decision");
                rest.calls += 1;
                match response.overall_code() {
                    Code::Ok => *rest.admitted.entry(key).or_default() += 1,
                    _ if response.statuses[0].duration_until_reset.is_none() => rest.failed += 1,
                    _ => break,
                }
            }
        }
        assert_eq!(rest.failed, 0, "{name}: server {index} has recovered");
    }
    results.add(&rest);
    println!(
        "{name}: {} calls on {KEYS} keys of {LIMIT}, over-admissions {}, calls without the store {}, slowest call {} ms, recovery {} ms",
        results.calls,
        results.over(),
        results.failed,
        results.slowest.as_millis(),
        recovery.as_millis()
    );
    results
}

/// The slots of some keys in use that this node has.
fn slots_in_use(cluster: &RedisCluster, node: usize) -> Vec<u16> {
    let counters = cluster.keys(node).into_iter().filter(|key| key.len() > 42);
    let mut slots: Vec<u16> = counters.map(|key| cluster.slot(&key)).collect();
    slots.sort_unstable();
    slots.dedup();
    slots
}

async fn slots_move_under_load() {
    let results = under_load("cluster: slots in use move", false, async |world| {
        let mut moved = 0;
        for slot in slots_in_use(&world.cluster, 0) {
            world.cluster.move_slot(slot, 0, 1);
            moved += 1;
        }
        assert!(moved >= 3, "{moved} slots were in use");
    })
    .await;
    assert_eq!((results.over(), results.failed), (0, 0), "{results:?}");
}

async fn a_node_is_added_under_load() {
    let results = under_load("cluster: node added, slots in use move to it", false, async |world| {
        let node = world.cluster.add_node();
        world.cluster.meet(node);
        world.cluster.wait_until_complete();
        for slot in slots_in_use(&world.cluster, 2) {
            world.cluster.move_slot(slot, 2, node);
        }
        assert!(!slots_in_use(&world.cluster, node).is_empty());
    })
    .await;
    assert_eq!((results.over(), results.failed), (0, 0), "{results:?}");
}

async fn a_primary_is_killed_under_load() {
    let results =
        under_load("cluster: primary killed, replica promoted", true, async |world| world.cluster.kill(0))
            .await;
    assert!(results.failed > 0, "the slots of the primary were not decided for a while");
    // Replication is asynchronous: it may lose one write of each server, and the writes in the buffer of the connection to the replica.
    assert!(results.over() <= 4, "{results:?}");
}

/// Whether the store decides a hit of this key.
async fn is_decided(client: &mut Client, key: usize) -> bool {
    let response = client.hit("d", &[("k", &key.to_string())]).await.expect("a decision");
    response.statuses[0].duration_until_reset.is_some()
}

fn assert_available(world: &World) {
    let log = world.servers[0].log().join("\n");
    assert!(!log.contains("shared store unavailable"), "{log}");
}

/// The heartbeat was redirected, and the server stopped calling the whole node.
async fn a_node_stays_available_while_the_slot_of_the_servers_moves() {
    let world = World::start(false, ONE_LIMIT, 1);
    let servers = "tidegate:{0}servers";
    eventually("a heartbeat", async || world.cluster.keys(2).iter().any(|key| key == servers)).await;
    world.cluster.begin_to_move(world.cluster.slot(servers), 2, 0);
    world.cluster.move_keys(&[servers], 2, 0);
    let redirections = || {
        let mut connection = world.cluster.node(2).connection();
        let info: String = redis::cmd("INFO").arg("errorstats").query(&mut connection).expect("a text");
        let count = info.lines().find_map(|line| line.strip_prefix("errorstat_ASK:count="));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    };
    // A heartbeat is four commands.
    eventually("four heartbeats are redirected", async || redirections() >= 16).await;
    assert_available(&world);
    let mut client = world.servers[0].client().await;
    for key in 0..KEYS {
        assert!(is_decided(&mut client, key).await, "key {key}");
    }
}

/// The node responded to each of these calls, and was counted as a node without responses.
async fn a_node_stays_available_while_new_counters_of_a_moving_slot_are_not_decided() {
    // Shorter than the repetitions of a call.
    let world = World::start_in(RedisCluster::start(false), ONE_LIMIT, 1, "15ms");
    let mut client = world.servers[0].client().await;
    eventually("the store decides", async || is_decided(&mut client, 0).await).await;
    let counter = |node| world.cluster.keys(node).into_iter().find(|key| key.len() > 42);
    let (node, key) = (0..3).find_map(|node| Some((node, counter(node)?))).expect("a counter");
    world.cluster.begin_to_move(world.cluster.slot(&key), node, (node + 1) % 3);
    world.cluster.command(node, &["DEL", &key]);
    for _ in 0..8 {
        assert!(!is_decided(&mut client, 0).await, "the counter is at neither node, the layout at one");
    }
    assert_available(&world);
}

/// Each map of the cluster dropped the node, and each redirection made it again, with another connection of each worker.
async fn a_worker_has_one_connection_to_the_new_node_of_a_moving_slot() {
    let rules = "domain: d\ndescriptors:\n- {key: user, shard_by: user, descriptors: [{key: n, shard_by: user, \
                 rate_limit: {unit: day, requests_per_unit: 1000}}]}";
    let mut world = World::start(false, rules, 1);
    let target = world.cluster.add_node();
    world.cluster.meet(target);
    world.cluster.wait_until_complete();
    let cluster = &world.cluster;
    let mut client = world.servers[0].client().await;
    let mut is_decided = async |n: &str| {
        let response = client.hit("d", &[("user", "ann"), ("n", n)]).await.expect("a decision");
        response.statuses[0].duration_until_reset.is_some()
    };
    eventually("the store decides", async || is_decided("1").await).await;
    let counter = |node| cluster.keys(node).into_iter().find(|key| key.len() > 42);
    let (source, counter) = (0..3).find_map(|node| Some((node, counter(node)?))).expect("a counter");
    let group = counter.split_inclusive('}').next().expect("the prefix and the hash tag");
    cluster.begin_to_move(cluster.slot(&counter), source, target);
    cluster.move_keys(&[&counter, &format!("{group}layout")], source, target);
    let text = |node, words: [&str; 2]| -> String {
        let mut connection = cluster.node(node).connection();
        redis::cmd(words[0]).arg(words[1]).query(&mut connection).expect("a text")
    };
    // Maps that were read from any node.
    let maps = || -> u32 {
        let count = |node| {
            let stats = text(node, ["INFO", "commandstats"]);
            let count = stats.split_once("cmdstat_cluster|slots:calls=")?.1.split(',').next()?;
            count.parse::<u32>().ok()
        };
        (0..4).filter_map(count).sum()
    };
    for round in 0..8 {
        assert!(is_decided("1").await, "its keys are at the target");
        // The map before the last is in force when the last is read. Redirections of a new counter make the server read it at once.
        let before = maps();
        eventually("the server reads the map twice", async || {
            is_decided(&format!("new {round}")).await;
            maps() >= before + 2
        })
        .await;
    }
    // Connections for decisions, to which the last command was a script.
    let clients = text(target, ["CLIENT", "LIST"]);
    assert_eq!(clients.matches(" cmd=eval").count(), 1, "{clients}");
}

/// The server ended, and a running server read no resets.
async fn a_server_starts_and_follows_resets_while_a_node_of_the_cluster_is_dead() {
    let mut cluster = RedisCluster::start(false);
    for node in 0..3 {
        cluster.command(node, &["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    cluster.kill(1);
    let world = World::start_in(cluster, ONE_LIMIT, 1, "1s");
    let log = world.servers[0].logged("shared store unavailable").join("\n");
    assert!(log.contains("127.0.0.1:"), "the node is named: {log}");
    let mut client = world.servers[0].client().await;
    let mut decided = Vec::new();
    for key in 0..KEYS {
        if is_decided(&mut client, key).await {
            decided.push(key);
        }
    }
    assert!((KEYS / 3..KEYS).contains(&decided.len()), "those of two nodes: {decided:?}");
    // A reset of all rules of the domain, by another server.
    let mut hset = redis::cmd("HSET");
    let hset = hset.arg("tidegate:{0}resets").arg("1:d").arg(1_790_000_000_000_000_u64);
    let () = hset.query(&mut world.cluster.node(2).connection()).expect("it is written");
    eventually("the counters begin anew", async || {
        let peek =
            RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("k", &decided[0].to_string())]) };
        let response = client.should_rate_limit("d", vec![peek]).await.expect("a decision");
        response.statuses[0].limit_remaining == LIMIT
    })
    .await;
}
