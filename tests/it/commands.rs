//! Output and exit codes of the commands.

use crate::support::{Server, eventually, rules_file};
use serde_json::Value;
use std::{
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Output, Stdio},
};

const RULES: &str = "
domain: edge
descriptors:
  - key: tenant
    descriptors:
      - key: path
        value: /api/*
        rate_limit: { unit: minute, requests_per_unit: 10 }
      - key: path
        value: /health
  - key: abuser
    rate_limit: { unit: minute, requests_per_unit: 1 }
    on_deny: { mark: { header: x-rate-limited, value: yes } }
";

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the binary runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

/// Cells of the rows of a table, which are separated by at least two spaces.
fn rows(text: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| {
        line.trim().split("  ").map(|cell| cell.trim().to_owned()).filter(|c| !c.is_empty()).collect()
    };
    text.lines().map(cells).filter(|row: &Vec<String>| !row.is_empty()).collect()
}

#[test]
fn call_prints_a_row_per_decision() {
    // A window that does not move while a busy machine runs the command.
    let rules = rules_file(
        "{ domain: demo, descriptors: [{ key: api_key, rate_limit: { per: 100h, requests_per_unit: 5, algorithm: fixed_window, aligned: first_hit } }] }",
    );
    let server = Server::with_rules(rules.path(), &[]);
    let called = run(&["call", "--addr", server.address(), "demo", "api_key=alice", "--repeat", "6"]);
    let rows = rows(&stdout(&called));
    assert_eq!(rows.len(), 7, "{rows:?}");
    assert!(
        rows[1..].iter().all(|row| row[4] == "5 per 100h"),
        "a window that is no unit is shown: {rows:?}"
    );
    for (row, left) in rows[1..6].iter().zip(["4", "3", "2", "1", "0"]) {
        assert_eq!((row[1].as_str(), row[3].as_str(), row[5].as_str()), ("OK", "OK", left), "{row:?}");
    }
    assert_eq!((rows[6][1].as_str(), rows[6][3].as_str()), ("OVER_LIMIT", "OVER_LIMIT"));
    let reset: f64 = rows[6][6].trim_end_matches(" s").parse().unwrap();
    assert!(reset > 0.0 && reset <= 360_000.0, "{reset}");
}

#[test]
fn call_holds_slots_and_estimates_until_their_end() {
    let rules = rules_file(
        "
domain: edge
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 1h, max_wait: 0s }
  - key: budget
    rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window, reserve: 40, max_hold: 1h }
",
    );
    let server = Server::with_rules(rules.path(), &[]);
    let call = |args: &[&str]| run(&[&["call", "--addr", server.address(), "edge"], args].concat());
    let remaining = |descriptor: &str| {
        let called = call(&["--json", "--hits", "0", descriptor]);
        serde_json::from_str::<Value>(&stdout(&called)).unwrap()["statuses"][0]["remaining"].clone()
    };
    let held = call(&["user=ann", "--repeat", "3", "--hold", "30ms"]);
    let shown = rows(&stdout(&held));
    let verdicts: Vec<&str> = shown[1..4].iter().map(|row| &*row[1]).collect();
    assert_eq!(verdicts, ["OK", "OK", "OVER_LIMIT"], "all are held at once: {shown:?}");
    assert!(stdout(&held).ends_with("ended 2 requests\n"), "{shown:?}");
    assert_eq!(remaining("user=ann"), 2);

    let both = ["user=ann", "budget=b", "--hold", "1ms"];
    assert!(
        stdout(&call(&[&both[..], &["--cost", "7"]].concat()))
            .ends_with("ended 1 request, with a cost of 7\n")
    );
    assert_eq!((remaining("user=ann"), remaining("budget=b")), (2.into(), 93.into()));
    let ended = stdout(&call(&[&both[..], &["--cost", "0", "--json"]].concat()));
    let end: Value = serde_json::from_str(ended.lines().last().expect("a line")).expect("JSON");
    assert!(
        end["cost"] == 0 && end["ended"].as_str().is_some_and(|ticket| ticket.starts_with("slot-")),
        "{end}"
    );
    assert_eq!((remaining("user=ann"), remaining("budget=b")), (2.into(), 93.into()));
    assert!(call(&both).status.success());
    assert_eq!((remaining("user=ann"), remaining("budget=b")), (2.into(), 53.into()), "the estimate stays");

    let nothing = call(&["user=ann", "--hits", "0", "--hold", "1h"]);
    assert!(nothing.status.success() && stderr(&nothing).contains("no response has a ticket"));
    assert_eq!(call(&["user=ann", "--cost", "3"]).status.code(), Some(2));
}

/// `--hold` used to keep a slot for no longer than the rule's `max_hold`.
#[tokio::test]
async fn call_renews_what_it_holds_and_reports_what_is_not_held_any_more() {
    let rules = rules_file(
        "
domain: edge
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 1h }
",
    );
    let server = Server::with_rules(rules.path(), &["--http-listen", "127.0.0.1:0"]);
    let renewals = async || server.metric("tidegate_slots_total{event=\"renewed\"}").await;
    let args = [
        "call",
        "--addr",
        server.address(),
        "edge",
        "user=ann",
        "--json",
        "--hold",
        "1h",
        "--renew-every",
        "10ms",
    ];
    let mut holder = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let mut holder =
        holder.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    let mut first = String::new();
    let mut printed = BufReader::new(holder.stdout.as_mut().expect("it is piped"));
    printed.read_line(&mut first).expect("a response");
    let response: Value = serde_json::from_str(&first).expect("JSON");
    let ticket = response["metadata"]["slot"].as_str().expect("a ticket");
    eventually("the slot is renewed again and again", async || renewals().await >= 3).await;

    let mut client = server.client().await;
    client.hit("edge", &[("slot", ticket)]).await.expect("a response");
    let mut errors = BufReader::new(holder.stderr.as_mut().expect("it is piped"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("a line");
    assert_eq!(line, format!("not held any more: {ticket}\n"));
    let pid = rustix::process::Pid::from_child(&holder);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert!(holder.wait().expect("it ends").success());
}

#[test]
fn call_peeks_gives_back_and_prints_never() {
    // A window of a day: no hits expire while the commands run.
    let rules = rules_file(
        "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 5, algorithm: sliding_log}}]}",
    );
    let server = Server::with_rules(rules.path(), &[]);
    let call = |more: &[&str]| {
        let called =
            run(&[&["call", "--addr", server.address(), "--json", "d", "user=alice"], more].concat());
        serde_json::from_str::<Value>(&stdout(&called)).unwrap()["statuses"][0].clone()
    };
    let first = call(&["--hits", "5"]);
    assert_eq!(
        (&first["remaining"], &first["limit"]["unit"], &first["limit"]["window"]),
        (&0.into(), &"DAY".into(), &"1d".into())
    );
    assert_eq!(call(&["--hits", "0"])["code"], "OVER_LIMIT");
    assert_eq!(call(&["--hits", "2", "--give-back"])["remaining"], 2);
    let never = call(&["--hits", "6"]);
    assert_eq!((&never["code"], &never["reset_seconds"]), (&"OVER_LIMIT".into(), &Value::Null));
}

#[test]
fn call_shows_headers_and_metadata() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &["--response-headers", "x", "--dynamic-metadata"]);
    let call = |descriptor: &str, more: &[&str]| {
        run(&[&["call", "--addr", server.address(), "edge", descriptor], more].concat())
    };
    let admitted: Value = serde_json::from_str(&stdout(&call("abuser=eve", &["--json"]))).unwrap();
    assert_eq!(admitted["response_headers"]["x-ratelimit-remaining"], "0", "{admitted}");
    assert_eq!((&admitted["request_headers"], &admitted["body"]), (&Value::Null, &Value::Null));
    assert_eq!(admitted["metadata"]["descriptors"][0]["entries"][0], "abuser=eve");
    let marked = stdout(&call("abuser=eve", &[]));
    assert!(marked.contains("call 1: request header x-rate-limited: yes"), "{marked}");
}

#[test]
fn call_without_a_server_has_a_remedy() {
    let called = run(&["call", "--addr", "127.0.0.1:1", "demo", "api_key=alice"]);
    assert_eq!(called.status.code(), Some(1));
    assert!(stderr(&called).contains("tidegate serve"), "{}", stderr(&called));
}

#[test]
fn call_reports_why_its_target_is_invalid() {
    let call = |address: &str| {
        let called = run(&["call", "--addr", address, "demo", "api_key=alice"]);
        (called.status.code(), stderr(&called))
    };
    let (code, error) = call("http://127.0.0.1:8081");
    assert_eq!(code, Some(2));
    assert!(error.contains("is not an address; write host:port"), "{error}");

    let plain_file = rules_file(RULES);
    let (_, error) = call(&format!("unix:{}", plain_file.path().display()));
    assert!(error.contains("is not a socket") && !error.contains("tidegate serve"), "{error}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (_, error) = call(&address);
    assert!(error.contains("does not answer in HTTP/2") && error.contains("gRPC server"), "{error}");
}

#[test]
fn serve_refuses_settings_that_cannot_work() {
    assert_eq!(run(&["serve", "--max-counters", "0"]).status.code(), Some(2));
    assert_eq!(run(&["serve", "--listen", "http://127.0.0.1:0"]).status.code(), Some(2));
    let plain_file = rules_file(RULES);
    let refused = run(&["serve", "--listen", &format!("unix:{}", plain_file.path().display())]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("is not a socket"), "{}", stderr(&refused));
}

#[test]
fn a_fatal_error_is_a_json_line_if_the_log_is_json() {
    for (setting, value) in [("--listen", "192.0.2.1:1"), ("--rules", "/nonexistent.yaml"), ("--log", "=?=")]
    {
        let failed = run(&["serve", "--log-format", "json", setting, value]);
        assert_eq!(failed.status.code(), Some(1), "{setting}");
        let lines: Vec<Value> =
            stderr(&failed).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = lines.last().unwrap();
        assert_eq!(last["level"], "ERROR", "{last}");
        assert!(last["message"].as_str().unwrap().contains(value), "{last}");
    }
}

#[test]
fn serving_the_demo_is_a_warning() {
    let server = Server::start(&[]);
    assert!(server.logged("demo rules")[0].contains("WARN"), "{:#?}", server.log());
}

#[test]
fn check_shows_every_rule() {
    let file = rules_file(RULES);
    let path = file.path().to_str().unwrap();
    let checked = run(&["check", path]);
    assert_eq!(checked.status.code(), Some(0));
    assert!(stdout(&checked).contains("10 per minute"), "{}", stdout(&checked));
    assert_eq!(stdout(&run(&["check", "--rules", path])), stdout(&checked));
    let json: Value = serde_json::from_str(&stdout(&run(&["check", "--json", path]))).unwrap();
    assert_eq!(json["ok"], true);
    assert_eq!(json["domains"][0]["rules"].as_array().unwrap().len(), 4);
    assert_eq!(json["domains"][0]["rules"][1]["limits"][0]["window"], "1m");
    assert_eq!(json["domains"][0]["rules"][1]["on_deny"], Value::Null);
    assert_eq!(json["domains"][0]["rules"][3]["on_deny"], "mark x-rate-limited: yes");
}

#[test]
fn a_hyphen_is_standard_input() {
    let on_stdin = |args: &[&str], text: &str| {
        let file = rules_file(text);
        let stdin = std::fs::File::open(file.path()).unwrap();
        Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).stdin(stdin).output().unwrap()
    };
    let checked = on_stdin(&["check", "-"], RULES);
    assert!(checked.status.success() && stdout(&checked).contains("<stdin>:"), "{}", stdout(&checked));
    let explained = on_stdin(&["explain", "--rules", "-", "edge", "abuser=eve"], RULES);
    assert!(stdout(&explained).contains("1 per minute"), "{}", stdout(&explained));
    let broken = on_stdin(&["check", "-"], "domain: [");
    assert_eq!(broken.status.code(), Some(1));
    assert!(stderr(&broken).starts_with("<stdin>:1"), "{}", stderr(&broken));
}

#[test]
fn check_of_broken_files_fails_with_a_located_line_for_each_error() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rules/broken");
    let checked = run(&["check", folder.to_str().unwrap()]);
    assert_eq!(checked.status.code(), Some(1));
    let said = stderr(&checked);
    for line in said.lines() {
        assert!(line.contains(".yaml:"), "not located: {line}");
    }
    assert!(said.lines().count() >= 25, "{said}");
    let json: Value =
        serde_json::from_str(&stdout(&run(&["check", "--json", folder.to_str().unwrap()]))).unwrap();
    assert_eq!(json["errors"].as_array().unwrap().len(), said.lines().count());
}

#[test]
fn explain_follows_a_descriptor_to_its_rule_or_to_where_it_ends() {
    let file = rules_file(RULES);
    let path = file.path().to_str().unwrap();
    let explain = |descriptor: &str| run(&["explain", "--rules", path, "edge", descriptor]);
    let reached = explain("tenant=acme,path=/api/v1");
    assert_eq!(reached.status.code(), Some(0));
    assert!(stdout(&reached).contains("the wildcard /api/*"), "{}", stdout(&reached));
    assert!(stdout(&reached).contains("10 per minute, sliding_window"), "{}", stdout(&reached));
    let marks = stdout(&explain("abuser=eve"));
    assert!(marks.contains("on_deny: mark x-rate-limited: yes"), "{marks}");
    let ended = explain("tenant=acme,path=/other");
    assert_eq!(ended.status.code(), Some(1));
    assert!(stdout(&ended).contains("no descriptor here matches path=/other"), "{}", stdout(&ended));
    let unknown = run(&["explain", "--rules", path, "egde", "tenant=acme"]);
    assert!(stderr(&unknown).contains("domains with rules: edge"), "{}", stderr(&unknown));
}

#[test]
fn explain_names_the_set_that_has_a_value_and_check_warns_of_those_that_none_reaches() {
    let file = rules_file(
        "domain: edge\ndescriptors:\n\
        - {key: ip, value_network: [10.0.0.0/8, 192.0.2.0/24], rate_limit: {unit: minute, requests_per_unit: 5}}\n\
        - {key: ip, value_network: 10.1.0.0/16, rate_limit: {unit: minute, requests_per_unit: 7}}\n\
        - {key: plan, values: [free, trial], value_ignore_case: true, rate_limit: {unit: day, requests_per_unit: 2}}\n\
        - {key: path, value_regex: ^/a, rate_limit: {unit: day, requests_per_unit: 2}}\n\
        - {key: path, value_regex: ^/a/b}\n",
    );
    let path = file.path().to_str().unwrap();
    for (descriptor, matched) in [
        ("ip=10.2.0.1", "the network 10.0.0.0/8, of the networks 10.0.0.0/8, 192.0.2.0/24"),
        ("ip=10.1.0.1", "the network 10.1.0.0/16 "),
        ("plan=FREE", "the list free, trial in any case of letters"),
        ("path=/a/b", "the regular expression ^/a "),
    ] {
        let shown = stdout(&run(&["explain", "--rules", path, "edge", descriptor]));
        assert!(shown.contains(&format!("matches {matched}")), "{shown}");
    }
    let none = stdout(&run(&["explain", "--rules", path, "edge", "plan=gold"]));
    assert!(none.contains("known values: (list free, any case)"), "{none}");
    let checked = run(&["check", path]);
    assert_eq!(checked.status.code(), Some(0));
    let warnings = stderr(&checked);
    assert_eq!(warnings.lines().count(), 2, "{warnings}");
    assert!(
        warnings.contains("warning: ") && warnings.contains("10.1.0.0/16 is inside 10.0.0.0/8"),
        "{warnings}"
    );
    assert!(warnings.contains(":7:3: path=(regex ^/a/b): never applies"), "{warnings}");
    let json: Value = serde_json::from_str(&stdout(&run(&["check", "--json", path]))).unwrap();
    assert_eq!(json["warnings"].as_array().unwrap().len(), 2);
}

/// Both commands passed without a word, and limited nothing.
#[test]
fn check_warns_of_a_domain_without_descriptors_and_of_rule_files_that_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.yaml"), "domain: a\n").unwrap();
    std::fs::write(folder.path().join("b.conf"), "domain: b\ndescriptors: [{key: k}]\n").unwrap();
    let checked = run(&["check", folder.path().to_str().unwrap()]);
    let warnings = stderr(&checked);
    assert_eq!((checked.status.code(), warnings.lines().count()), (Some(0), 2), "{warnings}");
    assert!(
        warnings.contains("a.yaml:1:9: domain: has no descriptors, so none of its requests is limited"),
        "{warnings}"
    );
    assert!(warnings.contains("b.conf: is not read"), "{warnings}");
}

#[test]
fn check_and_explain_follow_the_default_algorithm() {
    let file = rules_file(RULES);
    let path = file.path().to_str().unwrap();
    let checked = run(&["check", path, "--default-algorithm", "token_bucket", "--json"]);
    let json: Value = serde_json::from_str(&stdout(&checked)).unwrap();
    assert_eq!(json["domains"][0]["rules"][1]["limits"][0]["algorithm"], "token_bucket");
    let of_request = ["edge", "tenant=acme,path=/api/v1"];
    let explain = ["explain", "--rules", path, "--default-algorithm", "leaky_bucket"];
    let explained = stdout(&run(&[&explain[..], &of_request].concat()));
    assert!(explained.contains("10 per minute, leaky_bucket"), "{explained}");
    let wrong = run(&["check", path, "--default-algorithm", "bucket"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("sliding_window, sliding_log"), "{}", stderr(&wrong));
}

/// `explain` showed limits that did not apply, and ended with 0 where nothing was limited.
#[test]
fn explain_shows_replacement_shadow_and_quota_and_fails_without_a_limit() {
    let file = rules_file(
        "domain: edge\ndescriptors:\n\
         - {key: user, rate_limit: {name: per-user, unit: minute, requests_per_unit: 10}}\n\
         - {key: plan, value: gold, rate_limit: {unit: minute, requests_per_unit: 1000, replaces: [{name: per-user}]}}\n\
         - {key: trial, shadow_mode: true, rate_limit: {unit: second, requests_per_unit: 5}}\n\
         - {key: team, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 5}}\n\
         - {key: free, rate_limit: {unlimited: true}}\n\
         - {key: listed}\n",
    );
    let path = file.path().to_str().unwrap();
    let explain = |rest: &[&str]| run(&[&["explain", "--rules", path, "edge"], rest].concat());
    let both = explain(&["user=ann", "plan=gold"]);
    assert!(
        stdout(&both)
            .contains("per-user: 10 per minute, sliding_window: does not apply, replaced by plan=gold"),
        "{}",
        stdout(&both)
    );
    assert_eq!(both.status.code(), Some(1), "no limit applies to user=ann");
    assert_eq!(explain(&["user=ann"]).status.code(), Some(0));
    for (descriptor, note) in
        [("trial=x", "shadow_mode: denies nothing"), ("team=x", "quota_mode: denies only if every quota")]
    {
        let explained = explain(&[descriptor]);
        assert_eq!(explained.status.code(), Some(0));
        assert!(stdout(&explained).contains(note), "{}", stdout(&explained));
    }
    for not_limited in ["free=x", "listed=x", "none=x"] {
        assert_eq!(explain(&[not_limited]).status.code(), Some(1), "{not_limited}");
    }
    let own = explain(&["trial=x", "--own-limit", "5/minute"]);
    assert!(stdout(&own).contains("the request's own limit"), "{}", stdout(&own));
    assert!(!stdout(&own).contains("shadow"), "{}", stdout(&own));
    let json: Value = serde_json::from_str(&stdout(&explain(&["user=ann", "plan=gold", "--json"]))).unwrap();
    assert_eq!(json["limited"], false);
    assert_eq!(json["descriptors"][0]["limits"][0]["replaced_by"], "plan=gold");
    assert_eq!(json["descriptors"][1]["replaces"][0], "per-user");
}

#[test]
fn completions_are_printed_for_the_shells() {
    for shell in ["bash", "zsh", "fish"] {
        let printed = run(&["completions", shell]);
        assert!(printed.status.success() && stdout(&printed).contains("explain"), "{shell}");
    }
}

#[test]
fn wrong_arguments_exit_with_two() {
    assert_eq!(run(&["serve", "--listen", "nowhere"]).status.code(), Some(2));
    assert_eq!(run(&["call", "demo", "no-entry"]).status.code(), Some(2));
    assert_eq!(run(&["frobnicate"]).status.code(), Some(2));
}

#[test]
fn every_setting_of_serve_has_a_variable() {
    let help = stdout(&run(&["serve", "--help"]));
    let flags = help.lines().filter(|line| line.trim_start().starts_with("--") || line.contains(", --"));
    // `--help` and `--check` are no settings: they choose what to do with the settings.
    let flags: Vec<&str> =
        flags.filter(|line| !line.contains("--help") && line.trim() != "--check").collect();
    assert!(flags.len() > 10, "{help}");
    assert_eq!(help.matches("[env: TIDEGATE_").count(), flags.len(), "{help}");
}
