//! `tidegate replay`: the log of a real server, replayed under the rules of that server, reproduces every decision; other rules,
//! bad lines, compressed and rotated logs.

use crate::support::{Client, Server, descriptor, rules_file};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
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
  - { key: exempt, rate_limit: { unlimited: true } }
";

/// Keys that deny some requests and admit others.
pub const LIMITED: [&str; 12] = [
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
];
const OTHERS: [&str; 3] = ["shadow", "exempt", "unknown"];

const CONNECTIONS: u64 = 3;

/// Calls that are in flight on a connection at once.
pub const CALLS_AT_ONCE: usize = 8;

/// Requests in all; `TIDEGATE_REPLAY_REQUESTS` sets another number.
pub fn requests() -> usize {
    std::env::var("TIDEGATE_REPLAY_REQUESTS").ok().and_then(|text| text.parse().ok()).unwrap_or(6_000)
}

fn replay(args: &[&str]) -> Output {
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

    /// A descriptor whose value one of this many clients has.
    fn descriptor(&mut self, clients: u64) -> RateLimitDescriptor {
        let keys = LIMITED.len() as u64 + OTHERS.len() as u64;
        let key = LIMITED.into_iter().chain(OTHERS).nth(self.below(keys) as usize).expect("in range");
        let value = format!("c{}", self.below(clients));
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

/// Sends requests of so many clients over a connection, which all connections share.
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
    async fn run(args: &[&str], requests: usize) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
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

    /// The log, and the logs that it was rotated to.
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
    let logged = Logged::run(&args, requests()).await;
    let logs = logged.logs();
    assert!(logs.len() > 1, "the log is rotated");
    let logs: Vec<&str> = logs.iter().map(|path| text(path)).collect();
    let replayed = report(&[&["--rules", text(logged.rules.path())], &logs[..]].concat());
    let of = &replayed["report"];
    assert_eq!(of["requests"], logged.requests);
    assert_eq!(
        replayed["lines"],
        json!({"bad": 0, "first_bad": [], "omitted": 0, "dropped": 0, "without_descriptors": 0})
    );
    let differences =
        ["newly_denied", "newly_admitted", "responses_changed", "out_of_order"].map(|key| &of[key]);
    assert_eq!(differences, [0, 0, 0, 0], "{replayed}");
    assert_eq!(of["proposed"], of["current"]);
    for key in LIMITED {
        let rules = of["rules"].as_array().expect("rows");
        let row = rules.iter().find(|row| row["rule"] == key).unwrap_or_else(|| panic!("{key} has no row"));
        assert_eq!(row["proposed"], row["current"], "{key}");
        let (all, denied) = (row["proposed"]["all"].as_u64(), row["proposed"]["denied"].as_u64());
        assert!(denied > Some(0) && denied < all, "{row}");
    }

    // The same log under other rules: the comparison above can fail. The limit of a day does not depend on the speed of the machine.
    let proposed = rules_file(&RULES.replace("requests_per_unit: 9", "requests_per_unit: 4"));
    let changed = report(&[&["--rules", text(proposed.path())], &logs[..]].concat());
    assert!(changed["report"]["newly_denied"].as_u64() > Some(0), "{changed}");
    let top = &changed["report"]["keys_newly_denied"]["top"];
    assert!(top[0]["entries"][0][0].is_string(), "{top}");

    // Against the rules of the server instead of its log: the same result.
    let args = ["--rules", text(proposed.path()), "--against", text(logged.rules.path())];
    let mut against = report(&[&args, &logs[..]].concat());
    assert_eq!(against["report"]["is_current_recorded"].take(), json!(false));
    against["report"]["is_current_recorded"] = json!(true);
    assert_eq!(against, changed);
}

/// A hash takes the place of its value in the key of a counter.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_hashed_values_is_reproduced_and_so_are_the_semantics_of_the_reference() {
    let args = ["--threads", "1", "--compat", "reference", "--decision-log-values", "hash"];
    let logged = Logged::run(&args, 1_200).await;
    let (rules, log) = (text(logged.rules.path()), logged.folder.path().join("log"));
    let replayed = report(&["--compat", "reference", "--rules", rules, text(&log)]);
    let of = &replayed["report"];
    assert_eq!((&of["requests"], &of["with_hashes"]), (&json!(logged.requests), &json!(logged.requests)));
    assert_eq!((&of["newly_denied"], &of["responses_changed"]), (&json!(0), &json!(0)), "{replayed}");
    let exact = report(&["--rules", rules, text(&log)]);
    assert!(exact["report"]["responses_changed"].as_u64() > Some(0), "the semantics differ: {exact}");
}

/// Lines of a log, with the fields that a replay needs.
fn lines(seconds: impl Iterator<Item = u64>, user: &str) -> String {
    let line = |second: u64| {
        let (minute, second) = (second / 60, second % 60);
        let descriptor = json!({"entries": [{"key": "user", "value": user}], "hits": 1, "code": "OK",
            "limit": {"rule": "user", "requests": 9, "window_ns": 60_000_000_000_u64}, "remaining": 0, "reset_ns": 0});
        json!({"v": 1, "time": format!("2026-03-01T12:{minute:02}:{second:02}.000000000Z"), "domain": "d",
            "code": "OK", "sample": 1.0, "latency_ns": 1, "descriptors": [descriptor]})
        .to_string()
    };
    seconds.map(|second| line(second) + "\n").collect()
}

fn user_rules(limit: u32) -> tempfile::NamedTempFile {
    rules_file(&format!(
        "{{domain: d, descriptors: [{{key: user, rate_limit: {{unit: minute, requests_per_unit: {limit}, algorithm: fixed_window}}}}]}}"
    ))
}

#[test]
fn compressed_logs_and_standard_input_are_merged_by_time() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(2));
    let [first, second] = ["a.gz", "b"].map(|name| folder.path().join(name));
    let mut compressed = Vec::new();
    // Two members, as after `cat a.1.gz a.2.gz`.
    for seconds in [0..5, 5..10] {
        let mut member = GzEncoder::new(Vec::new(), Compression::fast());
        member.write_all(lines(seconds, "a").as_bytes()).expect("memory takes all");
        compressed.extend(member.finish().expect("memory takes all"));
    }
    fs::write(&first, compressed).expect("written");
    fs::write(&second, lines(0..120, "a")).expect("written");
    let args = ["replay", "--json", "--rules", text(rules.path()), "-", text(&second), text(&first)];
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(lines([60, 61].into_iter(), "b").as_bytes()).expect("read by the program");
    drop(input);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let report = &report["report"];
    assert_eq!((&report["requests"], &report["out_of_order"]), (&json!(132), &json!(0)));
    // 2 of each minute are admitted for `a`, both hits of `b`.
    assert_eq!((&report["proposed"]["admitted"], &report["newly_denied"]), (&json!(6), &json!(126)));
    assert_eq!(report["proposed"]["worst_minute"]["start"], "2026-03-01T12:00:00Z");
    assert_eq!(report["proposed"]["worst_minute"]["denied"], 68);
    assert_eq!(report["proposed"]["longest_wait_ns"], 59_000_000_000_u64);
}

#[test]
fn bad_lines_are_counted_with_their_place_and_do_not_stop_a_replay() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(2));
    let log = folder.path().join("log");
    let mut content = lines(0..1, "a").into_bytes();
    content.extend_from_slice(b"not JSON\n\xff\xfe\n{\"v\":7}\n");
    content.extend_from_slice(lines(1..3, "a").as_bytes());
    content.extend_from_slice(b"{\"v\":1,\"time\":\"2026-03-01T12:00:05Z\",\"dropped\":42}\n");
    content.extend_from_slice(b"{\"v\":1,\"time\":\"2026-03-");
    fs::write(&log, content).expect("written");
    let output = replay(&["--rules", text(rules.path()), text(&log)]);
    let (shown, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{errors}");
    let places: Vec<&str> = errors.lines().filter_map(|line| line.strip_prefix(text(&log))).collect();
    assert_eq!(places.len(), 3, "the part of a line at the end is not a bad line: {errors}");
    assert!(places[0].starts_with(":2: ") && places[1].starts_with(":3: "), "{errors}");
    assert_eq!(places[2], ":4: version 7; this program reads versions 1 and 2");
    assert!(shown.starts_with("3 requests from 2026-03-01T12:00:00Z"), "{shown}");
    assert!(shown.contains("note: 3 lines could not be read"), "{shown}");
    assert!(shown.contains("note: the server dropped 42 decisions"), "{shown}");
    assert!(shown.contains("Newly denied requests: 1, keys: 1"), "{shown}");
}

/// An access log with a line a second: users 1 to 9, user n with n requests, the last of each denied.
fn access_log(line: impl Fn(u64, u64, u64) -> String) -> String {
    let users = (1..=9_u64).flat_map(|user| (1..=user).map(move |hit| (user, hit)));
    users
        .enumerate()
        .map(|(second, (user, hit))| {
            let code = if hit == user { 429 } else { 200 };
            line(1_772_366_400 + second as u64, user, code)
        })
        .collect()
}

#[test]
fn access_logs_of_envoy_and_csv_are_replayed_by_a_mapping_of_fields() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(3));
    let [json_log, csv_log] = ["access.json", "access.csv"].map(|name| folder.path().join(name));
    let json_lines = access_log(|second, user, code| {
        let time = jiff::Timestamp::from_second(second as i64).expect("a time");
        json!({"start_time": time.to_string(), "x_user": user, "path": null, "response_code": code})
            .to_string()
            + "\n"
    });
    fs::write(&json_log, json_lines + "{\"start_time\":\"2026-03-01T12:00:00Z\"}\nnot JSON\n")
        .expect("written");
    let csv = access_log(|second, user, code| format!("{code},\"{user}\",{second}.5\n"));
    fs::write(&csv_log, format!("response_code,x_user,start_time\n{csv}")).expect("written");
    let mapping = ["--domain", "d", "--descriptor", "user=x_user", "--rules", text(rules.path())];
    for (format, log, bad, unmapped) in [("json", &json_log, 1, 1), ("csv", &csv_log, 0, 0)] {
        let replayed = report(&[&mapping[..], &["--format", format, text(log)]].concat());
        let of = &replayed["report"];
        assert_eq!((&of["requests"], &of["current"]["denied"]), (&json!(45), &json!(9)), "{replayed}");
        // Of each of the users 4 to 9, three hits are admitted.
        assert_eq!(of["proposed"]["admitted"], 1 + 2 + 7 * 3, "{format}");
        let lines = &replayed["lines"];
        assert_eq!((&lines["bad"], &lines["without_descriptors"]), (&json!(bad), &json!(unmapped)));
    }
    let wrong = replay(
        &[
            &["--format", "csv", "--domain", "d", "--descriptor", "user=name", "--rules", text(rules.path())]
                [..],
            &[text(&csv_log)],
        ]
        .concat(),
    );
    let error = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert_eq!(wrong.status.code(), Some(1));
    assert!(error.contains("access.csv:1: there is no column `name`"), "{error}");
    assert_eq!(
        replay(&["--format", "csv", "--rules", text(rules.path()), text(&csv_log)]).status.code(),
        Some(2)
    );
}

#[test]
fn a_limit_is_suggested_and_the_page_with_plots_refers_to_no_other_file() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(1));
    let [log, page] = ["access.csv", "report.html"].map(|name| folder.path().join(name));
    let csv = access_log(|second, user, _| format!("{second},\"<script>{user}\u{202e}\"\n"));
    fs::write(&log, format!("start_time,user\n{csv}")).expect("written");
    let args = [
        "--format",
        "csv",
        "--domain",
        "d",
        "--descriptor",
        "user=user",
        "--denied",
        "=",
        "--rules",
        text(rules.path()),
        "--suggest",
        "user",
        "--suggest-share",
        "0.25",
        "--html",
        text(&page),
        text(&log),
    ];
    let replayed = report(&args);
    let suggestion = &replayed["suggestions"][0];
    assert_eq!(suggestion["suggested"], json!({"requests": 7, "keys": 2, "hits": 3}), "{replayed}");
    assert_eq!(suggestion["per_key_and_window"]["max"], 9);
    let shown = replay(&args);
    let shown = String::from_utf8_lossy(&shown.stdout);
    assert!(shown.contains("d: user") && shown.contains("2 of 9 keys"), "{shown}");
    let html = fs::read_to_string(&page).expect("written");
    assert!(html.contains("&lt;script&gt;9") && html.contains("<polyline"), "{html}");
    for forbidden in ["<script", "src=", "href=", "url(", "@import", "\u{202e}"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let unknown = replay(&["--rules", text(rules.path()), "--suggest", "usr", text(&log)]);
    let error = String::from_utf8_lossy(&unknown.stderr);
    assert!(error.contains("no rule with a limit has the path \"usr\"; there are user"), "{error}");
}

#[test]
fn a_value_of_a_client_cannot_control_the_terminal() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(0));
    let log = folder.path().join("log");
    fs::write(&log, lines(0..1, "\u{1b}[2J\nx")).expect("written");
    let output = replay(&["--rules", text(rules.path()), text(&log)]);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("user=\u{fffd}[2J\u{fffd}x") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn a_replay_without_a_request_fails() {
    let (folder, rules) = (tempfile::tempdir().expect("a folder"), user_rules(1));
    let log = folder.path().join("log");
    fs::write(&log, "not JSON\n").expect("written");
    let error = |args: &[&str]| {
        let output = replay(args);
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let empty = error(&["--rules", text(rules.path()), text(&log)]);
    assert!(empty.contains("no decision that can be replayed"), "{empty}");
    let missing = error(&["--rules", text(rules.path()), "/nonexistent/log"]);
    assert!(missing.contains("/nonexistent/log: No such file"), "{missing}");
    let twice = error(&["--rules", text(rules.path()), "-", "-"]);
    assert!(twice.contains("can be read once"), "{twice}");
    assert_eq!(replay(&["--rules", text(rules.path())]).status.code(), Some(2));
}
