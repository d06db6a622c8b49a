//! `tidegate replay`: the log of a real server, replayed under the rules of that server, reproduces every decision; under other rules
//! it does not.

use crate::support::{Client, Server, descriptor, rules_file};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    service::RateLimitRequest,
};
use tokio::task::JoinSet;

/// Each algorithm, and each option that decides what is charged. Windows are short, so that many of them pass.
pub const RULES: &str = "
domain: every
descriptors:
  - { key: sliding, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: sliding_window } }
  - { key: sub_windows, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: sliding_window, precision: 8 } }
  - { key: log, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: sliding_log } }
  - { key: fixed, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: fixed_window } }
  - { key: first_hit, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: fixed_window, aligned: first_hit } }
  - { key: calendar, rate_limit: { unit: day, requests_per_unit: 9, algorithm: fixed_window, calendar: true, time_zone: Europe/Berlin } }
  - { key: greedy, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: token_bucket, size: 3 } }
  - { key: intervals, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: token_bucket, refill: intervals } }
  - { key: leaky, rate_limit: { per: 200ms, requests_per_unit: 5, algorithm: leaky_bucket, burst: 2 } }
  - { key: always, rate_limit: { per: 200ms, requests_per_unit: 5, charge: always } }
  - { key: shadow, shadow_mode: true, rate_limit: { per: 200ms, requests_per_unit: 2 } }
  - { key: quota, quota_mode: true, rate_limit: { per: 200ms, requests_per_unit: 2 } }
  - key: several
    rate_limits:
      - { name: short, per: 50ms, requests_per_unit: 2 }
      - { name: long, per: 500ms, requests_per_unit: 6, algorithm: sliding_log }
  - { key: scheduled, rate_limit: { per: 200ms, requests_per_unit: 50, schedule: [{ hours: '00:00-24:00', requests_per_unit: 5 }] } }
  - { key: banned, rate_limit: { per: 200ms, requests_per_unit: 5, ban: { after: 3, within: 200ms, for: 300ms } } }
  - { key: exempt, rate_limit: { unlimited: true } }
";

/// Limits for descriptors that are selected by value, and a limit with a condition on values: useless for a log with hashes instead of
/// values.
const BY_VALUE: &str = "
  - { key: list, values: [c0, c1, c2], rate_limit: { per: 200ms, requests_per_unit: 5 } }
  - { key: any_case, values: [C0, C1, C2], value_ignore_case: true, rate_limit: { per: 200ms, requests_per_unit: 5 } }
  - { key: network, value_network: 10.0.0.0/30, rate_limit: { per: 200ms, requests_per_unit: 5 } }
  - { key: regex, value_regex: '^c[0-3]$', rate_limit: { per: 200ms, requests_per_unit: 5 } }
  - { key: when, rate_limit: { per: 200ms, requests_per_unit: 5, when: 'descriptors[0].when != \"c1\"' } }
";

/// Keys that deny some requests and admit others.
pub const LIMITED: [&str; 14] = [
    "sliding",
    "sub_windows",
    "log",
    "fixed",
    "first_hit",
    "calendar",
    "greedy",
    "intervals",
    "leaky",
    "always",
    "quota",
    "several",
    "scheduled",
    "banned",
];

/// The keys of [`BY_VALUE`].
const MATCHED: [&str; 5] = ["list", "any_case", "network", "regex", "when"];
const OTHERS: [&str; 3] = ["shadow", "exempt", "unknown"];

const CONNECTIONS: u64 = 3;

/// Calls that are in flight on a connection at once.
pub const CALLS_AT_ONCE: usize = 8;

/// Requests in all; `TIDEGATE_REPLAY_REQUESTS` sets another number.
pub fn requests() -> usize {
    std::env::var("TIDEGATE_REPLAY_REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(6_000)
}

/// Runs the program to its end, without standard input.
pub fn replay(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.arg("replay").args(args).stdin(Stdio::null()).output().expect("the program runs")
}

/// The report in JSON; the replay must succeed.
pub fn report(args: &[&str]) -> Value {
    let output = replay(&[&["--json"], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

pub fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    /// A descriptor with the value of one of this many clients.
    fn descriptor(&mut self, clients: u64) -> RateLimitDescriptor {
        let keys = (LIMITED.len() + MATCHED.len() + OTHERS.len()) as u64;
        let key = LIMITED
            .into_iter()
            .chain(MATCHED)
            .chain(OTHERS)
            .nth(self.below(keys) as usize)
            .expect("in range");
        let begin = if key == "network" { "10.0.0." } else { "c" };
        let value = format!("{begin}{}", self.below(clients));
        let hits_addend = [None, None, None, Some(0), Some(2), Some(9)][self.below(6) as usize];
        let own = RateLimitOverride { requests_per_unit: 3, unit: 1 };
        RateLimitDescriptor {
            hits_addend,
            is_negative_hits: self.below(10) == 0,
            limit: (self.below(20) == 0).then_some(own),
            ..descriptor(&[(key, &value)])
        }
    }

    fn request(&mut self, clients: u64) -> RateLimitRequest {
        let descriptors = (0..=self.below(3) / 2).map(|_| self.descriptor(clients)).collect();
        RateLimitRequest { domain: "every".into(), descriptors, hits_addend: 0 }
    }
}

/// Sends requests of this many clients over a connection. All connections have the same clients.
pub async fn send_requests(client: Client, connection: u64, clients: u64, count: usize) {
    let mut numbers = Numbers(connection);
    for _ in 0..count.div_ceil(CALLS_AT_ONCE) {
        let mut calls = JoinSet::new();
        for _ in 0..CALLS_AT_ONCE {
            let (mut client, request) = (client.clone(), numbers.request(clients));
            calls.spawn(async move { client.0.should_rate_limit(request).await.expect("a decision") });
        }
        calls.join_all().await;
    }
}

/// A server whose log is complete once it has stopped.
struct Logged {
    folder: tempfile::TempDir,
    rules: tempfile::NamedTempFile,
    requests: usize,
}

impl Logged {
    /// Runs a server, and sends it requests over several connections.
    async fn run(rules: &str, args: &[&str], requests: usize) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(rules));
        let log = folder.path().join("log");
        let server = Server::with_rules(rules.path(), &[&["--decision-log", text(&log)], args].concat());
        let of_each = requests / CONNECTIONS as usize;
        let mut clients = JoinSet::new();
        for connection in 1..=CONNECTIONS {
            clients.spawn(send_requests(server.client().await, connection, 6, of_each));
        }
        clients.join_all().await;
        assert!(server.terminate().success());
        let requests = of_each.next_multiple_of(CALLS_AT_ONCE) * CONNECTIONS as usize;
        Self { folder, rules, requests }
    }

    /// The log, and the files that it was rotated to.
    fn logs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder.path()).expect("a folder");
        let mut paths: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_server_replayed_under_its_rules_reproduces_every_decision() {
    let args = ["--threads", "2", "--decision-log-max-bytes", "500000", "--decision-log-keep", "1000"];
    let logged = Logged::run(&(RULES.to_owned() + BY_VALUE), &args, requests()).await;
    let logs = logged.logs();
    assert!(logs.len() > 1, "the log is rotated");
    let logs: Vec<&str> = logs.iter().map(|path| text(path)).collect();
    let replayed = report(&[&["--rules", text(logged.rules.path())], &logs[..]].concat());
    let of = &replayed["report"];
    assert_eq!(of["requests"], logged.requests);
    assert_eq!(
        replayed["lines"],
        json!({"bad": 0, "first_bad": [], "omitted": 0, "dropped": 0, "assignments": 0, "without_descriptors": 0, "sorted": false})
    );
    let differences =
        ["newly_denied", "newly_admitted", "responses_changed", "out_of_order"].map(|key| &of[key]);
    assert_eq!(differences, [0, 0, 0, 0], "{replayed}");
    assert_eq!(of["proposed"], of["current"]);
    for key in LIMITED.into_iter().chain(MATCHED) {
        let rules = of["rules"].as_array().expect("rows");
        // With its values if the descriptor has values: `network=(network 10.0.0.0/30)`.
        let is_of_key =
            |row: &&Value| row["rule"].as_str().and_then(|rule| rule.split('=').next()) == Some(key);
        let row = rules.iter().find(is_of_key).unwrap_or_else(|| panic!("{key} has no row"));
        assert_eq!(row["proposed"], row["current"], "{key}");
        let (all, denied) = (row["proposed"]["all"].as_u64(), row["proposed"]["denied"].as_u64());
        assert!(denied > Some(0) && denied < all, "{row}");
    }

    // The same log under other rules shows that the comparison above can fail. A limit of a day does not depend on the speed of the
    // machine.
    let proposed = rules_file(&(RULES.replace("requests_per_unit: 9", "requests_per_unit: 4") + BY_VALUE));
    let changed = report(&[&["--rules", text(proposed.path())], &logs[..]].concat());
    assert!(changed["report"]["newly_denied"].as_u64() > Some(0), "{changed}");
    let top = &changed["report"]["keys_newly_denied"]["top"];
    assert!(top[0]["entries"][0][0].is_string(), "{top}");

    // Compared with the rules of the server instead of its log, the result is the same.
    let args = ["--rules", text(proposed.path()), "--against", text(logged.rules.path())];
    let mut against = report(&[&args, &logs[..]].concat());
    assert_eq!(against["report"]["is_current_recorded"].take(), json!(false));
    against["report"]["is_current_recorded"] = json!(true);
    assert_eq!(against, changed);
}

/// In the key of a counter, a hash stands for its value.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_hashed_values_is_reproduced_and_so_are_the_semantics_of_the_reference() {
    let args = ["--threads", "1", "--compat", "reference", "--decision-log-values", "hash"];
    let logged = Logged::run(RULES, &args, 1_200).await;
    let (rules, log) = (text(logged.rules.path()), logged.folder.path().join("log"));
    let replayed = report(&["--compat", "reference", "--rules", rules, text(&log)]);
    let of = &replayed["report"];
    assert_eq!((&of["requests"], &of["with_hashes"]), (&json!(logged.requests), &json!(logged.requests)));
    assert_eq!((&of["newly_denied"], &of["responses_changed"]), (&json!(0), &json!(0)), "{replayed}");
    let exact = report(&["--rules", rules, text(&log)]);
    assert!(exact["report"]["responses_changed"].as_u64() > Some(0), "the semantics differ: {exact}");
}
