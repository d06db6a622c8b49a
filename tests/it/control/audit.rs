//! The audit log of a real server: nothing changes without a line.

use super::{Controlled, RULES};
use crate::support::{Server, rules_file};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, net::Ipv4Addr, path::Path, process::Command};
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

const AUDIT_FLAG: &str = "--audit-log";

fn lines(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).expect("the log");
    text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect()
}

/// The ids of blocks that the log names with this outcome.
fn blocks_of(log: &Path, outcome: &str) -> BTreeSet<String> {
    let of = |line: &Value| {
        let details: Value = serde_json::from_str(line["details"].as_str()?).ok()?;
        let is_of = line["action"] == "SetBlock" && line["outcome"] == outcome;
        is_of.then(|| details["block"]["id"].as_str().map(str::to_owned))?
    };
    lines(log).iter().filter_map(of).collect()
}

async fn blocks_in_force(shop: &Controlled) -> BTreeSet<String> {
    let listed = shop.operate("ListBlocks", json!({})).await;
    let blocks = listed["blocks"].as_array().cloned().unwrap_or_default();
    blocks.iter().filter_map(|block| block["id"].as_str().map(str::to_owned)).collect()
}

/// 50 of 51 blocks in force had no line: the handler wrote the line after the change, and the change continued when the call was cancelled.
#[tokio::test]
async fn a_change_whose_call_is_cancelled_has_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("audit.jsonl");
    let shop = Controlled::start(RULES, &[AUDIT_FLAG, log.to_str().expect("UTF-8")]);
    for number in 0..40 {
        let body =
            json!({ "block": { "id": format!("b{number}"), "key": "user", "value": "x" } }).to_string();
        let head = format!(
            "POST /control/v1/SetBlock HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {}\r\ncontent-length: {}\r\n\r\n",
            shop.operate,
            body.len(),
        );
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, shop.port)).await.expect("connects");
        stream.write_all((head + &body).as_bytes()).await.expect("sent");
        // Waits while other calls are made, so that resets arrive at several stages of the change.
        for _ in 0..number % 4 {
            // By another caller, since one caller may call a hundred times a second.
            shop.call(&shop.read, "ListBlocks", &json!({})).await;
        }
        stream.set_zero_linger().expect("an option of TCP");
    }
    // This change is made, and its outcome logged, after the other changes.
    shop.operate("SetBlock", json!({ "block": { "id": "last", "key": "user", "value": "x" } })).await;
    let in_force = blocks_in_force(&shop).await;
    assert!(in_force.len() > 1, "{in_force:?}");
    let without_line: Vec<_> = in_force.difference(&blocks_of(&log, "INTENT")).cloned().collect();
    assert_eq!(without_line, [""; 0], "of {}", in_force.len());
}

/// 30 of 30 changes were in force without a line, and the next start refused the line that was cut off.
#[tokio::test]
async fn a_change_that_the_disk_cannot_log_is_refused_and_the_next_start_reads_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let (log, rules) = (folder.path().join("audit.jsonl"), rules_file(RULES));
    let socket = format!("unix:{}", folder.path().join("http").display());
    let args = ["--control", "loopback", "--listen", &socket, AUDIT_FLAG, log.to_str().expect("UTF-8")];
    // Files of 4 or 8 KiB, by the unit of the shell: one process gets the error of a full disk.
    let server = Server::in_shell("trap '' XFSZ; ulimit -f 8", rules.path(), &args);
    let block = |id: &str, address: &str| {
        let args = ["ctl", "--addr", address, "--json", "block", "set", "user=x", "--id", id];
        let set = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("the command runs");
        (set.status.success(), String::from_utf8_lossy(&set.stderr).into_owned())
    };
    let (mut set, mut errors) = (BTreeSet::new(), Vec::new());
    for number in 0..30 {
        let id = format!("b{number}");
        match block(&id, &socket) {
            (true, _) => _ = set.insert(id),
            (false, error) => errors.push(error),
        }
    }
    assert!(!set.is_empty() && !errors.is_empty(), "{set:?} {errors:?}");
    assert!(errors.iter().all(|error| error.contains("cannot be written")), "{errors:?}");
    assert_eq!(server.logged("cannot write the audit log; changes are refused").len(), 1);
    assert!(set.is_subset(&blocks_of(&log, "INTENT")), "{set:?}");
    assert!(server.terminate().success());

    fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .and_then(|mut log| std::io::Write::write_all(&mut log, b"{\"num"))
        .expect("written");
    let server = Server::in_shell("true", rules.path(), &args);
    assert!(block("after", &socket).0);
    assert!(server.terminate().success());
    let verify = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(["audit", "verify"]).arg(&log).output();
    let verify = verify.expect("the command runs");
    assert!(verify.status.success(), "{verify:?}");
}

/// Six of six reloads had no line: the last recorded load was the override's load.
#[tokio::test]
async fn a_reload_followed_by_an_override_has_a_line() {
    let shop = Controlled::start(RULES, &[]);
    for limit in [4, 5, 6] {
        let rules = RULES.replace("requests_per_unit: 3", &format!("requests_per_unit: {limit}"));
        fs::write(shop.rules.path(), rules).expect("written");
        while shop.server.logged("rules reloaded").iter().filter(|line| line.contains("files")).count()
            < limit - 3
        {
            tokio::task::yield_now().await;
        }
        shop.operate(
            "SetBlock",
            json!({ "block": { "id": "b", "key": "user", "value": limit.to_string() } }),
        )
        .await;
        let is_logged = |line: &String| line.contains("RulesLoaded") && line.contains("audit");
        while shop.server.log().iter().filter(|line| is_logged(line)).count() < limit - 2 {
            tokio::task::yield_now().await;
        }
    }
    let audit = shop.operate("ListAudit", json!({})).await;
    let entries = audit["entries"].as_array().expect("entries");
    let of = |feed: &str| entries.iter().filter(|entry| entry["details"].to_string().contains(feed)).count();
    assert_eq!((of("files"), of("start")), (3, 1), "{audit}");
}

/// 613 lines in six seconds, from callers with the role `read`: earlier changes dropped out of the list.
#[tokio::test]
async fn calls_denied_for_their_role_get_a_hundred_lines_a_minute() {
    let shop = Controlled::start(RULES, &[]);
    for _ in 0..150 {
        let (status, _) = shop.call(&shop.read, "SetBlock", &json!({})).await;
        assert!(matches!(status, 403 | 429), "{status}");
    }
    shop.operate("Reset", json!({ "domain": "shop" })).await;
    let audit = shop.operate("ListAudit", json!({ "limit": 1000 })).await;
    let entries = audit["entries"].as_array().expect("entries");
    let denied = entries.iter().filter(|entry| entry["outcome"] == "PERMISSION_DENIED").count();
    // The window slides while the calls are made.
    assert!((1..=110).contains(&denied), "{denied}");
}
