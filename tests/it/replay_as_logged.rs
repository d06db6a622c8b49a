//! `tidegate replay` without rules: a log contains everything that its decisions depended on, and is reproduced exactly, although several
//! threads decided requests to the same counters while rules, overrides, blocks and counters were changed.

use crate::{
    concurrency::{acknowledged, routed_head, send_call, slot},
    control::{Controlled, descriptors},
    replay::{LIMITED, RULES, report, requests, send_requests, text},
    support::{
        Client, Server, descriptor,
        frames::{CANCEL, END_STREAM, RST_STREAM, RawConnection, call_head},
    },
};
use serde_json::{Value, json};
use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
};
use tidegate::api::pb::common::RateLimitDescriptor;
use tokio::task::JoinSet;

const CONNECTIONS: u64 = 4;

/// Changes everything that operators can change, until it is stopped; returns how many calls of each method succeeded.
async fn operate(server: &Controlled, is_stopped: &AtomicBool) -> [usize; 6] {
    let bodies = [
        (
            "SetOverride",
            json!({"override": {"id": "o", "domain": "every", "entries": [{"key": "fixed", "value": "c1"}],
            "limit": {"requests": 2, "unit": "second"}, "reason": "test"}}),
        ),
        (
            "SetBlock",
            json!({"block": {"id": "b", "domain": "every", "key": "leaky", "value": "c*", "reason": "test"}}),
        ),
        (
            "Reset",
            json!({"domain": "every", "descriptors": descriptors(&[("calendar", "c1")]), "reason": "test"}),
        ),
        (
            "GiveBack",
            json!({"domain": "every", "descriptors": descriptors(&[("calendar", "c0")]), "hits": 2}),
        ),
        ("DeleteOverride", json!({"id": "o"})),
        ("DeleteBlock", json!({"id": "b"})),
    ];
    let mut succeeded = [0; 6];
    for round in 0_usize.. {
        let limit = format!("requests_per_unit: {}", 4 + round % 3);
        fs::write(server.rules.path(), RULES.replace("requests_per_unit: 5", &limit)).expect("written");
        for (count, (method, body)) in succeeded.iter_mut().zip(&bodies) {
            // A caller may call 100 times a second.
            let (status, response) = server.call(&server.operate, method, body).await;
            assert!(matches!(status, 200 | 404 | 429), "{method}: {response}");
            *count += usize::from(status == 200);
        }
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
    }
    succeeded
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_of_two_workers_with_reloads_overrides_and_resets_is_reproduced_exactly() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("decisions");
    let args = ["--threads", "2", "--decision-log", text(&log), "--decision-log-queue-bytes", "33554432"];
    // About twenty files, however many requests there are: a replay keeps thousands of lines of each file in memory.
    let max_bytes = (20 * requests()).max(1_000_000).to_string();
    let rotation = ["--decision-log-max-bytes", &max_bytes, "--decision-log-keep", "100"];
    let server = Controlled::start(RULES, &[&args[..], &rotation].concat());
    let is_stopped = AtomicBool::new(false);
    let sent = async {
        let mut clients = JoinSet::new();
        for connection in 1..=CONNECTIONS {
            let of_each = requests() / CONNECTIONS as usize;
            clients.spawn(send_requests(server.server.client().await, connection, 4, of_each));
        }
        clients.join_all().await;
        is_stopped.store(true, Ordering::Relaxed);
    };
    let (succeeded, ()) = tokio::join!(operate(&server, &is_stopped), sent);
    assert!(succeeded.iter().all(|count| *count > 0), "{succeeded:?}");
    // Resets a rule while no request is decided: a reset of a rule has no single place among decisions.
    let reset = json!({"domain": "every", "rule": "calendar", "reason": "test"});
    // The calls before may have used up what a caller may make in a second.
    let status = loop {
        match server.call(&server.operate, "Reset", &reset).await {
            (429, _) => {}
            (status, _) => break status,
        }
    };
    assert_eq!(status, 200);
    send_requests(server.server.client().await, 9, 4, 80).await;
    assert!(server.server.terminate().success());

    let logs = fs::read_dir(folder.path()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut logs: Vec<PathBuf> = logs.collect();
    logs.sort();
    assert!(logs.len() > 1, "the log is rotated");
    let (mut resets, mut rules_lines) = (0, 0);
    for path in &logs {
        let text = fs::read_to_string(path).expect("text");
        let is_of_rules = |line: &str| line.contains("\"rules\":{");
        assert!(text.lines().next().is_some_and(is_of_rules), "each file has its rules");
        rules_lines += text.lines().filter(|line| is_of_rules(line)).count();
        resets += text.lines().filter(|line| line.contains("\"reset\":{")).count();
    }
    assert!(resets > 1 && rules_lines > 3, "{resets} resets, {rules_lines} rules");
    let paths: Vec<&str> = logs.iter().map(|path| text(path)).collect();
    let replayed = report(&paths);
    let of = &replayed["report"];
    let differences =
        ["newly_denied", "newly_admitted", "responses_changed", "out_of_order"].map(|key| &of[key]);
    assert_eq!(differences, [0, 0, 0, 0], "{replayed}");
    assert_eq!((&replayed["lines"]["bad"], &replayed["lines"]["dropped"]), (&json!(0), &json!(0)));
    assert!(of["requests"].as_u64() >= Some(requests() as u64), "{}", of["requests"]);
    let rules = of["rules"].as_array().expect("rows");
    for key in LIMITED.into_iter().chain(["(blocked)", "(override o)"]) {
        assert!(rules.iter().any(|row| row["rule"] == key), "{key} has no row: {rules:?}");
    }

    // The rules of the start alone do not reproduce the log, so the comparison above can fail.
    let first_rules = crate::support::rules_file(RULES);
    let other: Value = report(&[&["--rules", text(first_rules.path())], &paths[..]].concat());
    assert!(other["report"]["responses_changed"].as_u64() > Some(0));
    let [set, blocked, _, given_back, ..] = succeeded;
    println!(
        "replayed {} decisions with {rules_lines} lines of rules, {resets} resets, {set} overrides, {blocked} blocks, \
         {given_back} calls of GiveBack: 0 differences",
        of["requests"],
    );
}

/// Estimates and slots of few keys, so that ends come between the starts of others.
const LASTING: &str = "
domain: edge
descriptors:
  - key: window
    rate_limit: { unit: year, requests_per_unit: 2000, algorithm: sliding_window, reserve: 10, max_hold: 1s }
  - key: log
    rate_limit: { unit: year, requests_per_unit: 2000, algorithm: sliding_log, reserve: 10, max_hold: 20ms, on_lost_end: return }
  - key: bucket
    rate_limit: { unit: year, requests_per_unit: 1000, algorithm: token_bucket, reserve: hits, max_hold: 1s }
  - key: route
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 300ms, max_wait: 0s }
";

/// Starts requests and ends most of them, with costs that differ from their estimates; returns how many ends were sent.
async fn send_lasting(mut client: Client, seed: u64) -> u64 {
    let mut state = seed;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % bound
    };
    let (mut held, mut ended) = (Vec::new(), 0);
    for _ in 0..400 {
        let key = ["window", "log", "bucket", "route"][below(4) as usize];
        let start = RateLimitDescriptor { hits_addend: Some(1 + below(3)), ..descriptor(&[(key, "a")]) };
        let response = client.should_rate_limit("edge", vec![start]).await.expect("a decision");
        held.extend(slot(&response).map(|(ticket, _)| ticket));
        if held.len() > 2 {
            let ticket = held.swap_remove(below(3) as usize);
            let (hits_addend, is_negative_hits) = (Some(below(25)), below(5) == 0);
            let end =
                RateLimitDescriptor { hits_addend, is_negative_hits, ..descriptor(&[("slot", &ticket)]) };
            client.should_rate_limit("edge", vec![end]).await.expect("a decision");
            ended += 1;
        }
    }
    ended
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_of_slots_and_of_estimates_are_reproduced_exactly_also_if_tickets_are_hashed() {
    for values in ["plain", "hash"] {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), crate::support::rules_file(LASTING));
        let log = folder.path().join("decisions");
        let args = ["--threads", "2", "--decision-log", text(&log), "--decision-log-values", values];
        let server =
            Server::with_rules(rules.path(), &[&args[..], &["--decision-log-rules", "text"]].concat());
        let mut clients = JoinSet::new();
        for seed in 1..=4 {
            clients.spawn(send_lasting(server.client().await, seed));
        }
        let ended: u64 = clients.join_all().await.iter().sum();
        assert!(server.terminate().success());
        assert!(ended > 100, "{ended} ends");
        let replayed = report(&[text(&log)]);
        let differences = ["newly_denied", "newly_admitted", "responses_changed"];
        assert_eq!(differences.map(|key| &replayed["report"][key]), [0, 0, 0], "{values}: {replayed}");
        assert!(replayed["report"]["proposed"]["denied"].as_u64() > Some(50), "{replayed}");
        // Without the tickets no request ends, so the comparison above can fail.
        let lines = fs::read_to_string(&log).expect("text").replace("\"ticket", "\"other");
        let without = folder.path().join("without");
        fs::write(&without, lines).expect("written");
        assert!(report(&[text(&without)])["report"]["responses_changed"].as_u64() > Some(50));
    }
}

/// Limits that one request fills: the next is admitted only if the one before has ended.
const FULL: [&str; 2] = [
    "{ algorithm: concurrency, requests_in_flight: 1, max_hold: 1h, max_wait: 0s }",
    "{ unit: year, requests_per_unit: 40, algorithm: fixed_window, reserve: 40, max_hold: 1h }",
];

/// Only the reset ends these requests: a replay used to hold such slots until `max_hold`.
#[tokio::test]
async fn calls_that_clients_reset_are_reproduced_exactly_also_if_tickets_are_hashed() {
    for (limit, values) in FULL.into_iter().zip(["plain", "hash"]) {
        let rules = format!("{{domain: edge, descriptors: [{{key: user, rate_limit: {limit}}}]}}");
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), crate::support::rules_file(&rules));
        let log = folder.path().join("decisions");
        let args = ["--decision-log", text(&log), "--decision-log-values", values];
        let server =
            Server::with_rules(rules.path(), &[&args[..], &["--decision-log-rules", "text"]].concat());
        let mut connection = RawConnection::open(server.address()).await;
        for (number, head) in (0..).zip([call_head(), routed_head()].iter().cycle().take(40)) {
            let stream = 1 + 2 * number;
            send_call(&mut connection, stream, head).await;
            while connection.next_frame_of(stream).await.flags & END_STREAM == 0 {}
            connection.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
            acknowledged(&mut connection).await;
        }
        assert!(server.terminate().success());
        let lines = fs::read_to_string(&log).expect("text");
        assert_eq!(lines.matches("\"cancelled\":{").count(), 40, "{lines}");
        let replayed = report(&[text(&log)]);
        let of = &replayed["report"];
        let figures = [&of["requests"], &of["proposed"]["admitted"], &of["responses_changed"]];
        assert_eq!(figures, [40, 40, 0], "{limit}: {replayed}");
        assert_eq!(replayed["lines"]["bad"], 0, "{replayed}");
        // Without these lines all requests but the first are denied, so the comparison above can fail.
        let without = folder.path().join("without");
        let kept =
            lines.lines().filter(|line| !line.contains("\"cancelled\"")).map(|line| format!("{line}\n"));
        fs::write(&without, kept.collect::<String>()).expect("written");
        assert_eq!(report(&[text(&without)])["report"]["newly_denied"], 39);
    }
}
