//! `tidegate replay`: the files that it reads and writes. Compressed logs, bad lines, access logs, suggestions, and the page with plots.

use crate::{
    replay::{replay, report, text},
    support::rules_file,
};
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write,
    process::{Command, Stdio},
};

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
    // 2 hits of each minute are admitted for `a`, and both hits of `b`.
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
        // Three hits of each of the users 4 to 9 are admitted.
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
    assert!(
        error.contains("no rule with a limit has the path \"usr\"")
            && error.contains("did you mean \"user\"?"),
        "{error}"
    );
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
