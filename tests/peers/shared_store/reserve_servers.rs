//! Servers that share reservations in one store: together they keep a budget, each server ends the reservations of the others, and each end
//! counts once, whatever happens to servers and store.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisCluster, RedisServer,
    process::{free_port, watched_pair},
    random_rules::Random,
    slot_servers::{DENY, World, free, renew, take, ticket, wait_until_free},
};
use crate::{
    support::{Client, descriptor, eventually, http1},
    tests_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};
use tokio::task::JoinSet;

tests_with! {
    REDIS:
    three_servers_never_spend_more_than_the_budget,
    a_reservation_is_ended_once_by_another_server_also_when_its_own_is_gone,
    a_reservation_is_renewed_by_another_server_until_it_is_ended,
    an_end_reaches_a_suspended_store_when_it_resumes,
    an_end_reaches_a_killed_store_when_it_returns_with_its_data,
    a_store_that_returns_empty_has_the_whole_budget_and_charges_no_former_end,
    a_reservation_is_ended_in_the_replica_that_sentinel_promotes,
    a_reservation_is_ended_in_the_replica_of_a_killed_primary_of_a_cluster,
    reservations_in_a_cluster_are_of_all_limits_or_none_and_ended_by_one_ticket,
    without_the_store_hits_of_an_end_count_once_for_each_server,
}

const ESTIMATE: u32 = 40;
const BUDGET: u32 = 1_000;
const LARGE_BUDGET: u32 = 30_000;
const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 40, max_hold: 1h}
  - key: large
    rate_limit: {unit: year, requests_per_unit: 30000, algorithm: fixed_window, reserve: 40, max_hold: 1h}
  - key: two
    rate_limit: {unit: year, requests_per_unit: 80, algorithm: fixed_window, reserve: 40, max_hold: 1h}
  - key: most
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: fixed_window, reserve: 60, max_hold: 1h}
  - key: short
    rate_limit: {unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 40, max_hold: 2s, on_lost_end: return}
  - {key: window, rate_limit: {unit: day, requests_per_unit: 1000000}}
";

/// Sends the end of a request with its cost; a negative cost states how much less than the estimate it is. Returns whether the server has
/// responded.
async fn try_end(client: &mut Client, ticket: &str, cost: i64) -> bool {
    let end = RateLimitDescriptor {
        hits_addend: Some(cost.unsigned_abs()),
        is_negative_hits: cost < 0,
        ..descriptor(&[("slot", ticket)])
    };
    let response = client.should_rate_limit("d", vec![end]).await;
    response.is_ok_and(|response| response.overall_code() == Code::Ok)
}

async fn end(client: &mut Client, ticket: &str, cost: i64) {
    assert!(try_end(client, ticket, cost).await, "an end is OK");
}

/// A ticket with another id.
fn forged(ticket: &str) -> String {
    let (prefix, rest) = ticket.split_at("slot-".len());
    let first = if rest.starts_with('0') { '1' } else { '0' };
    format!("{prefix}{first}{}", &rest[1..])
}

fn signal(store: &RedisServer, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(store.pid()).expect("a process")).expect("a process");
    kill_process(pid, signal).expect("the store runs");
}

#[derive(Default)]
struct Spent {
    admitted: AtomicU64,
    /// Cost of the admitted requests.
    cost: AtomicU64,
    /// Estimates of requests without an end.
    without_end: AtomicU64,
    /// Starts to which no server has responded: their estimates may be charged.
    without_response: AtomicU64,
    repeated: AtomicU64,
}

/// Starts at one server and ends at another until the budget is spent. Some requests have no end, some have two ends with different costs.
async fn spend(mut clients: Vec<Client>, mut random: Random, spent: Arc<Spent>) {
    let (mut denials, add) = (0, |figure: &AtomicU64, more| figure.fetch_add(more, Ordering::SeqCst));
    while denials < 20 {
        let first = random.below(clients.len() as u64) as usize;
        let Ok(response) = clients[first].should_rate_limit("d", vec![descriptor(&[("large", "v")])]).await
        else {
            add(&spent.without_response, 1);
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let Some(ticket) = ticket(&response) else {
            denials += 1;
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        (denials, _) = (0, add(&spent.admitted, 1));
        let cost = random.below(u64::from(ESTIMATE) + 1);
        add(&spent.cost, cost);
        if random.one_in(10) {
            add(&spent.without_end, u64::from(ESTIMATE) - cost);
            continue;
        }
        // A server that is gone may have charged the end before: the next end then changes nothing.
        while !try_end(&mut clients[random.below(3) as usize], &ticket, cost as i64).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        if random.one_in(10) {
            add(&spent.repeated, 1);
            _ = try_end(&mut clients[random.below(3) as usize], &ticket, 1_000).await;
        }
    }
}

/// Each server is killed once.
async fn three_servers_never_spend_more_than_the_budget() {
    let store = RedisServer::start();
    let mut world = World::with_rules(RULES, 3, &store.url(), &DENY);
    let (spent, mut callers) = (Arc::new(Spent::default()), JoinSet::new());
    for caller in 0..8 {
        let mut clients = Vec::new();
        for server in &world.servers {
            clients.push(server.client().await);
        }
        callers.spawn(spend(clients, Random(caller), Arc::clone(&spent)));
    }
    for server in 0..world.servers.len() {
        eventually("requests are admitted", async || {
            spent.admitted.load(Ordering::SeqCst) >= 200 * (server as u64 + 1)
        })
        .await;
        world.replace(server);
    }
    callers.join_all().await;
    let Spent { admitted, cost, without_end, without_response, repeated } = &*spent;
    let [admitted, cost, without_end, without_response, repeated] =
        [admitted, cost, without_end, without_response, repeated].map(|figure| figure.load(Ordering::SeqCst));
    let charged = u64::from(LARGE_BUDGET - free(&mut world.servers[0].client().await, "large").await);
    println!(
        "{admitted} admitted by three servers, of which each was killed once: cost {cost} of {LARGE_BUDGET}, estimates without an end {without_end} more, \
         charged {charged}, {without_response} starts without a response, {repeated} ends repeated"
    );
    assert!(cost <= u64::from(LARGE_BUDGET), "{cost} spent");
    assert!(repeated > 20 && without_end > 400, "the load shows nothing");
    assert!(charged + u64::from(ESTIMATE) > u64::from(LARGE_BUDGET), "the budget is not spent: {charged}");
    let known = cost + without_end;
    let most = known + without_response * u64::from(ESTIMATE);
    assert!((known..=most).contains(&charged), "{charged} charged, {known} to {most} expected");
}

async fn a_reservation_is_ended_once_by_another_server_also_when_its_own_is_gone() {
    let store = RedisServer::start();
    let mut world = World::with_rules(RULES, 2, &store.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..3 {
        tickets.push(take(&mut first, &["k", "window"]).await.expect("an estimate"));
    }
    assert_eq!(free(&mut second, "k").await, BUDGET - 3 * ESTIMATE);
    end(&mut second, &tickets[0], 7).await;
    // A repeated end and a forged end change nothing.
    end(&mut first, &tickets[0], 50).await;
    end(&mut first, &forged(&tickets[1]), 0).await;
    let expected = BUDGET - 2 * ESTIMATE - 7;
    assert_eq!((free(&mut first, "k").await, free(&mut second, "k").await), (expected, expected));
    let event = |event: &str| format!("tidegate_reservations_total{{event=\"{event}\"}}");
    assert_eq!((world.metric(0, &event("started")).await, world.metric(1, &event("ended")).await), (3, 1));
    assert_eq!(world.metric(0, &event("unknown_end")).await, 2);
    world.servers[0].signal_until_it_ends(Signal::KILL);
    end(&mut second, &tickets[1], -10).await;
    end(&mut second, &tickets[2], 500).await;
    assert_eq!(free(&mut second, "k").await, BUDGET - 7 - 30 - 500);
}

/// For two seconds at a time, by a server that has not admitted the request.
async fn a_reservation_is_renewed_by_another_server_until_it_is_ended() {
    let store = RedisServer::start();
    let world = World::with_rules(RULES, 2, &store.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let (held, lost) = (take(&mut first, &["short"]).await, take(&mut first, &["short"]).await);
    let (held, lost) = (held.expect("admitted"), lost.expect("admitted"));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        assert!(renew(&mut second, &["short"], &held).await, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(free(&mut first, "short").await, BUDGET - ESTIMATE, "the other estimate is returned");
    assert!(!renew(&mut second, &["short"], &lost).await);
    assert!(!renew(&mut second, &["short"], &forged(&held)).await);
    end(&mut first, &held, 7).await;
    assert!(!renew(&mut second, &["short"], &held).await);
    assert_eq!(free(&mut second, "short").await, BUDGET - 7);
    assert_eq!(world.metric(1, "tidegate_reservations_total{event=\"unknown_renewal\"}").await, 3);
    assert!(world.metric(1, "tidegate_reservations_total{event=\"renewed\"}").await > 5);
}

/// The caller does not wait for the store.
async fn an_end_reaches_a_suspended_store_when_it_resumes() {
    let store = RedisServer::start();
    let policy = ["--on-store-failure", "deny", "--counters-timeout", "100ms"];
    let world = World::with_rules(RULES, 1, &store.url(), &policy);
    let mut client = world.servers[0].client().await;
    let ticket = take(&mut client, &["k"]).await.expect("an estimate");
    signal(&store, Signal::STOP);
    let began = Instant::now();
    end(&mut client, &ticket, 7).await;
    assert!(began.elapsed() < crate::support::PATIENCE, "the caller has waited for {:?}", began.elapsed());
    signal(&store, Signal::CONT);
    wait_until_free(&mut client, "k", BUDGET - 7).await;
    end(&mut client, &ticket, 50).await;
    assert_eq!(free(&mut client, "k").await, BUDGET - 7);
}

async fn an_end_reaches_a_killed_store_when_it_returns_with_its_data() {
    let (port, data) = (free_port(), tempfile::tempdir().expect("a folder"));
    let folder = data.path().to_str().expect("temporary paths are UTF-8");
    let args = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always"];
    let store = RedisServer::start_on(port, &args);
    let world = World::with_rules(RULES, 2, &format!("redis://127.0.0.1:{port}"), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..3 {
        tickets.push(take(&mut first, &["k"]).await.expect("an estimate"));
    }
    end(&mut first, &tickets[0], 7).await;
    drop(store);
    end(&mut second, &tickets[1], 70).await;
    assert_eq!(take(&mut first, &["k"]).await, None, "nothing is admitted without the store");
    let _store = RedisServer::start_on(port, &args);
    let expected = BUDGET - 7 - 70 - ESTIMATE;
    wait_until_free(&mut first, "k", expected).await;
    for ticket in &tickets[..2] {
        end(&mut second, ticket, 500).await;
    }
    assert_eq!(free(&mut first, "k").await, expected);
    end(&mut second, &tickets[2], 0).await;
    assert_eq!(free(&mut first, "k").await, BUDGET - 7 - 70);
}

async fn a_store_that_returns_empty_has_the_whole_budget_and_charges_no_former_end() {
    let port = free_port();
    let store = RedisServer::start_on(port, &[]);
    let world = World::with_rules(RULES, 2, &format!("redis://127.0.0.1:{port}"), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let [during, after] = [take(&mut first, &["k"]).await, take(&mut first, &["k"]).await];
    drop(store);
    end(&mut second, &during.expect("an estimate"), 70).await;
    let _store = RedisServer::start_on(port, &[]);
    wait_until_free(&mut first, "k", BUDGET).await;
    end(&mut second, &after.expect("an estimate"), 70).await;
    wait_until_free(&mut second, "k", BUDGET).await;
    let ticket = take(&mut first, &["k"]).await.expect("an estimate");
    end(&mut second, &ticket, 70).await;
    assert_eq!(free(&mut first, "k").await, BUDGET - 70);
}

async fn a_reservation_is_ended_in_the_replica_that_sentinel_promotes() {
    let (primary, replica, sentinel) = watched_pair(free_port());
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let world = World::with_rules(RULES, 2, &url, &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..2 {
        tickets.push(take(&mut first, &["k"]).await.expect("an estimate"));
    }
    let counter = counter(&primary);
    eventually("the replica has the reservations", async || {
        value(&replica, &counter) == value(&primary, &counter)
    })
    .await;
    drop(primary);
    end(&mut second, &tickets[0], 7).await;
    wait_until_free(&mut first, "k", BUDGET - 7 - ESTIMATE).await;
    end(&mut first, &tickets[1], 70).await;
    end(&mut second, &tickets[0], 70).await;
    assert_eq!(free(&mut second, "k").await, BUDGET - 7 - 70);
}

/// The key of the only counter with reservations.
fn counter(store: &RedisServer) -> String {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut store.connection()).expect("keys");
    let mut reserved = keys.into_iter().filter(|key| value(store, key).first() == Some(&255));
    reserved.next().expect("a counter with reservations")
}

/// The bytes of a key; none if it has another type or does not exist.
fn value(store: &RedisServer, key: &str) -> Vec<u8> {
    redis::cmd("GET").arg(key).query(&mut store.connection()).unwrap_or_default()
}

async fn a_reservation_is_ended_in_the_replica_of_a_killed_primary_of_a_cluster() {
    const VALUES: usize = 12;
    let mut cluster = RedisCluster::start(true);
    let world = World::with_rules(RULES, 2, &cluster.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for value in 0..VALUES {
        let response = first.hit("d", &[("k", &value.to_string())]).await.expect("a decision");
        tickets.push(ticket(&response).expect("an estimate"));
    }
    eventually("the replica has the reservations", async || {
        let mut keys = [0, 3].map(|node| cluster.keys(node));
        keys.iter_mut().for_each(|keys| keys.sort());
        let [of_primary, of_replica] = &keys;
        of_primary == of_replica && !of_primary.is_empty()
    })
    .await;
    cluster.kill(0);
    for ticket in &tickets {
        end(&mut second, ticket, 7).await;
    }
    for key in 0..VALUES {
        eventually("the end is charged", async || {
            let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("k", &key.to_string())]) };
            let response = first.should_rate_limit("d", vec![peek]).await.expect("a decision");
            match response.statuses[0].limit_remaining {
                free if free == BUDGET - 7 => Ok(()),
                free => Err(free),
            }
        })
        .await;
    }
}

async fn reservations_in_a_cluster_are_of_all_limits_or_none_and_ended_by_one_ticket() {
    let cluster = RedisCluster::start(false);
    let world = World::with_rules(RULES, 2, &cluster.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..2 {
        tickets.push(take(&mut first, &["k", "two", "window"]).await.expect("estimates"));
    }
    for _ in 0..20 {
        assert_eq!(take(&mut second, &["k", "two", "window"]).await, None);
    }
    // The estimates of a denied request in other slots of the cluster are returned a moment later.
    wait_until_free(&mut first, "k", BUDGET - 2 * ESTIMATE).await;
    assert_eq!((free(&mut first, "window").await, free(&mut first, "two").await), (1_000_000 - 2, 0));
    end(&mut second, &tickets[0], 7).await;
    end(&mut second, &tickets[1], 0).await;
    assert_eq!((free(&mut first, "k").await, free(&mut first, "two").await), (BUDGET - 7, 80 - 7));
    assert_eq!(world.metric(1, "tidegate_reservations_total{event=\"ended\"}").await, 4);
}

/// Each of two servers admits half of the budget by itself.
async fn without_the_store_hits_of_an_end_count_once_for_each_server() {
    let port = free_port();
    let store = RedisServer::start_on(port, &[]);
    let policy = ["--on-store-failure", "local", "--counters-timeout", "2s"];
    let world = World::with_rules(RULES, 2, &format!("redis://127.0.0.1:{port}"), &policy);
    for server in &world.servers {
        eventually("the servers count each other", async || {
            let ready = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get("/readyz"));
            String::from_utf8_lossy(ready.await.expect("a response").body()).contains("2 servers")
        })
        .await;
    }
    drop(store);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let share = BUDGET / 2;
    let mut tickets = Vec::new();
    for _ in 0..3 {
        tickets.push(take(&mut first, &["k"]).await.expect("an estimate"));
    }
    assert_eq!(free(&mut first, "k").await, share - 3 * ESTIMATE);
    end(&mut first, &tickets[0], 7).await;
    end(&mut first, &tickets[1], -10).await;
    let expected = share - 7 - 30 - ESTIMATE;
    assert_eq!(free(&mut first, "k").await, expected);
    // Repeated ends, forged ends, and ends at a server that does not have the reservation.
    end(&mut first, &tickets[0], 300).await;
    end(&mut first, &forged(&tickets[2]), 300).await;
    end(&mut second, &tickets[2], 300).await;
    assert_eq!((free(&mut first, "k").await, free(&mut second, "k").await), (expected, share));
    assert_eq!(take(&mut first, &["most"]).await, None, "the estimate is greater than the share");
    let _store = RedisServer::start_on(port, &[]);
    wait_until_free(&mut first, "k", BUDGET).await;
    end(&mut first, &tickets[2], 300).await;
    assert_eq!(free(&mut first, "k").await, BUDGET, "the end of a local reservation is not of the store");
}
