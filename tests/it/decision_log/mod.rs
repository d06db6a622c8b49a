//! The decision log of a real server: its lines, redaction, sampling, rotation, and the faults that it survives.

mod targets;

use crate::support::{Client, Server, descriptor, eventually_blocking, rules_file};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::{fs::read_to_string, path::Path, time::Duration};
use tempfile::TempDir;

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { name: per-user, unit: hour, requests_per_unit: 2, algorithm: fixed_window }
  - key: email
    log: hash
    rate_limit: { unit: hour, requests_per_unit: 2 }
    descriptors: [{ key: token, log: omit, rate_limit: { unit: hour, requests_per_unit: 2 } }]
";

/// A server that logs to `log` in a folder.
struct Logged {
    server: Server,
    folder: TempDir,
    _rules: tempfile::NamedTempFile,
}

impl Logged {
    fn start(args: &[&str]) -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(RULES));
        let path = folder.path().join("log");
        let path = path.to_str().expect("temporary paths are UTF-8");
        let server = Server::with_rules(rules.path(), &[&["--decision-log", path], args].concat());
        Self { server, folder, _rules: rules }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Waits until the log has at least this many whole lines.
    fn lines(&self, count: usize) -> Vec<Value> {
        eventually_blocking("the lines are written", || {
            Some(lines_of(&self.path("log"))).filter(|lines| lines.len() >= count)
        })
    }

    async fn hit(&self, client: &mut Client, user: &str) {
        client.hit("edge", &[("user", user)]).await.expect("a decision");
    }

    /// Stops the server: everything is written then.
    fn lines_at_end(self) -> Vec<Value> {
        let path = self.path("log");
        assert!(self.server.terminate().success());
        lines_of(&path)
    }
}

/// The whole lines of a file except lines of rules; a part of a line at the end is ignored, as readers of the log have to do.
fn lines_of(path: &Path) -> Vec<Value> {
    let text = read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    whole.map(parse).filter(|line: &Value| line.get("rules").is_none()).collect()
}

fn users(lines: &[Value]) -> Vec<&str> {
    lines.iter().filter_map(|line| line["descriptors"][0]["entries"][0]["value"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_decision_has_a_line_with_everything_that_replay_needs() {
    let logged = Logged::start(&["--threads", "1"]);
    let mut client = logged.server.client().await;
    for _ in 0..3 {
        client
            .should_rate_limit(
                "edge",
                vec![descriptor(&[("user", "a \"b\"\n")]), descriptor(&[("stranger", "")])],
            )
            .await
            .expect("a decision");
    }
    let lines = logged.lines(3);
    let limit =
        json!({"name": "per-user", "rule": "user", "requests": 2, "window_ns": 3_600_000_000_000_u64});
    let first = &lines[0];
    assert_eq!(first["v"], 2);
    assert_eq!(
        (&first["seq"], &first["generation"]),
        (&json!(2), &json!(1)),
        "the rules have the first number"
    );
    assert!(first["time"].as_str().is_some_and(|time| time.ends_with('Z') && time.len() == 30), "{first}");
    assert_eq!(
        (&first["domain"], &first["code"], &first["sample"]),
        (&json!("edge"), &json!("OK"), &json!(1.0))
    );
    assert_eq!(first["peer"], "127.0.0.1");
    assert!(first["latency_ns"].is_u64(), "{first}");
    let of_user = &first["descriptors"][0];
    assert_eq!(of_user["entries"], json!([{"key": "user", "value": "a \"b\"\n"}]));
    assert_eq!((&of_user["hits"], &of_user["remaining"], &of_user["limit"]), (&json!(1), &json!(1), &limit));
    let stranger = &first["descriptors"][1];
    assert_eq!((&stranger["limit"], &stranger["entries"][0]["value"]), (&Value::Null, &json!("")));
    assert_eq!(
        (&lines[2]["code"], &lines[2]["descriptors"][0]["code"]),
        (&json!("OVER_LIMIT"), &json!("OVER_LIMIT"))
    );
    assert!(lines[2]["descriptors"][0]["reset_ns"].as_u64().is_some_and(|reset| reset > 0), "{}", lines[2]);
    assert!(first.get("trace_id").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_has_the_trace_of_its_call_on_both_paths() {
    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    let logged = Logged::start(&[]);
    let mut client = logged.server.client().await;
    for windows in [false, true] {
        let mut request = tonic::Request::new(tidegate::api::pb::service::RateLimitRequest {
            domain: "edge".into(),
            descriptors: vec![descriptor(&[("user", "a")])],
            hits_addend: 0,
        });
        let traceparent = format!("00-{TRACE}-b7ad6b7169203331-01");
        request.metadata_mut().insert("traceparent", traceparent.parse().expect("ASCII"));
        if windows {
            // Not served on the fast path.
            request.metadata_mut().insert("tidegate-windows", "yes".parse().expect("ASCII"));
        }
        client.0.should_rate_limit(request).await.expect("a decision");
    }
    for line in logged.lines(2) {
        assert_eq!((&line["trace_id"], &line["span_id"]), (&json!(TRACE), &json!("b7ad6b7169203331")));
        assert_eq!(line["peer"], "127.0.0.1");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_hashed_or_omitted_as_the_rules_declare_whatever_the_request_matches() {
    let (folder, salt) = (tempfile::tempdir().expect("a folder"), "a secret");
    let salt_file = folder.path().join("salt");
    std::fs::write(&salt_file, salt).expect("written");
    let logged = Logged::start(&["--decision-log-salt-file", salt_file.to_str().expect("UTF-8")]);
    let mut client = logged.server.client().await;
    let email = ("email", "alice@example.com");
    for entries in [&[email][..], &[email, ("token", "t0ken")], &[("unknown", "x"), email]] {
        client.hit("edge", entries).await.expect("a decision");
    }
    let lines = logged.lines(3);
    let text = read_to_string(logged.path("log")).expect("text");
    assert!(!text.contains("alice") && !text.contains("t0ken"), "{text}");
    // printf 'a secretalice@example.com' | sha256sum | cut -c1-32
    let hashed = json!({"key": "email", "value_hash": "35f5e7fe09c480a8941566c1131ce7b7"});
    assert_eq!(lines[0]["descriptors"][0]["entries"], json!([hashed]));
    assert_eq!(lines[1]["descriptors"][0]["entries"], json!([hashed, {"key": "token"}]));
    assert_eq!(lines[2]["descriptors"][0]["entries"], json!([{"key": "unknown", "value": "x"}, hashed]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sample_has_all_admissions_of_a_client_or_none_and_every_denial() {
    let logged = Logged::start(&["--decision-log-sample", "0.5"]);
    let mut client = logged.server.client().await;
    for user in 0..60 {
        for _ in 0..3 {
            logged.hit(&mut client, &format!("user-{user}")).await;
        }
    }
    let lines = logged.lines_at_end();
    let (denials, admissions): (Vec<_>, Vec<_>) =
        lines.into_iter().partition(|line| line["code"] == "OVER_LIMIT");
    assert_eq!(denials.len(), 60);
    assert!(denials.iter().all(|line| line["sample"] == 1.0));
    assert!(admissions.iter().all(|line| line["sample"] == 0.5));
    let users = users(&admissions);
    // 60 fair coins have between 10 and 50 heads, except with a probability of 1e-7; the hash is fixed in any case.
    assert!((20..=100).contains(&users.len()), "{} lines", users.len());
    for user in &users {
        assert_eq!(users.iter().filter(|other| other == &user).count(), 2, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_rotated_by_size_and_no_line_is_lost() {
    let logged = Logged::start(&["--decision-log-max-bytes", "2000", "--decision-log-keep", "100"]);
    let mut client = logged.server.client().await;
    for user in 0..40 {
        logged.hit(&mut client, &format!("user-{user}")).await;
        // One write for every few lines: a single write is never divided.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let folder = logged.folder.path().to_owned();
    let Logged { server, folder: _guard, .. } = logged;
    assert!(server.terminate().success());
    let mut seen = Vec::new();
    let files: Vec<_> =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() > 2, "{files:?}");
    for file in files {
        let lines = lines_of(&file);
        seen.extend(users(&lines).into_iter().map(str::to_owned));
    }
    seen.sort();
    let mut expected: Vec<_> = (0..40).map(|user| format!("user-{user}")).collect();
    expected.sort();
    assert_eq!(seen, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigusr2_opens_the_path_again_after_a_rename() {
    let logged = Logged::start(&[]);
    let mut client = logged.server.client().await;
    logged.hit(&mut client, "before").await;
    assert_eq!(users(&logged.lines(1)), ["before"]);
    std::fs::rename(logged.path("log"), logged.path("renamed")).expect("renamed");
    logged.server.signal(Signal::USR2);
    eventually_blocking("the log is there", || logged.path("log").exists());
    logged.hit(&mut client, "after").await;
    assert_eq!(users(&logged.lines(1)), ["after"]);
    assert_eq!(users(&lines_of(&logged.path("renamed"))), ["before"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_whose_writer_was_killed_has_whole_lines_and_is_continued() {
    let logged = Logged::start(&[]);
    let mut client = logged.server.client().await;
    for user in 0..20 {
        logged.hit(&mut client, &format!("user-{user}")).await;
    }
    logged.lines(1);
    let path = logged.path("log");
    let Logged { server, folder: _guard, .. } = logged;
    drop(server);
    let before = lines_of(&path).len();
    assert!(before >= 1);
    // A kill in the middle of a write leaves a part of a line. A test cannot choose the moment to cut a system call, so it writes such a
    // part.
    let mut text = read_to_string(&path).expect("text");
    let whole = text.rfind('\n').expect("a line") + 1;
    text.truncate(whole);
    text.push_str("{\"v\":1,\"time\":\"20");
    std::fs::write(&path, &text).expect("written");
    assert_eq!(lines_of(&path).len(), before, "a reader ignores a part of a line at the end");
    let server = Server::start(&["--decision-log", path.to_str().expect("UTF-8")]);
    server.client().await.hit("demo", &[("api_key", "a")]).await.expect("a decision");
    assert!(server.terminate().success());
    let text = read_to_string(&path).expect("text");
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("a whole line");
    assert_eq!(last["domain"], "demo");
}

/// The log had no rules: readers had to know which rules were in force at each line.
#[tokio::test(flavor = "multi_thread")]
async fn each_file_begins_with_the_rules_in_force_and_their_texts_only_if_no_value_is_redacted() {
    let rules_line = |args: &[&str], rules: &str| {
        let (folder, rules) = (tempfile::tempdir().expect("a folder"), rules_file(rules));
        let log = folder.path().join("log");
        let path = log.to_str().expect("temporary paths are UTF-8");
        let server = Server::with_rules(rules.path(), &[&["--decision-log", path], args].concat());
        let first = || read_to_string(&log).ok()?.split_once('\n').map(|(first, _)| first.to_owned());
        let line: Value = serde_json::from_str(&eventually_blocking("a first line", first)).expect("JSON");
        assert!(server.terminate().success());
        assert_eq!(
            (&line["v"], &line["seq"], &line["generation"]),
            (&json!(2), &json!(1), &json!(1)),
            "{line}"
        );
        let source = line["rules"]["sources"][0].clone();
        assert_eq!((&source["kind"], source["sha256"].as_str().map(str::len)), (&json!("file"), Some(64)));
        source["text"].as_str().map(str::to_owned)
    };
    let plain = RULES.replace("log: hash", "log: plain").replace("log: omit", "log: plain");
    assert_eq!(rules_line(&[], &plain).as_deref(), Some(&*plain));
    assert_eq!(rules_line(&[], RULES), None, "rules may contain values that are hashed or omitted");
    assert_eq!(rules_line(&["--decision-log-rules", "text"], RULES).as_deref(), Some(RULES));
    assert_eq!(rules_line(&["--decision-log-rules", "hash"], &plain), None);
    assert_eq!(rules_line(&["--decision-log-values", "hash"], &plain), None);
}

#[test]
fn a_log_that_cannot_be_opened_ends_the_start_with_its_path() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--decision-log", "/nowhere/decisions.log"])
        .output()
        .expect("the binary runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("cannot open the decision log /nowhere/decisions.log: No such file"), "{errors}");
}
