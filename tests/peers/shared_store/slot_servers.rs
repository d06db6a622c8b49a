//! Servers that share slots of requests in flight in one store: together they never admit more than the limit, each server releases the
//! slots of the others, and no slot stays held for a call that has ended.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{RedisCluster, RedisServer, process::free_port, proxy::Proxy, random_rules::Random};
use crate::{
    support::{
        Client, Server, descriptor, eventually,
        frames::{CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, RawConnection, call_head},
        http2, rules_file,
    },
    tests_with,
};
use prost::Message;
use prost_types::value::Kind;
use rustix::process::Signal;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tidegate::api::pb::{
    common::RateLimitDescriptor,
    service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
};
use tokio::task::JoinSet;

tests_with! {
    REDIS:
    three_servers_never_have_more_in_flight_than_the_limit,
    a_slot_is_released_by_another_server_also_when_its_own_is_gone,
    a_slot_is_renewed_by_another_server_until_it_is_released,
    a_renewal_without_a_response_of_the_store_is_by_the_policy,
    calls_that_are_reset_hold_no_slot,
    a_call_without_a_response_of_the_store_in_time_holds_no_slot,
    an_end_reaches_the_store_when_it_is_back,
    slots_in_a_cluster_are_taken_by_all_limits_or_none_and_released_by_one_ticket,
    a_request_that_quotas_deny_charges_nothing_beside_its_slots,
}

const LIMIT: u32 = 6;
const RULES: &str = "
domain: d
descriptors:
  - {key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 6, max_hold: 1h}}
  - {key: short, rate_limit: {algorithm: concurrency, requests_in_flight: 6, max_hold: 500ms}}
  - {key: renewed, rate_limit: {algorithm: concurrency, requests_in_flight: 6, max_hold: 2s}}
  - {key: two, rate_limit: {algorithm: concurrency, requests_in_flight: 2, max_hold: 1h}}
  - {key: window, rate_limit: {unit: day, requests_per_unit: 1000000}}
  - {key: quota, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1, algorithm: fixed_window}}
";

pub(super) struct World {
    pub(super) servers: Vec<Server>,
    rules: NamedTempFile,
    args: Vec<String>,
}

impl World {
    fn start(servers: usize, url: &str, policy: &[&str]) -> Self {
        Self::with_rules(RULES, servers, url, policy)
    }

    pub(super) fn with_rules(rules: &str, servers: usize, url: &str, policy: &[&str]) -> Self {
        let rules = rules_file(rules);
        let args = [&["--counters", url, "--http-listen", "127.0.0.1:0"], policy].concat();
        let mut world =
            Self { servers: Vec::new(), rules, args: args.into_iter().map(str::to_owned).collect() };
        world.servers = (0..servers).map(|_| world.server()).collect();
        world
    }

    fn server(&self) -> Server {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        Server::with_rules(self.rules.path(), &args)
    }

    pub(super) async fn metric(&self, server: usize, name: &str) -> u64 {
        self.servers[server].metric(name).await
    }

    /// Kills a server, and starts another at its address.
    pub(super) fn replace(&mut self, server: usize) {
        let address = self.servers[server].address().to_owned();
        self.servers[server].signal_until_it_ends(Signal::KILL);
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let args = [&args[..], &["--rules", self.rules.path().to_str().expect("UTF-8")]].concat();
        self.servers[server] = Server::start_on(&address, &args);
    }
}

/// The ticket of an admitted request.
pub(super) fn ticket(response: &RateLimitResponse) -> Option<String> {
    let Kind::StringValue(ticket) = response.dynamic_metadata.as_ref()?.fields["slot"].kind.as_ref()? else {
        panic!("{response:?}")
    };
    Some(ticket.clone())
}

pub(super) async fn take(client: &mut Client, keys: &[&str]) -> Option<String> {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "v")])).collect();
    let response = client.should_rate_limit("d", descriptors).await.expect("a decision");
    assert_eq!(response.overall_code() == Code::Ok, ticket(&response).is_some(), "{response:?}");
    ticket(&response)
}

pub(super) async fn release(client: &mut Client, ticket: &str) {
    let response = client.hit("d", &[("slot", ticket)]).await.expect("a decision");
    assert_eq!((response.overall_code(), ticket_is_none(&response)), (Code::Ok, true));
}

fn ticket_is_none(response: &RateLimitResponse) -> bool {
    ticket(response).is_none()
}

/// Renews a ticket of a request with these keys; returns whether it is held.
pub(super) async fn renew(client: &mut Client, keys: &[&str], ticket: &str) -> bool {
    let descriptors = keys.iter().map(|key| descriptor(&[(key, "v"), ("renew", ticket)])).collect();
    let response = client.should_rate_limit("d", descriptors).await.expect("a decision");
    assert!(ticket_is_none(&response));
    response.overall_code() == Code::Ok
}

/// Free hits of a key.
pub(super) async fn free(client: &mut Client, key: &str) -> u32 {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[(key, "v")]) };
    client.should_rate_limit("d", vec![peek]).await.expect("a decision").statuses[0].limit_remaining
}

pub(super) async fn wait_until_free(client: &mut Client, key: &str, expected: u32) -> Duration {
    let began = Instant::now();
    eventually(&format!("{expected} are free"), async || match free(client, key).await {
        free if free == expected => Ok(()),
        free => Err(free),
    })
    .await;
    began.elapsed()
}

pub(super) const DENY: [&str; 4] = ["--on-store-failure", "deny", "--counters-timeout", "2s"];

#[derive(Default)]
struct InFlight {
    now: AtomicI64,
    most: AtomicI64,
    admitted: AtomicU64,
    denied: AtomicU64,
}

/// Callers that take at one server and release at another; some never release, some release twice. Now and then a server is killed.
async fn three_servers_never_have_more_in_flight_than_the_limit() {
    let store = RedisServer::start();
    let url = store.url();
    let mut world = World::start(3, &url, &DENY);
    let figures = Arc::new(InFlight::default());
    let until = Instant::now() + Duration::from_secs(6);
    let mut callers = JoinSet::new();
    for caller in 0..12_u64 {
        let (figures, mut random) = (Arc::clone(&figures), Random(caller));
        let mut clients = Vec::new();
        for server in &world.servers {
            clients.push(server.client().await);
        }
        callers.spawn(async move {
            while Instant::now() < until {
                let [first, second] = [0, 1].map(|_| random.below(clients.len() as u64) as usize);
                let wanted = vec![descriptor(&[("short", "v")])];
                // A server that was killed has no decision.
                let Ok(response) = clients[first].should_rate_limit("d", wanted).await else {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    continue;
                };
                let Some(ticket) = ticket(&response) else {
                    figures.denied.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    continue;
                };
                figures.admitted.fetch_add(1, Ordering::SeqCst);
                let now = figures.now.fetch_add(1, Ordering::SeqCst) + 1;
                figures.most.fetch_max(now, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(random.below(6))).await;
                figures.now.fetch_sub(1, Ordering::SeqCst);
                let ends = [1, 1, 1, 1, 1, 1, 1, 1, 2, 0][random.below(10) as usize];
                for _ in 0..ends {
                    _ = clients[second].hit("d", &[("slot", &ticket)]).await;
                }
            }
        });
    }
    for server in 0..world.servers.len() {
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        world.replace(server);
    }
    callers.join_all().await;
    let [most, admitted, denied] = [
        figures.most.load(Ordering::SeqCst),
        figures.admitted.load(Ordering::SeqCst) as i64,
        figures.denied.load(Ordering::SeqCst) as i64,
    ];
    println!(
        "{admitted} admitted, {denied} denied by three servers, of which each was killed once: at most {most} of {LIMIT} in flight"
    );
    assert!(most <= i64::from(LIMIT), "{most} in flight");
    assert!(admitted > 200 && denied > 20 && most > 3, "the load shows nothing");
    let mut client = world.servers[0].client().await;
    let recovered = wait_until_free(&mut client, "short", LIMIT).await;
    assert!(recovered < Duration::from_secs(3), "free after {recovered:?}");
}

async fn a_slot_is_released_by_another_server_also_when_its_own_is_gone() {
    let store = RedisServer::start();
    let mut world = World::start(2, &store.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..LIMIT {
        tickets.push(take(&mut first, &["k", "window"]).await.expect("a slot"));
    }
    assert_eq!(take(&mut second, &["k"]).await, None);
    release(&mut second, &tickets[0]).await;
    // A repeated release and a forged release free nothing.
    release(&mut first, &tickets[0]).await;
    release(&mut first, &tickets[1].replace("slot-", "slot-f")).await;
    assert_eq!((free(&mut first, "k").await, free(&mut second, "k").await), (1, 1));
    assert_eq!(world.metric(1, "tidegate_slots_total{event=\"released\"}").await, 1);
    assert_eq!(world.metric(0, "tidegate_slots_total{event=\"unknown_release\"}").await, 1);
    world.servers[0].signal_until_it_ends(Signal::KILL);
    let part = RateLimitDescriptor { is_negative_hits: true, ..descriptor(&[("slot", &tickets[1])]) };
    second.should_rate_limit("d", vec![part]).await.expect("a decision");
    for ticket in &tickets[2..] {
        release(&mut second, ticket).await;
    }
    assert_eq!(free(&mut second, "k").await, LIMIT);
    // In the store, only the average of the counter remains.
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut store.connection()).expect("keys");
    assert!(keys.len() <= 5, "{keys:?}");
}

async fn calls_that_are_reset_hold_no_slot() {
    let store = RedisServer::start();
    let world = World::start(1, &store.url(), &DENY);
    let server = &world.servers[0];
    let mut client = server.client().await;
    let request = RateLimitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[("k", "v")])],
        ..RateLimitRequest::default()
    };
    let message = http2::plain(&request.encode_to_vec());
    let routed_head = [&call_head()[..], b"\x00\x10tidegate-windows\x011"].concat();
    let mut connection = RawConnection::open(server.address()).await;
    let mut stream = 1;
    for (round, head) in [call_head(), routed_head].iter().cycle().take(60).enumerate() {
        connection.send(HEADERS, END_HEADERS, stream, head).await;
        connection.send(DATA, END_STREAM, stream, &message).await;
        match round % 3 {
            0 => {}
            1 => tokio::time::sleep(Duration::from_micros(50 * round as u64)).await,
            // The call is reset after the response.
            _ => while connection.next_frame_of(stream).await.flags & END_STREAM == 0 {},
        }
        connection.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
        stream += 2;
    }
    wait_until_free(&mut client, "k", LIMIT).await;
    assert_eq!(world.metric(0, "tidegate_shared_store_lost_releases_total").await, 0);
}

async fn a_call_without_a_response_of_the_store_in_time_holds_no_slot() {
    for policy in ["deny", "allow", "local", "error"] {
        let port = free_port();
        let _store = RedisServer::start_on(port, &[]);
        let proxy = Proxy::start(port).await;
        let args = ["--on-store-failure", policy, "--counters-timeout", "100ms"];
        let world = World::start(1, &format!("redis://127.0.0.1:{}", proxy.port()), &args);
        let mut client = world.servers[0].client().await;
        let held = client.hit("d", &[("k", "v")]).await.expect("a decision");
        let in_store = ticket(&held).expect("a ticket");
        proxy.delay(Duration::from_millis(400));
        let mut local = Vec::new();
        for _ in 0..3 {
            match client.hit("d", &[("k", "v")]).await {
                Ok(response) => {
                    assert_eq!(response.overall_code() == Code::Ok, policy != "deny", "{policy}");
                    local.extend(ticket(&response));
                }
                Err(status) => assert_eq!(policy, "error", "{status}"),
            }
        }
        assert_eq!(local.len(), if policy == "local" { 3 } else { 0 }, "{policy}");
        proxy.delay(Duration::ZERO);
        // Slots that the late calls have taken are released. A call during an outage has no status of the store.
        let peek = || RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("k", "v")]) };
        eventually(&format!("{policy}: one slot is held"), async || {
            let response = client.should_rate_limit("d", vec![peek()]).await;
            response.is_ok_and(|response| response.statuses[0].limit_remaining == LIMIT - 1)
        })
        .await;
        // Ends of slots that were granted without the store, and of a slot in the store.
        for ticket in local.iter().chain([&in_store]) {
            release(&mut client, ticket).await;
        }
        wait_until_free(&mut client, "k", LIMIT).await;
    }
}

async fn an_end_reaches_the_store_when_it_is_back() {
    let store = RedisServer::start();
    let url = store.url();
    let world = World::start(1, &url, &["--on-store-failure", "deny", "--counters-timeout", "100ms"]);
    let mut client = world.servers[0].client().await;
    let ticket = take(&mut client, &["k"]).await.expect("a slot");
    let stop = |signal| {
        let pid = rustix::process::Pid::from_raw(store.pid() as i32).expect("a process");
        rustix::process::kill_process(pid, signal).expect("it runs");
    };
    stop(Signal::STOP);
    let began = Instant::now();
    release(&mut client, &ticket).await;
    assert!(began.elapsed() < crate::support::PATIENCE, "the caller has waited for {:?}", began.elapsed());
    tokio::time::sleep(Duration::from_millis(500)).await;
    stop(Signal::CONT);
    wait_until_free(&mut client, "k", LIMIT).await;
}

async fn slots_in_a_cluster_are_taken_by_all_limits_or_none_and_released_by_one_ticket() {
    let cluster = RedisCluster::start(false);
    let world = World::start(2, &cluster.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let mut tickets = Vec::new();
    for _ in 0..2 {
        tickets.push(take(&mut first, &["k", "two", "window"]).await.expect("slots"));
    }
    for _ in 0..20 {
        assert_eq!(take(&mut second, &["k", "two", "window"]).await, None);
    }
    // Slots that a denied request has taken in other slots of the cluster are taken back a moment later.
    wait_until_free(&mut first, "k", LIMIT - 2).await;
    assert_eq!(free(&mut first, "window").await, 1_000_000 - 2);
    for ticket in &tickets {
        assert!(renew(&mut second, &["k", "two", "window"], ticket).await);
        assert!(!renew(&mut second, &["k", "window"], ticket).await, "a slot of another limit");
        release(&mut second, ticket).await;
        assert!(!renew(&mut first, &["k", "two", "window"], ticket).await);
    }
    assert_eq!((free(&mut first, "k").await, free(&mut first, "two").await), (LIMIT, 2));
    assert_eq!(world.metric(1, "tidegate_slots_total{event=\"released\"}").await, 4);
}

/// The request used to charge all of them, and took the hits back a moment later: meanwhile other requests were denied.
async fn a_request_that_quotas_deny_charges_nothing_beside_its_slots() {
    let store = RedisServer::start();
    let world = World::start(1, &store.url(), &DENY);
    let mut client = world.servers[0].client().await;
    let first = take(&mut client, &["quota", "window", "k"]).await.expect("a slot");
    let written = || -> u64 {
        let stats: String =
            redis::cmd("INFO").arg("commandstats").query(&mut store.connection()).expect("statistics");
        let calls = |line: &str| line.split_once(":calls=")?.1.split_once(',')?.0.parse::<u64>().ok();
        let is_write = |line: &&str| line.starts_with("cmdstat_set:") || line.starts_with("cmdstat_psetex:");
        stats.lines().filter(is_write).filter_map(calls).sum()
    };
    let before = written();
    for _ in 0..40 {
        assert_eq!(take(&mut client, &["quota", "window", "k"]).await, None);
    }
    let taken_back = world.metric(0, "tidegate_shared_store_undone_total{result=\"done\"}").await;
    assert_eq!((written(), taken_back), (before, 0));
    assert_eq!(free(&mut client, "window").await, 1_000_000 - 1);
    release(&mut client, &first).await;
}

/// For two seconds at a time, by a server that has not admitted the request.
async fn a_slot_is_renewed_by_another_server_until_it_is_released() {
    let store = RedisServer::start();
    let world = World::start(2, &store.url(), &DENY);
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    let (held, lost) = (take(&mut first, &["renewed"]).await, take(&mut first, &["renewed"]).await);
    let (held, lost) = (held.expect("a slot"), lost.expect("a slot"));
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        assert!(renew(&mut second, &["renewed"], &held).await, "after {:?}", began.elapsed());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(free(&mut first, "renewed").await, LIMIT - 1);
    assert!(!renew(&mut second, &["renewed"], &lost).await);
    release(&mut first, &held).await;
    assert!(!renew(&mut second, &["renewed"], &held).await);
    assert_eq!(free(&mut first, "renewed").await, LIMIT);
    assert_eq!(world.metric(1, "tidegate_slots_total{event=\"unknown_renewal\"}").await, 2);
    assert!(world.metric(1, "tidegate_slots_total{event=\"renewed\"}").await > 5);
}

async fn a_renewal_without_a_response_of_the_store_is_by_the_policy() {
    for (policy, is_held) in [("deny", false), ("allow", true)] {
        let store = RedisServer::start();
        let args = ["--on-store-failure", policy, "--counters-timeout", "200ms"];
        let world = World::start(1, &store.url(), &args);
        let mut client = world.servers[0].client().await;
        let ticket = take(&mut client, &["k"]).await.expect("a slot");
        let signal = |signal| {
            let pid = rustix::process::Pid::from_raw(store.pid() as i32).expect("a process");
            rustix::process::kill_process(pid, signal).expect("it runs");
        };
        signal(Signal::STOP);
        assert_eq!(renew(&mut client, &["k"], &ticket).await, is_held, "{policy}");
        signal(Signal::CONT);
        eventually("the store decides again", async || match renew(&mut client, &["k"], &ticket).await {
            true => Ok(()),
            false => Err(()),
        })
        .await;
    }
}
