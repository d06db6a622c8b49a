//! Servers that lease the counters of one store, under load, while the store or a server fails: admissions beyond the limit, calls that
//! were not decided, and the time until the store decides again. Each test prints a row of a table.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisServer,
    process::{Sentinel, free_port, watched_pair},
};
use crate::{
    support::{Client, PATIENCE, Server, eventually, http1, rules_file},
    tests_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tempfile::NamedTempFile;
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::limit::Timestamp;
use tidegate_shared::script::read_value;
use tokio::task::JoinSet;

tests_with! {
    REDIS:
    leases_over_a_failover_that_loses_no_write,
    leases_over_a_failover_that_loses_writes,
    leases_while_the_store_is_killed_and_restarted_empty,
    leases_while_the_store_loses_its_keys,
    leases_while_the_store_is_suspended_for_longer_than_a_lease,
    leases_while_a_server_is_suspended_for_longer_than_a_lease,
}

/// The limit, in a window longer than any test.
const LIMIT: u32 = 4_000;

/// The least number of admissions before the fault.
const BEFORE: u32 = 500;

/// Length of a lease, and the time for which a process is suspended.
const LEASE: Duration = Duration::from_millis(200);
const SUSPENDED: Duration = Duration::from_millis(900);

/// Callers of each server, and the pause of each between two calls.
const CALLERS: u32 = 3;
const PACE: Duration = Duration::from_millis(2);

/// Denials in a row after which a caller ends, once it may: with their pauses they last longer than a lease.
const DENIALS: u32 = 120;
const PAUSE: Duration = Duration::from_millis(5);

/// Two servers, their store, and the callers.
struct World {
    store: Option<RedisServer>,
    servers: Vec<Server>,
    load: Arc<Load>,
    callers: JoinSet<()>,
    _rules: NamedTempFile,
}

/// Counts of all callers.
#[derive(Default)]
struct Load {
    admitted: AtomicU32,
    /// Calls denied without a decision of the store or of a lease.
    undecided: AtomicU32,
    calls: AtomicU32,
    /// Set when callers may end.
    is_ending: AtomicBool,
    /// Decisions of the store on a rule that is never leased: server, begin and end in microseconds since the epoch.
    probes: Mutex<Vec<Probe>>,
}

#[derive(Clone, Copy)]
struct Probe {
    server: usize,
    began: u64,
    ended: u64,
    is_decided: bool,
}

impl World {
    /// Starts the servers and the load, and waits until both servers spend credits.
    async fn start(store: RedisServer, url: &str) -> Self {
        let rules = rules_file(&format!(
            "domain: d\ndescriptors:\n\
             - {{key: k, rate_limit: {{unit: day, requests_per_unit: {LIMIT}}}}}\n\
             - {{key: probe, lease: off, rate_limit: {{unit: day, requests_per_unit: 1000000}}}}\n"
        ));
        let args = ["--counters", url, "--http-listen", "127.0.0.1:0", "--lease", "auto"];
        let args = [&args[..], &["--on-store-failure", "deny", "--counters-timeout", "100ms"]].concat();
        let servers: Vec<Server> = (0..2).map(|_| Server::with_rules(rules.path(), &args)).collect();
        let (load, mut callers) = (Arc::new(Load::default()), JoinSet::new());
        for (number, server) in servers.iter().enumerate() {
            for _ in 0..CALLERS {
                callers.spawn(spend(server.client().await, Arc::clone(&load)));
            }
            callers.spawn(probe(number, server.client().await, Arc::clone(&load)));
        }
        let world = Self { store: Some(store), servers, load, callers, _rules: rules };
        eventually("both servers spend credits", async || {
            let by_lease = world.by_lease().await;
            assert!(world.admitted() < LIMIT / 2, "half of the limit is used: {by_lease:?} by leases");
            if world.admitted() < BEFORE || by_lease.contains(&0) { Err(by_lease) } else { Ok(()) }
        })
        .await;
        world
    }

    async fn start_on_one_store() -> Self {
        Self::start_on(free_port()).await
    }

    async fn start_on(port: u16) -> Self {
        let store = RedisServer::start_on(port, &[]);
        Self::start(store, &format!("redis://127.0.0.1:{port}")).await
    }

    fn store(&self) -> &RedisServer {
        self.store.as_ref().expect("the store runs")
    }

    fn admitted(&self) -> u32 {
        self.load.admitted.load(Ordering::SeqCst)
    }

    /// Hits that each server has admitted by leases.
    async fn by_lease(&self) -> Vec<u64> {
        let mut figures = Vec::new();
        for server in &self.servers {
            let request = http::Request::get("/metrics");
            let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), request).await.expect("a page");
            let page = String::from_utf8_lossy(page.body()).into_owned();
            let name = "tidegate_lease_decisions_total{result=\"admitted\"} ";
            let figure = page.lines().find_map(|line| line.strip_prefix(name)?.parse().ok());
            figures.push(figure.expect("the metric is on the page"));
        }
        figures
    }

    /// Waits until the store decides for every server again, according to probes sent after `from`; returns the time since then.
    async fn recovery(&self, from: u64) -> Duration {
        eventually("the store decides again", async || {
            let probes = self.load.probes.lock().expect("no caller panics").clone();
            let first = |server| {
                let mut decided = probes.iter().filter(|probe| probe.server == server && probe.is_decided);
                decided.find(|probe| probe.began >= from).map(|probe| probe.ended)
            };
            Some(Duration::from_micros(first(0)?.max(first(1)?) - from))
        })
        .await
    }

    /// Calls until no more calls are admitted; prints the row, and returns all admissions.
    async fn finish(mut self, event: &str, recovery: Duration) -> u32 {
        self.load.is_ending.store(true, Ordering::SeqCst);
        tokio::time::timeout(PATIENCE, async { while self.callers.join_next().await.is_some() {} })
            .await
            .expect("the limit is used up, and callers end");
        let (admitted, by_lease) = (self.admitted(), self.by_lease().await);
        println!(
            "{event}: limit {LIMIT}, admitted {admitted} ({} by leases), over-admissions {}, calls without a decision {} of {}, recovery {} ms",
            by_lease.iter().sum::<u64>(),
            admitted.saturating_sub(LIMIT),
            self.load.undecided.load(Ordering::SeqCst),
            self.load.calls.load(Ordering::SeqCst),
            recovery.as_millis(),
        );
        assert!(admitted >= LIMIT / 2, "{event}: only {admitted} were admitted");
        admitted
    }

    /// The epoch of a store that has lost writes: it begins after `fault`, and no decision is made for one lease length.
    fn saw_learning(&self, store: &RedisServer, fault: u64) {
        let layout: String =
            redis::cmd("GET").arg("tidegate:layout").query(&mut store.connection()).expect("the layout");
        let epoch = layout.split(' ').nth(3).and_then(|micros| micros.parse::<u64>().ok());
        let epoch = epoch.unwrap_or_else(|| panic!("no epoch in {layout:?}"));
        assert!(epoch >= fault, "the epoch began {} us before the fault", fault.saturating_sub(epoch));
        let probes = self.load.probes.lock().expect("no caller panics");
        let learnt = epoch + LEASE.as_micros() as u64;
        let early =
            probes.iter().filter(|probe| probe.is_decided && probe.began > epoch && probe.ended < learnt);
        assert_eq!(early.count(), 0, "the store decided while it learnt which credits are outstanding");
        let during = probes.iter().filter(|probe| probe.began > epoch && probe.ended < learnt);
        assert!(during.count() > 0, "no call was made while the store learnt");
    }
}

/// Calls for the counter, until the limit is used up.
async fn spend(mut client: Client, load: Arc<Load>) {
    let mut denied = 0;
    while denied < DENIALS || !load.is_ending.load(Ordering::SeqCst) {
        load.calls.fetch_add(1, Ordering::SeqCst);
        let response = client.hit("d", &[("k", "v")]).await.expect("a decision");
        if response.overall_code() == Code::Ok {
            load.admitted.fetch_add(1, Ordering::SeqCst);
            denied = 0;
            tokio::time::sleep(PACE).await;
            continue;
        }
        if response.statuses[0].duration_until_reset.is_none() {
            load.undecided.fetch_add(1, Ordering::SeqCst);
        }
        denied += 1;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Calls for a counter that is never leased.
async fn probe(server: usize, mut client: Client, load: Arc<Load>) {
    while !load.is_ending.load(Ordering::SeqCst) {
        let began = micros();
        let response = client.hit("d", &[("probe", "v")]).await.expect("a decision");
        let is_decided = response.overall_code() == Code::Ok;
        let probe = Probe { server, began, ended: micros(), is_decided };
        load.probes.lock().expect("no caller panics").push(probe);
        tokio::time::sleep(PAUSE).await;
    }
}

/// The time of this machine, which is also the store's time.
fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_micros() as u64
}

fn signal(process: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(process).expect("a process")).expect("a process");
    kill_process(pid, signal).expect("it is signalled");
}

fn command(store: &RedisServer, words: &[&str]) {
    let mut command = redis::cmd(words[0]);
    words[1..].iter().for_each(|word| _ = command.arg(*word));
    let _: redis::Value = command.query(&mut store.connection()).expect("the store obeys");
}

/// A primary, its replica, and a Sentinel that watches them.
struct Group {
    replica: RedisServer,
    _sentinel: Sentinel,
    url: String,
}

fn group() -> (RedisServer, Group) {
    let port = free_port();
    let (primary, replica, sentinel) = watched_pair(port);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    (primary, Group { replica, _sentinel: sentinel, url })
}

/// The primary is suspended, so that it accepts no more writes, and killed once the replica has received all of them.
async fn leases_over_a_failover_that_loses_no_write() {
    let (primary, group) = group();
    let mut world = World::start(primary, &group.url).await;
    // From here on no client can write, while credits are spent; replication continues.
    command(world.store(), &["CLIENT", "PAUSE", "60000", "WRITE"]);
    let offset = |store: &RedisServer| {
        let info: String =
            redis::cmd("INFO").arg("replication").query(&mut store.connection()).expect("a text");
        let field =
            |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        field("slave_repl_offset:").or_else(|| field("master_repl_offset:")).expect("an offset")
    };
    let sent = offset(world.store());
    eventually("the replica follows", async || offset(&group.replica) >= sent).await;
    let fault = micros();
    drop(world.store.take());
    let recovery = world.recovery(fault).await;
    world.saw_learning(&group.replica, fault);
    let admitted = world.finish("primary killed, Sentinel promotes, no write lost", recovery).await;
    assert!(admitted <= LIMIT, "{admitted} were admitted");
}

/// The replica is cut off, so that it misses some writes, before the primary is killed.
async fn leases_over_a_failover_that_loses_writes() {
    let (primary, group) = group();
    let mut world = World::start(primary, &group.url).await;
    // When the replica connects again, it has a user and a password that no primary has, so it stays cut off.
    command(&group.replica, &["CONFIG", "SET", "masteruser", "nobody"]);
    command(&group.replica, &["CONFIG", "SET", "masterauth", "nothing"]);
    command(world.store(), &["CLIENT", "KILL", "TYPE", "replica"]);
    tokio::time::sleep(2 * LEASE).await;
    let fault = micros();
    drop(world.store.take());
    // The replica misses the hits that it does not count: hits that the store admitted, or servers reported, after it was cut off. Servers
    // declare the hits that they have spent since their last report, and no server is gone with its credits. Calls in flight may have been
    // decided before, and are counted after.
    let lost = (world.admitted() + 2 * CALLERS).saturating_sub(hits_counted(&group.replica));
    let recovery = world.recovery(fault).await;
    world.saw_learning(&group.replica, fault);
    let event = format!("primary killed, Sentinel promotes, writes of {lost} admissions lost");
    let admitted = world.finish(&event, recovery).await;
    assert!(admitted <= LIMIT + lost, "{admitted} were admitted, and {lost} hits were lost");
}

/// Hits of the leased counter that a store counts as used, without the outstanding credits.
fn hits_counted(store: &RedisServer) -> u32 {
    let mut connection = store.connection();
    let pattern = format!("tidegate:{}", "?".repeat(32));
    let names: Vec<String> = redis::cmd("KEYS").arg(pattern).query(&mut connection).expect("keys");
    let values = names.iter().map(|name| -> Vec<u8> {
        redis::cmd("GET").arg(name).query(&mut connection).expect("the value of a counter")
    });
    // A zero byte, the number of leases, the hits of exact decisions, and the leases of 56 bytes; see docs/shared.md.
    let leased = values.filter_map(|value| {
        let leases = value.strip_prefix(&[0])?;
        let (count, rest) = leases.split_first_chunk()?;
        Some(rest.get(8 + 56 * usize::from(u16::from_le_bytes(*count))..)?.to_vec())
    });
    let [state] = &leased.collect::<Vec<_>>()[..] else {
        let info: String =
            redis::cmd("INFO").arg("replication").query(&mut store.connection()).expect("a text");
        panic!("not one counter with leases among {names:?}: {info}");
    };
    let now = Timestamp::from_nanos(micros() * 1_000);
    let (algorithm, state) = read_value(state, now).expect("a state").expect("hits");
    u32::try_from(algorithm.used(&state, now)).expect("at most the limit")
}

async fn leases_while_the_store_is_killed_and_restarted_empty() {
    let port = free_port();
    let mut world = World::start_on(port).await;
    drop(world.store.take());
    tokio::time::sleep(SUSPENDED).await;
    let fault = micros();
    world.store = Some(RedisServer::start_on(port, &[]));
    let recovery = world.recovery(fault).await;
    // All earlier admissions are lost.
    let before = world.admitted();
    world.saw_learning(world.store(), fault);
    let admitted = world.finish("store killed, restarted empty", recovery).await;
    assert!(admitted <= LIMIT + before, "{admitted} were admitted, {before} of them before the restart");
}

async fn leases_while_the_store_loses_its_keys() {
    let world = World::start_on_one_store().await;
    let (before, fault) = (world.admitted(), micros());
    command(world.store(), &["FLUSHALL"]);
    let before = before.max(world.admitted()) + 2 * CALLERS;
    let recovery = world.recovery(fault + 1).await;
    world.saw_learning(world.store(), fault);
    let admitted = world.finish("FLUSHALL", recovery).await;
    // Outstanding credits are declared: none of them is admitted beyond the limit.
    assert!(admitted <= LIMIT + before, "{admitted} were admitted, {before} of them before");
}

async fn leases_while_the_store_is_suspended_for_longer_than_a_lease() {
    let world = World::start_on_one_store().await;
    signal(world.store().pid(), Signal::STOP);
    tokio::time::sleep(SUSPENDED).await;
    let fault = micros();
    signal(world.store().pid(), Signal::CONT);
    let recovery = world.recovery(fault).await;
    let admitted = world.finish("store suspended for longer than a lease", recovery).await;
    assert!(admitted <= LIMIT, "{admitted} were admitted");
}

async fn leases_while_a_server_is_suspended_for_longer_than_a_lease() {
    let world = World::start_on_one_store().await;
    world.servers[1].signal(Signal::STOP);
    tokio::time::sleep(SUSPENDED).await;
    let fault = micros();
    world.servers[1].signal(Signal::CONT);
    let recovery = world.recovery(fault).await;
    let admitted = world.finish("server suspended for longer than a lease", recovery).await;
    assert!(admitted <= LIMIT, "{admitted} were admitted");
}
