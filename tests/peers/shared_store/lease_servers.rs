//! Three servers that lease the counters of one store: together they never admit more than the limit, and hardly less.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::RedisServer;
use crate::{
    support::{Client, Server, descriptor, eventually, http1, rules_file},
    tests_with,
};
use rustix::process::Signal;
use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tempfile::NamedTempFile;
use tidegate::api::pb::service::rate_limit_response::Code;
use tokio::task::JoinSet;

tests_with! {
    REDIS:
    three_servers_admit_the_limit_of_every_algorithm,
    a_killed_server_takes_its_credits_with_it,
    a_suspended_server_spends_no_expired_credits,
    a_store_that_loses_its_keys_learns_which_credits_are_outstanding,
    a_kept_denial_is_dropped_within_a_second_of_a_give_back,
    leases_on_a_short_window_admit_what_one_limiter_would,
}

const LIMIT: u32 = 600;

/// Ten years: longer than any test, also for windows on the clock, and practically no refill for buckets.
const WINDOW: &str = "per: 3650d, requests_per_unit: 600";

const ALGORITHMS: [(&str, &str); 9] = [
    ("sliding", ""),
    ("parts", "precision: 7, "),
    ("log", "algorithm: sliding_log, "),
    ("clock", "algorithm: fixed_window, "),
    ("first", "algorithm: fixed_window, aligned: first_hit, "),
    ("calendar", "algorithm: fixed_window, calendar: true, unit: year, requests_per_unit: 600"),
    ("greedy", "algorithm: token_bucket, "),
    ("intervals", "algorithm: token_bucket, refill: intervals, "),
    ("leaky", "algorithm: leaky_bucket, "),
];

/// Denials in a row after which a caller gives up, and its pause after each: together they last longer than a lease.
const DENIALS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(5);

struct World {
    store: RedisServer,
    servers: Vec<Server>,
    _rules: NamedTempFile,
}

impl World {
    fn start() -> Self {
        let mut rules = "domain: d\ndescriptors:\n".to_owned();
        for (key, keys) in ALGORITHMS {
            let window = if keys.contains("calendar") { "" } else { WINDOW };
            rules += &format!("- {{key: {key}, rate_limit: {{{keys}{window}}}}}\n");
        }
        rules +=
            "- {key: second, rate_limit: {unit: second, requests_per_unit: 500, algorithm: sliding_log}}\n";
        let (store, rules) = (RedisServer::start(), rules_file(&rules));
        let url = store.url();
        let args = ["--counters", &url, "--on-store-failure", "deny", "--counters-timeout", "2s"];
        let args = [&args[..], &["--http-listen", "127.0.0.1:0"]].concat();
        let servers = (0..3).map(|_| Server::with_rules(rules.path(), &args)).collect();
        Self { store, servers, _rules: rules }
    }

    /// Requests of each server that were admitted and denied by leases.
    async fn by_lease(&self) -> Vec<(u64, u64)> {
        let mut figures = Vec::new();
        for server in &self.servers {
            let request = http::Request::get("/metrics");
            let response =
                http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), request).await.expect("a page");
            let page = String::from_utf8_lossy(response.body()).into_owned();
            let figure = |result: &str| {
                let name = format!("tidegate_lease_decisions_total{{result=\"{result}\"}} ");
                let line = page.lines().find_map(|line| line.strip_prefix(&name));
                line.and_then(|number| number.parse().ok()).expect("the metric is on the page")
            };
            figures.push((figure("admitted"), figure("denied")));
        }
        figures
    }

    /// Calls of several callers of some servers for a key, until each caller has made `calls` calls or no more are admitted. Returns the
    /// admissions of each server.
    async fn spend(&self, servers: &[usize], key: &'static str, calls: u32) -> Vec<u32> {
        let mut callers = JoinSet::new();
        for &number in servers {
            for _ in 0..2 {
                let client = self.servers[number].client().await;
                callers.spawn(async move { (number, spend(client, key, calls).await) });
            }
        }
        let mut admitted = vec![0; self.servers.len()];
        while let Some(spent) = callers.join_next().await {
            let (number, hits) = spent.expect("the caller ends");
            admitted[number] += hits;
        }
        admitted
    }
}

/// Admissions of one caller. A server that is gone admits nothing.
async fn spend(mut client: Client, key: &'static str, calls: u32) -> u32 {
    let (mut admitted, mut denied) = (0, 0);
    for _ in 0..calls {
        match client.hit("d", &[(key, "v")]).await.map(|response| response.overall_code()) {
            Ok(Code::Ok) => (admitted, denied) = (admitted + 1, 0),
            Ok(_) if denied < DENIALS => {
                denied += 1;
                tokio::time::sleep(PAUSE).await;
            }
            _ => break,
        }
    }
    admitted
}

async fn three_servers_admit_the_limit_of_every_algorithm() {
    let world = World::start();
    for (key, _) in ALGORITHMS {
        let before = world.by_lease().await;
        let admitted = world.spend(&[0, 1, 2], key, u32::MAX).await;
        let total: u32 = admitted.iter().sum();
        let after = world.by_lease().await;
        let by_lease: Vec<_> = after.iter().zip(&before).map(|(after, before)| after.0 - before.0).collect();
        println!(
            "{key}: limit {LIMIT}, admitted {total}, by each server {admitted:?}, of these by leases {by_lease:?}"
        );
        assert!(total <= LIMIT, "{key}: {total} were admitted");
        assert!(total >= LIMIT * usefulness_min() / 100, "{key}: only {total} were admitted");
        assert!(admitted.iter().all(|&hits| hits > 0), "{key}: {admitted:?}");
        assert!(by_lease.iter().sum::<u64>() > 0, "{key}: nothing was leased");
    }
}

async fn a_killed_server_takes_its_credits_with_it() {
    let mut world = World::start();
    let first = world.spend(&[0, 1, 2], "log", 60).await;
    world.servers[2].signal(Signal::KILL);
    world.servers[2].wait();
    let rest = world.spend(&[0, 1], "log", u32::MAX).await;
    let total: u32 = first.iter().chain(&rest).sum();
    println!("server killed: limit {LIMIT}, admitted {total}");
    assert!(total <= LIMIT, "{first:?}, {rest:?}");
    assert!(total >= LIMIT / 2, "{first:?}, {rest:?}");
}

async fn a_suspended_server_spends_no_expired_credits() {
    let world = World::start();
    let first = world.spend(&[0, 1, 2], "sliding", 50).await;
    world.servers[2].signal(Signal::STOP);
    let others = world.spend(&[0, 1], "sliding", u32::MAX).await;
    world.servers[2].signal(Signal::CONT);
    let last = world.spend(&[2], "sliding", u32::MAX).await;
    let total: u32 = first.iter().chain(&others).chain(&last).sum();
    println!("server suspended: limit {LIMIT}, admitted {total}, {last:?} of them by the server that was");
    assert!(total <= LIMIT, "{first:?}, {others:?}, {last:?}");
}

async fn a_store_that_loses_its_keys_learns_which_credits_are_outstanding() {
    let world = World::start();
    let before: u32 = world.spend(&[0, 1, 2], "clock", 50).await.iter().sum();
    let _: () = redis::cmd("FLUSHALL").query(&mut world.store.connection()).expect("the store obeys");
    // The counters are lost, but outstanding credits are not.
    let after: u32 = world.spend(&[0, 1, 2], "clock", u32::MAX).await.iter().sum();
    println!("FLUSHALL: limit {LIMIT}, admitted {before} before, {after} after");
    assert!(after <= LIMIT, "{after} were admitted");
    assert!(after >= LIMIT * usefulness_min() / 100, "only {after} were admitted");
}

async fn a_kept_denial_is_dropped_within_a_second_of_a_give_back() {
    let world = World::start();
    world.spend(&[0, 1], "leaky", u32::MAX).await;
    let denied_by_lease = world.by_lease().await[0].1;
    assert!(denied_by_lease > 0, "no denial was kept");
    let mut clients = [world.servers[0].client().await, world.servers[1].client().await];
    let mut given_back = descriptor(&[("leaky", "v")]);
    given_back.hits_addend = Some(5);
    given_back.is_negative_hits = true;
    clients[1].should_rate_limit("d", vec![given_back]).await.expect("a decision");
    let began = Instant::now();
    while clients[0].hit("d", &[("leaky", "v")]).await.expect("a decision").overall_code() != Code::Ok {
        assert!(began.elapsed() < crate::support::PATIENCE, "the denial is kept");
        tokio::time::sleep(PAUSE).await;
    }
    println!("give-back: admitted elsewhere after {} ms", began.elapsed().as_millis());
}

/// The demand of three servers exceeds the limit, unevenly, and their admissions are compared with those of one exact log for the same
/// calls. `TIDEGATE_LEASE_SECONDS`, on a quiet machine, measures for longer.
async fn leases_on_a_short_window_admit_what_one_limiter_would() {
    const PER_SECOND: usize = 500;
    // On a busy machine too, the demand exceeds the limit.
    const HITS: usize = 3;
    let (world, began, is_over) = (World::start(), Instant::now(), Arc::new(AtomicBool::new(false)));
    let mut callers = JoinSet::new();
    for (number, millis) in [(0, 2), (0, 2), (0, 2), (0, 2), (1, 4), (1, 4), (2, 8), (2, 8)] {
        let (mut client, is_over) = (world.servers[number].client().await, Arc::clone(&is_over));
        callers.spawn(async move {
            let mut ticks = tokio::time::interval(Duration::from_millis(millis));
            let mut calls = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                ticks.tick().await;
                let mut wanted = descriptor(&[("second", "v")]);
                wanted.hits_addend = Some(HITS as u64);
                let response = client.should_rate_limit("d", vec![wanted]).await.expect("a decision");
                calls.push((began.elapsed().as_millis(), response.overall_code() == Code::Ok));
            }
            calls
        });
    }
    tokio::time::sleep(Duration::from_secs(seconds().unwrap_or(4))).await;
    let by_lease = eventually("every server spends credits", async || {
        let by_lease = world.by_lease().await;
        if by_lease.iter().all(|(admitted, _)| *admitted > 0) { Ok(by_lease) } else { Err(by_lease) }
    })
    .await;
    is_over.store(true, Ordering::Relaxed);
    let mut calls = callers.join_all().await.concat();
    let length = began.elapsed();
    calls.sort_unstable();
    let admitted: Vec<_> = calls.iter().filter(|(_, is_admitted)| *is_admitted).map(|&(at, _)| at).collect();
    let mut exact: Vec<u128> = Vec::new();
    for &(at, _) in &calls {
        let in_window = exact.iter().rev().take_while(|&&earlier| earlier + 1_000 > at).count();
        if (in_window + 1) * HITS <= PER_SECOND {
            exact.push(at);
        }
    }
    let within =
        |list: &[u128], from: u128| list.iter().filter(|&&at| (from..from + 2_000).contains(&at)).count();
    // The first credits are granted in the first second.
    let starts = (1_000..=length.as_millis() - 2_000).step_by(100);
    let least = starts.map(|from| within(&admitted, from) * 100 / within(&exact, from).max(1)).min();
    assert!(exact.len() < calls.len(), "{} calls do not exceed the limit", calls.len());
    let least = least.expect("a window");
    println!(
        "{PER_SECOND} per second: {} calls of {HITS} hits in {length:?}, {} admitted, {} by one log; in the worst 2 s {least} %; by leases {:?}",
        calls.len(),
        admitted.len(),
        exact.len(),
        by_lease,
    );
    assert!((admitted.len() * HITS) as f64 <= PER_SECOND as f64 * (length.as_secs_f64() + 1.0));
    assert!(least >= usefulness_min() as usize, "{least} %");
}

/// Length of the measurement on a quiet machine.
fn seconds() -> Option<u64> {
    std::env::var("TIDEGATE_LEASE_SECONDS").ok()?.parse().ok()
}

/// The least part of the limit that is admitted, in percent. On a machine that suspends the servers for longer than a lease, credits expire
/// unspent.
fn usefulness_min() -> u32 {
    if seconds().is_some() { 97 } else { 60 }
}
