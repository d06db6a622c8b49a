//! Targets that accept no lines, or not all: decisions are not delayed, and lost lines are counted.

use super::{RULES, lines_of, users};
use crate::support::{Server, eventually_blocking, http1, rules_file};
use rustix::process::Signal;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    os::unix::net::UnixListener,
    time::Duration,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_takes_nothing_delays_no_decision_and_loses_counted_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("collector");
    // The kernel accepts connections and nothing reads: writes block once the buffer is full.
    let listener = UnixListener::bind(&socket).expect("bound");
    let target = format!("unix:{}", socket.display());
    let rules = rules_file(RULES);
    let server = Server::with_rules(
        rules.path(),
        &["--threads", "1", "--decision-log", &target, "--decision-log-queue-bytes", "20000"],
    );
    let mut client = server.client().await;
    let value = "v".repeat(4_000);
    for _ in 0..300 {
        let entries = [("user", value.as_str())];
        let decided = tokio::time::timeout(Duration::from_secs(5), client.hit("edge", &entries));
        decided.await.expect("a decision does not wait for the log").expect("a decision");
    }
    // The collector reads again: the log states how many decisions are missing.
    let (found, missing) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                let _ = line["dropped"].as_u64().map(|count| found.send(count));
            }
        }
    });
    let missing = tokio::task::spawn_blocking(move || missing.recv_timeout(Duration::from_secs(20)));
    let missing = missing.await.expect("it ends").expect("the number of missing decisions");
    assert!((1..=300).contains(&missing), "{missing}");
}

/// The lines that the metrics count under a result.
async fn counted(server: &Server, result: &str) -> u64 {
    let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get("/metrics")).await;
    let page = String::from_utf8(page.expect("a page").into_body()).expect("UTF-8");
    let series = format!("tidegate_decision_log_lines_total{{result=\"{result}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series)).unwrap_or_else(|| panic!("{page}"));
    line.parse().expect("a number")
}

/// Each failed write used to log a line: twenty a second.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_down_is_one_line_in_the_log_and_its_return_another() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("collector");
    let target = format!("unix:{}", socket.display());
    let rules = rules_file(RULES);
    let args = ["--http-listen", "127.0.0.1:0", "--decision-log", &target];
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    let (mut failed, mut writes) = (0, 0);
    while writes < 4 {
        client.hit("edge", &[("user", "a")]).await.expect("a decision");
        let counted = counted(&server, "failed").await;
        writes += u64::from(counted > failed);
        failed = counted;
    }
    let stated = |message: &str| server.log().iter().filter(|line| line.contains(message)).count();
    assert_eq!(stated("cannot write the decision log"), 1, "{:#?}", server.log());
    let _collector = UnixListener::bind(&socket).expect("bound");
    while counted(&server, "written").await == 0 {
        client.hit("edge", &[("user", "a")]).await.expect("a decision");
    }
    server.logged("the decision log is written again");
    assert_eq!(stated("cannot write the decision log"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_loses_counted_lines_and_delays_no_decision_and_the_log_recovers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    // A device that takes no byte: ENOSPC.
    std::os::unix::fs::symlink("/dev/full", &path).expect("linked");
    let rules = rules_file(RULES);
    let log = path.to_str().expect("temporary paths are UTF-8");
    let server = Server::with_rules(rules.path(), &["--http-listen", "127.0.0.1:0", "--decision-log", log]);
    let mut client = server.client().await;
    let mut decided = 0;
    while counted(&server, "failed").await == 0 {
        let entries = [("user", "a")];
        let decision = tokio::time::timeout(Duration::from_secs(5), client.hit("edge", &entries));
        decision.await.expect("a decision does not wait for the log").expect("a decision");
        decided += 1;
        assert!(decided < 10_000, "no line failed");
    }
    assert_eq!(counted(&server, "written").await, 0);
    server.logged("cannot write the decision log; its lines are dropped and counted");
    std::fs::remove_file(&path).expect("removed");
    server.signal(Signal::USR2);
    eventually_blocking("the log is there", || path.exists());
    client.hit("edge", &[("user", "after")]).await.expect("a decision");
    let lines = eventually_blocking("the last line", || {
        Some(lines_of(&path)).filter(|lines| users(lines).contains(&"after"))
    });
    assert!(counted(&server, "written").await >= lines.len() as u64 - 1);
    assert!(server.terminate().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_restarts_gets_the_lines_from_then_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("collector");
    let target = format!("unix:{}", socket.display());
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &["--decision-log", &target]);
    let mut client = server.client().await;
    for generation in ["first", "second"] {
        let listener = UnixListener::bind(&socket).expect("bound");
        let collector = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("a connection");
            let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
            let first = lines.next().expect("a line");
            assert!(first.contains("\"rules\":{"), "the rules precede: {first}");
            let mut decisions = lines.map(|line| serde_json::from_str(&line).expect("a whole line"));
            // The last decisions of the earlier generation may still be on their way.
            decisions.any(|line: Value| users(&[line]) == [generation])
        });
        // Decisions without a collector are lost: a line is due only once it has started.
        for _ in 0..1_000 {
            client.hit("edge", &[("user", generation)]).await.expect("a decision");
            tokio::time::sleep(Duration::from_millis(20)).await;
            if collector.is_finished() {
                break;
            }
        }
        assert!(collector.is_finished(), "no line of a decision in 20 s");
        assert!(collector.join().expect("the rules and whole lines"), "the connection ended");
        std::fs::remove_file(&socket).expect("removed");
    }
}
