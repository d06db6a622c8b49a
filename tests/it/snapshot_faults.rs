//! Data directories that are in use, damaged, full or empty.

use crate::support::{Client, Server, rules_file};
use rustix::process::Signal;
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tidegate::api::pb::service::rate_limit_response::Code;

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { per: 3660d, requests_per_unit: 1000, algorithm: fixed_window }
";

fn start(rules: &Path, data: &Path, more: &[&str]) -> Server {
    start_at(rules, data, "50ms", more)
}

fn start_at(rules: &Path, data: &Path, interval: &str, more: &[&str]) -> Server {
    let data = data.to_str().expect("temporary paths are UTF-8");
    let arguments = ["--data", data, "--snapshot-interval", interval, "--log", "tidegate=debug,info"];
    Server::with_rules(rules, &[&arguments[..], more].concat())
}

/// Starts a server that is expected to refuse to start.
fn refused(data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .output()
        .expect("the program runs")
}

async fn hit(client: &mut Client, user: &str) -> u32 {
    let answer = client.hit("d", &[("user", user)]).await.expect("the server decides");
    assert_eq!(answer.overall_code(), Code::Ok);
    answer.statuses[0].limit_remaining
}

/// On two threads: while one thread waits for the server's end, the other closes the client's connection, for which the server waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clean_stop_loses_nothing() {
    let (data, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    for round in 0..3 {
        let server = start_at(rules.path(), data.path(), "1h", &[]);
        let mut client = server.client().await;
        for hits in 1..=5 {
            assert_eq!(hit(&mut client, "alice").await, 1000 - round * 5 - hits);
        }
        drop(client);
        assert!(server.terminate().success());
    }
}

#[tokio::test]
async fn a_second_process_is_refused_with_the_id_of_the_first() {
    let (data, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    let server = start(rules.path(), data.path(), &[]);
    let output = refused(data.path());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains(&format!("process {}", server.pid())), "{error}");
    // A process that was killed leaves no obstacle.
    server.signal(Signal::KILL);
    drop(server);
    drop(start(rules.path(), data.path(), &[]));
}

#[tokio::test]
async fn a_damaged_snapshot_refuses_the_start_until_it_is_discarded_and_is_kept() {
    let (data, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    let server = start(rules.path(), data.path(), &[]);
    hit(&mut server.client().await, "alice").await;
    assert!(server.terminate().success());
    let manifest = data.path().join("manifest");
    let good = fs::read(&manifest).unwrap();
    fs::write(&manifest, &good[1..]).unwrap();

    let output = refused(data.path());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{error}");
    assert!(error.contains("it is damaged") && error.contains("--on-bad-snapshot discard"), "{error}");
    assert_eq!(fs::read(&manifest).unwrap(), good[1..], "a refused start changes nothing");

    let server = start(rules.path(), data.path(), &["--on-bad-snapshot", "discard"]);
    assert_eq!(hit(&mut server.client().await, "alice").await, 999, "it starts with no counters");
    assert!(server.terminate().success());
    let aside = fs::read_dir(data.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside: Vec<_> = aside.filter(|path| path.to_string_lossy().contains("bad-")).collect();
    assert_eq!(fs::read(aside[0].join("manifest")).unwrap(), good[1..]);
}

#[tokio::test]
async fn a_restart_with_other_rules_keeps_the_hits_counted() {
    let (data, rules) = (tempfile::tempdir().unwrap(), rules_file(RULES));
    let server = start(rules.path(), data.path(), &[]);
    hit(&mut server.client().await, "alice").await;
    assert!(server.terminate().success());
    let changed = rules_file(&RULES.replace("1000", "500").replace("fixed_window", "sliding_window"));
    let server = start(changed.path(), data.path(), &[]);
    assert_eq!(hit(&mut server.client().await, "alice").await, 498);
}
