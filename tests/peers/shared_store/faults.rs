//! Two servers and their store, which fails: admissions beyond the limit, calls without a decision of the store, and the time until the
//! store decides again. Each test prints a row of a table.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisServer,
    process::{free_port, watched_pair},
    proxy::Proxy,
};
use crate::{
    support::{Client, Server, eventually, http1, rules_file},
    tests_with,
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! {
    REDIS:
    a_killed_store_is_replaced_by_an_empty_one,
    a_suspended_store_resumes,
    a_full_store_refuses_to_write,
    a_store_becomes_a_read_only_replica,
    a_store_forgets_its_scripts,
    a_store_loses_its_keys,
    a_store_is_slow_by_5_ms,
    a_store_is_slow_by_50_ms,
    a_store_is_slow_by_500_ms,
    connections_are_cut_within_responses,
    while_the_store_is_gone_each_server_admits_its_share,
    while_the_store_is_gone_requests_are_allowed_if_configured_so,
    sentinel_promotes_the_replica_of_a_killed_store,
    a_store_that_evicts_counters_is_refused,
    a_store_with_another_layout_is_refused,
}

/// The limit, in a window longer than any test.
pub(super) const LIMIT: u32 = 150;

/// Calls before, during and after the fault. The calls after it exceed the limit.
const CALLS: [u32; 3] = [50, 50, 250];

/// Time limit of a decision of the store that a loaded machine keeps within.
pub(super) const TIMEOUT: &str = "1s";

/// Two servers that share a store behind a proxy.
pub(super) struct World {
    pub(super) store: Option<RedisServer>,
    pub(super) port: u16,
    pub(super) proxy: Proxy,
    pub(super) servers: Vec<Server>,
    pub(super) clients: Vec<Client>,
    pub(super) _rules: NamedTempFile,
}

/// Results of calls.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Results {
    pub(super) admitted: u32,
    pub(super) denied: u32,
    /// Calls denied without a decision of the store.
    pub(super) undecided: u32,
    slowest: Duration,
}

impl World {
    pub(super) async fn start(policy: &str, timeout: &str) -> Self {
        let port = free_port();
        let store = RedisServer::start_on(port, &[]);
        let proxy = Proxy::start(port).await;
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        Self::start_with(store, port, proxy, &url, policy, timeout).await
    }

    async fn start_with(
        store: RedisServer,
        port: u16,
        proxy: Proxy,
        url: &str,
        policy: &str,
        timeout: &str,
    ) -> Self {
        let rules = rules_file(&format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: day, requests_per_unit: {LIMIT}}}}}]"
        ));
        let policy = ["--lease", "off", "--on-store-failure", policy, "--counters-timeout", timeout];
        let args = [&["--counters", url, "--http-listen", "127.0.0.1:0"][..], &policy].concat();
        let servers = vec![Server::with_rules(rules.path(), &args), Server::with_rules(rules.path(), &args)];
        let clients = vec![servers[0].client().await, servers[1].client().await];
        Self { store: Some(store), port, proxy, servers, clients, _rules: rules }
    }

    pub(super) fn store(&self) -> &RedisServer {
        self.store.as_ref().expect("the store runs")
    }

    /// One value of a reply, for commands that change the store.
    pub(super) fn command(&self, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        let _: redis::Value = command.query(&mut self.store().connection()).expect("the store obeys");
    }

    /// Sends calls to both servers in turn.
    pub(super) async fn call(&mut self, calls: u32) -> Results {
        let mut results = Results::default();
        for index in 0..calls as usize {
            let began = Instant::now();
            let response = self.clients[index % 2].hit("d", &[("k", "v")]).await.expect("a decision");
            results.slowest = results.slowest.max(began.elapsed());
            if response.overall_code() == Code::Ok {
                results.admitted += 1;
            } else if response.statuses[0].duration_until_reset.is_none() {
                results.undecided += 1;
            } else {
                results.denied += 1;
            }
        }
        results
    }

    /// Time until both servers reach the store.
    pub(super) async fn recovery(&self) -> Duration {
        let began = Instant::now();
        for server in &self.servers {
            eventually("the store is used again", async || self.is_available(server).await).await;
        }
        began.elapsed()
    }

    pub(super) async fn is_available(&self, server: &Server) -> bool {
        self.ready(server).await.contains("shared store: available")
    }

    /// Whether each server counts two servers.
    pub(super) async fn count_each_other(&self) -> bool {
        let [first, second] = &self.servers[..] else { return false };
        self.ready(first).await.contains("2 servers") && self.ready(second).await.contains("2 servers")
    }

    async fn ready(&self, server: &Server) -> String {
        let ready = http::Request::get("/readyz");
        let response =
            http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), ready).await.expect("a response");
        assert_eq!(response.status(), 200, "a server without its store serves");
        String::from_utf8_lossy(response.body()).into_owned()
    }
}

/// Calls before, during and after a fault; prints the row, and returns the results.
async fn play(
    name: &str,
    timeout: &str,
    fault: impl AsyncFnOnce(&mut World),
    heal: impl AsyncFnOnce(&mut World),
) -> [Results; 3] {
    play_in(World::start("deny", timeout).await, name, timeout, fault, heal).await
}

/// The same in a given world.
async fn play_in(
    mut world: World,
    name: &str,
    timeout: &str,
    fault: impl AsyncFnOnce(&mut World),
    heal: impl AsyncFnOnce(&mut World),
) -> [Results; 3] {
    let before = world.call(CALLS[0]).await;
    fault(&mut world).await;
    let during = world.call(CALLS[1]).await;
    heal(&mut world).await;
    let recovery = world.recovery().await;
    let after = world.call(CALLS[2]).await;
    let admitted = before.admitted + during.admitted + after.admitted;
    println!(
        "{name} (time limit {timeout}): limit {LIMIT}, admitted {admitted} ({} during), over-admissions {}, calls without the store {} of {} during \
         and {} of {} after, slowest call {} ms, recovery {} ms",
        during.admitted,
        admitted.saturating_sub(LIMIT),
        during.undecided,
        CALLS[1],
        after.undecided,
        CALLS[2],
        during.slowest.as_millis(),
        recovery.as_millis(),
    );
    for server in &world.servers {
        let log = server.log().join("\n");
        let (down, up) = ("shared store unavailable", "shared store available");
        assert_eq!(
            log.matches(down).count(),
            log.matches(up).count(),
            "{name}: one line for each change\n{log}"
        );
    }
    [before, during, after]
}

/// Like [`play`]: never more calls than the limit are admitted, although some are charged in vain.
async fn never_exceeds(
    name: &str,
    timeout: &str,
    fault: impl AsyncFnOnce(&mut World),
    heal: impl AsyncFnOnce(&mut World),
) -> [Results; 3] {
    let results = play(name, timeout, fault, heal).await;
    let admitted: u32 = results.iter().map(|phase| phase.admitted).sum();
    assert!(admitted <= LIMIT, "{name}: {admitted} were admitted");
    results
}

async fn a_killed_store_is_replaced_by_an_empty_one() {
    let kill = async |world: &mut World| drop(world.store.take());
    let restart = async |world: &mut World| world.store = Some(RedisServer::start_on(world.port, &[]));
    let [before, _, after] = play("store killed, restarted empty", TIMEOUT, kill, restart).await;
    // The store has forgotten the earlier admissions: as many calls, and no more, are admitted again.
    assert!(before.admitted + after.admitted <= LIMIT + before.admitted, "{after:?}");
}

async fn a_suspended_store_resumes() {
    let signal = |world: &World, signal| {
        let pid = Pid::from_raw(i32::try_from(world.store().pid()).expect("a process")).expect("a process");
        kill_process(pid, signal).expect("it is signalled");
    };
    let suspend = async |world: &mut World| signal(world, Signal::STOP);
    let resume = async |world: &mut World| signal(world, Signal::CONT);
    let [_, during, _] = never_exceeds("store suspended (SIGSTOP)", "60ms", suspend, resume).await;
    assert_eq!(during.undecided, CALLS[1]);
}

async fn a_full_store_refuses_to_write() {
    let fill = async |world: &mut World| {
        world.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
        world.command(&["CONFIG", "SET", "maxmemory", "1"]);
    };
    let free = async |world: &mut World| world.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let [_, during, _] = never_exceeds("store out of memory (noeviction)", TIMEOUT, fill, free).await;
    assert_eq!(during.undecided, CALLS[1]);
}

async fn a_store_becomes_a_read_only_replica() {
    let nowhere = free_port().to_string();
    let demote = async |world: &mut World| world.command(&["REPLICAOF", "127.0.0.1", &nowhere]);
    let promote = async |world: &mut World| world.command(&["REPLICAOF", "NO", "ONE"]);
    let [_, during, _] = never_exceeds("store becomes a replica", TIMEOUT, demote, promote).await;
    assert_eq!(during.undecided, CALLS[1]);
}

async fn a_store_forgets_its_scripts() {
    let flush = async |world: &mut World| world.command(&["SCRIPT", "FLUSH"]);
    let [before, during, after] = never_exceeds("SCRIPT FLUSH", TIMEOUT, flush, async |_| {}).await;
    assert_eq!(
        (during.undecided, after.undecided, during.admitted + after.admitted),
        (0, 0, LIMIT - before.admitted)
    );
}

async fn a_store_loses_its_keys() {
    let flush = async |world: &mut World| world.command(&["FLUSHALL"]);
    let [before, during, after] = play("FLUSHALL", TIMEOUT, flush, async |_| {}).await;
    assert_eq!(during.admitted + after.admitted, LIMIT, "before: {before:?}");
}

async fn slow(name: &str, timeout: &str, delay: u64) -> [Results; 3] {
    let delay = Duration::from_millis(delay);
    let slow_down = async |world: &mut World| world.proxy.delay(delay);
    never_exceeds(name, timeout, slow_down, async |world| world.proxy.delay(Duration::ZERO)).await
}

async fn a_store_is_slow_by_5_ms() {
    slow("store slow by 5 ms", TIMEOUT, 5).await;
}

async fn a_store_is_slow_by_50_ms() {
    let [_, during, _] = slow("store slow by 50 ms", "30ms", 50).await;
    assert_eq!(during.undecided, CALLS[1], "50 ms are beyond the time limit");
}

async fn a_store_is_slow_by_500_ms() {
    let [_, during, _] = slow("store slow by 500 ms", "100ms", 500).await;
    assert_eq!(during.undecided, CALLS[1]);
}

async fn connections_are_cut_within_responses() {
    let cut = async |world: &mut World| world.proxy.cut(true);
    let [_, during, _] =
        never_exceeds("connections cut within responses", TIMEOUT, cut, async |world| world.proxy.cut(false))
            .await;
    assert_eq!(during.undecided, CALLS[1]);
}

async fn while_the_store_is_gone_each_server_admits_its_share() {
    let mut world = World::start("local", TIMEOUT).await;
    eventually("the servers count each other", async || world.count_each_other().await).await;
    drop(world.store.take());
    let results = world.call(2 * LIMIT).await;
    println!(
        "store killed (local): limit {LIMIT}, admitted by two servers without the store {}",
        results.admitted
    );
    assert_eq!(results.admitted, LIMIT, "half of it by each of the two");
}

async fn while_the_store_is_gone_requests_are_allowed_if_configured_so() {
    let mut world = World::start("allow", TIMEOUT).await;
    drop(world.store.take());
    let results = world.call(LIMIT + 50).await;
    assert_eq!(results.admitted, LIMIT + 50);
}

async fn sentinel_promotes_the_replica_of_a_killed_store() {
    let port = free_port();
    let (primary, _replica, sentinel) = watched_pair(port);
    let url = format!("redis+sentinel://127.0.0.1:{}/main", sentinel.port());
    let proxy = Proxy::start(port).await;
    let world = World::start_with(primary, port, proxy, &url, "deny", TIMEOUT).await;
    let kill = async |world: &mut World| {
        // Writes that the replica has not received are lost: here it has received all. WAIT waits for the writes of its own connection, and
        // for all writes before them.
        let mut connection = world.store().connection();
        let _: () = redis::cmd("SET").arg("last").arg("write").query(&mut connection).expect("it is written");
        let received: u32 = redis::cmd("WAIT").arg(1).arg(10_000).query(&mut connection).expect("a number");
        assert_eq!(received, 1, "the replica follows");
        drop(world.store.take());
    };
    let results = play_in(world, "primary killed, Sentinel promotes", TIMEOUT, kill, async |_| {}).await;
    let admitted: u32 = results.iter().map(|phase| phase.admitted).sum();
    assert_eq!(admitted, LIMIT, "{results:?}");
}

/// The error of a server that does not start.
fn refused(store: &RedisServer, args: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--counters", &store.url()])
        .args(args)
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

async fn a_store_that_evicts_counters_is_refused() {
    let store = RedisServer::start_with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = refused(&store, &[]);
    assert!(error.contains("allkeys-lru") && error.contains("--counters-allow-eviction"), "{error}");
    let url = store.url();
    drop(Server::start(&["--counters", &url, "--counters-allow-eviction"]));
}

async fn a_store_with_another_layout_is_refused() {
    let store = RedisServer::start();
    let _: () = redis::cmd("SET")
        .arg("tidegate:layout")
        .arg("tidegate 9 ff")
        .query(&mut store.connection())
        .expect("set");
    let error = refused(&store, &[]);
    assert!(
        error.contains("another layout (tidegate 9 ff)") && error.contains("--counters-prefix"),
        "{error}"
    );
    let url = store.url();
    drop(Server::start(&["--counters", &url, "--counters-prefix", "other:"]));
}
