//! The commands for operators of a shared store.

use super::{
    RedisServer,
    slot_servers::{release, take},
};
use crate::{
    support::{Server, eventually, http1, rules_file},
    tests_with,
};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    net::Ipv4Addr,
    process::{Command, Output},
    time::Instant,
};

tests_with! {
    REDIS:
    the_status_of_a_store_has_its_counters_by_algorithm,
    damaged_counters_are_found,
    the_end_of_a_request_with_a_damaged_slot_leaves_the_store_available,
    further_hits_leave_the_expiry_of_a_window,
    the_metrics_of_a_shared_store_are_those_documented,
    a_store_that_loses_its_keys_is_given_its_secret_again_though_nothing_is_decided,
    denials_of_an_outage_are_the_outage_s_and_not_those_of_a_limit,
    admissions_of_an_outage_are_shown_as_uncounted,
}

const RULES: &str = "
domain: d
descriptors:
  - {key: window, rate_limit: {unit: day, requests_per_unit: 5}}
  - {key: precise, rate_limit: {unit: day, requests_per_unit: 5, precision: 8}}
  - {key: log, rate_limit: {unit: day, requests_per_unit: 5, algorithm: sliding_log}}
  - {key: fixed, rate_limit: {unit: day, requests_per_unit: 5, algorithm: fixed_window, calendar: true}}
  - {key: tokens, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: refilled, rate_limit: {unit: day, requests_per_unit: 5, algorithm: token_bucket, refill: intervals}}
  - {key: leaky, rate_limit: {unit: day, requests_per_unit: 5, algorithm: leaky_bucket}}
  - {key: flights, rate_limit: {algorithm: concurrency, requests_in_flight: 3}}
";

fn store(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).arg("store").args(args).output().expect("it runs")
}

/// A store with one counter of each kind of state.
async fn used_store() -> (RedisServer, Server, String) {
    let redis = RedisServer::start();
    let url = redis.url();
    let rules = rules_file(RULES);
    let args = ["--counters", &url, "--counters-timeout", "2s", "--http-listen", "127.0.0.1:0"];
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    for key in ["window", "precise", "log", "fixed", "tokens", "refilled", "leaky"] {
        client.hit("d", &[(key, "v")]).await.expect("a decision");
    }
    (redis, server, url)
}

async fn the_status_of_a_store_has_its_counters_by_algorithm() {
    let (_redis, _server, url) = used_store().await;
    let output = store(&["status", &url, "--json"]);
    let status: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(status["layout"], true);
    assert_eq!(status["damaged"], 0);
    let counters = [
        ("sliding_window", 2),
        ("sliding_log", 1),
        ("fixed_window", 1),
        ("token_bucket", 2),
        ("leaky_bucket", 1),
    ];
    for (algorithm, count) in counters {
        assert_eq!(status["counters"][algorithm], count, "{status}");
    }
    let shown = String::from_utf8_lossy(&store(&["status", &url]).stdout).into_owned();
    assert!(shown.contains("sliding_log"), "{shown}");
}

async fn damaged_counters_are_found() {
    let (redis, _server, url) = used_store().await;
    let verify = || store(&["verify", &url]);
    assert!(verify().status.success(), "{:?}", verify());
    let key = format!("tidegate:{}", "0".repeat(32));
    let _: () = redis::cmd("SET").arg(key).arg("no state").query(&mut redis.connection()).expect("it is set");
    let output = verify();
    assert_eq!(output.status.code(), Some(1));
    let shown = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(shown.starts_with("7 counters are good, 1 are not, 1 never expire"), "{shown}");
}

/// The script failed, and the server stopped calling the store: 64 times in a minute, because it repeated the end.
async fn the_end_of_a_request_with_a_damaged_slot_leaves_the_store_available() {
    let (redis, server, _) = used_store().await;
    let (mut client, mut store) = (server.client().await, redis.connection());
    let ticket = take(&mut client, &["flights"]).await.expect("a slot");
    let counters = format!("tidegate:{}", "?".repeat(32));
    let names: Vec<String> = redis::cmd("KEYS").arg(counters).query(&mut store).expect("keys");
    let mut signature = |name: &String| -> Vec<u8> {
        redis::cmd("GETRANGE").arg(name).arg(0).arg(1).query(&mut store).expect("bytes")
    };
    let slots = names.iter().find(|name| signature(name) == b"\x01N").expect("a counter of slots");
    let () = redis::cmd("SET").arg(slots).arg("\x01N").query(&mut redis.connection()).expect("it is set");
    release(&mut client, &ticket).await;
    let logged = server.logged("a counter in the shared store is damaged").join("\n");
    assert!(logged.contains(slots) && logged.contains("user_script"), "{logged}");
    assert_eq!(server.metric("tidegate_shared_store_lost_releases_total").await, 1);
    let response = client.hit("d", &[("window", "v")]).await.expect("a decision");
    assert!(response.statuses[0].duration_until_reset.is_some(), "the store decides");
    assert!(!server.log().join("\n").contains("shared store unavailable"));
}

/// The script keeps the expiry of a key while its window is the same, and sets a new expiry for a bucket.
async fn further_hits_leave_the_expiry_of_a_window() {
    let redis = RedisServer::start();
    let url = redis.url();
    let limits = ["", ", algorithm: fixed_window, aligned: first_hit", ", algorithm: token_bucket"];
    let limits = limits.map(|keys| format!("rate_limit: {{unit: year, requests_per_unit: 9{keys}}}"));
    for (limit, moves) in limits.iter().zip([false, false, true]) {
        let rules = rules_file(&format!("domain: d\ndescriptors: [{{key: k, lease: off, {limit}}}]"));
        let args = ["--counters", &url, "--counters-timeout", "2s"];
        let server = Server::with_rules(rules.path(), &args);
        let mut client = server.client().await;
        let mut expiries = Vec::new();
        for _ in 0..3 {
            client.hit("d", &[("k", "v")]).await.expect("a decision");
            let mut connection = redis.connection();
            let names: Vec<String> = redis::cmd("KEYS")
                .arg(format!("tidegate:{}", "?".repeat(32)))
                .query(&mut connection)
                .expect("keys");
            let [name] = &names[..] else { panic!("one counter: {names:?}") };
            let expiry: i64 = redis::cmd("PEXPIRETIME").arg(name).query(&mut connection).expect("a number");
            assert!(expiry > 0, "the key expires");
            expiries.push(expiry);
        }
        println!("{limit}: expiries {expiries:?}");
        assert_eq!(expiries[2] != expiries[0], moves, "{limit}");
        let _: () = redis::cmd("FLUSHALL").query(&mut redis.connection()).expect("the store obeys");
    }
}

async fn the_metrics_of_a_shared_store_are_those_documented() {
    let (_redis, server, _) = used_store().await;
    let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get("/metrics"));
    let page = page.await.expect("a response");
    let page = String::from_utf8_lossy(page.body()).into_owned();
    let types = page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let found: BTreeSet<&str> =
        types.map(|(name, _)| name).filter(|name| name.starts_with("tidegate_shared_")).collect();
    let rows = include_str!("../../../docs/metrics.md").lines().filter_map(|line| line.strip_prefix("| `"));
    let documented: BTreeSet<&str> = rows
        .filter_map(|row| row.split(['`', '{']).next())
        .filter(|name| name.starts_with("tidegate_shared_"))
        .collect();
    assert_eq!(found, documented);
    assert!(page.contains("tidegate_shared_decisions_total{result=\"decided\"} 7"), "{page}");
    // The panels and alerts about a store: tests/peers/prometheus.rs tests the rest.
    let deployed = [
        include_str!("../../../deploy/grafana/tidegate.json"),
        include_str!("../../../deploy/prometheus/alerts.yaml"),
    ];
    let is_of_name = |character: char| character.is_ascii_lowercase() || character == '_';
    for (at, text) in
        deployed.iter().flat_map(|text| text.match_indices("tidegate_").map(move |(at, _)| (at, text)))
    {
        let name: String = text[at..].chars().take_while(|character| is_of_name(*character)).collect();
        if name.starts_with("tidegate_shared_") || name.starts_with("tidegate_lease_") {
            assert!(page.contains(&name), "the server has no {name}");
        }
    }
}

/// A server that starts after the loss used to write a secret of its own, so that earlier servers found another layout.
#[expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]
async fn a_store_that_loses_its_keys_is_given_its_secret_again_though_nothing_is_decided() {
    let (redis, _server, _) = used_store().await;
    let secret = || -> Option<String> {
        let layout: Option<String> =
            redis::cmd("GET").arg("tidegate:layout").query(&mut redis.connection()).expect("a text");
        Some(layout?.split(' ').nth(2)?.to_owned())
    };
    let before = secret().expect("a secret");
    let _: () = redis::cmd("FLUSHALL").query(&mut redis.connection()).expect("the store obeys");
    let began = Instant::now();
    let after = eventually("a secret", async || secret()).await;
    println!("FLUSHALL without a decision: the secret is there after {} ms", began.elapsed().as_millis());
    assert_eq!(after, before);
}

/// `explain` used to show "OVER_LIMIT … 0 used, 0 remaining", and `top` and `tail` named the rule.
async fn denials_of_an_outage_are_the_outage_s_and_not_those_of_a_limit() {
    decisions_of_an_outage("deny", 2, "OVER_LIMIT, because the shared store does not decide: no limit").await;
}

/// `tail` used to show "OK by window, 0 remaining", and the decision log had `"remaining":0` without a cause.
async fn admissions_of_an_outage_are_shown_as_uncounted() {
    decisions_of_an_outage("allow", 1, "OK, because the shared store does not decide: not counted").await;
}

async fn decisions_of_an_outage(policy: &str, code: i32, reason: &str) {
    let redis = RedisServer::start();
    let url = redis.url();
    let (rules, log) = (rules_file(RULES), tempfile::NamedTempFile::new().expect("a file"));
    let log_path = log.path().to_str().expect("UTF-8");
    let folder = tempfile::tempdir().expect("a folder");
    // On a socket, users of this machine have roles.
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let args = [
        "--counters",
        &url,
        "--on-store-failure",
        policy,
        "--control",
        "loopback",
        "--decision-log",
        log_path,
    ];
    let server = Server::with_rules(rules.path(), &[&args[..], &["--listen", &socket]].concat());
    let ctl = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let output = command.arg("ctl").args(args).args(["--addr", &socket]).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    let mut client = server.client().await;
    client.hit("d", &[("window", "v")]).await.expect("a decision");
    drop(redis);
    eventually("the store is away", async || {
        let response = client.hit("d", &[("window", "v")]).await.expect("a decision");
        let shown = ctl(&["explain", "d", "window=v"]);
        let is_away = response.overall_code == code && shown.contains("the counters are not known");
        if is_away { Ok(()) } else { Err(shown) }
    })
    .await;
    // The counters of this server alone used to be shown as all: "now 0".
    let rules = ctl(&["rules"]);
    assert!(rules.contains("3 in flight, held for at most 1m; in the shared store"), "{rules}");
    let explained = ctl(&["explain", "d", "window=v"]);
    for text in [reason, "5 per 1day (sliding_window), used and remaining not known"] {
        assert!(explained.contains(text), "{text}: {explained}");
    }
    assert!(!explained.contains("0 used"), "{explained}");
    eventually("the outage in `top`", async || {
        match ctl(if code == 1 { &["top", "--admitted"] } else { &["top"] }) {
            shown if shown.contains("(shared store away)") => Ok(()),
            shown => Err(shown),
        }
    })
    .await;
    eventually("the outage in the decision log", async || match std::fs::read_to_string(log.path()) {
        Ok(lines) if lines.contains(r#""cause":"store_away""#) => Ok(()),
        lines => Err(format!("{lines:?}")),
    })
    .await;
    let call = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["call", "--addr", server.address(), "d", "window=v"])
        .output()
        .expect("it runs");
    let call = String::from_utf8_lossy(&call.stdout).into_owned();
    assert!(call.contains("unknown: the shared store is away"), "{call}");
}
