//! A start with rule files that have errors: the server uses the last valid rules from the data directory.

use crate::support::{Server, eventually, http1};
use serde_json::Value;
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const KEPT: &str = "data/last-valid-rules.json";
const BROKEN: &str =
    "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {unit: day, requests_per_unit: many}\n";

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("it is written");
    }

    fn start(&self, args: &[&str]) -> Server {
        let data = self.path("data");
        let common = ["--http-listen", "127.0.0.1:0", "--data", data.to_str().expect("UTF-8")];
        Server::with_rules(&self.path("rules.yaml"), &[&common[..], args].concat())
    }

    /// The error of a start that fails.
    fn refused(&self, args: &[&str]) -> String {
        let (rules, data) = (self.path("rules.yaml"), self.path("data"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--rules"])
            .arg(rules)
            .arg("--data")
            .arg(data)
            .args(args);
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// Waits until these rules are kept.
    async fn keeps(&self, text: &str) {
        eventually("the rules are kept", async || {
            let kept = fs::read_to_string(self.path(KEPT)).unwrap_or_default();
            if kept.contains(text) { Ok(()) } else { Err(kept) }
        })
        .await;
    }
}

fn limit(requests: u32) -> String {
    format!(
        "domain: d\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: {requests}}}\n"
    )
}

async fn page(server: &Server, path: &str) -> String {
    let response = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get(path)).await;
    String::from_utf8(response.expect("a response").into_body()).expect("text")
}

async fn limit_of(server: &Server) -> Option<u32> {
    let response = server.client().await.hit("d", &[("k", "x")]).await.expect("a decision");
    response.statuses[0].current_limit.as_ref().map(|limit| limit.requests_per_unit)
}

#[tokio::test]
async fn a_start_with_broken_files_serves_the_rules_that_were_valid_last() {
    let folder = Folder::new();
    folder.write("rules.yaml", &limit(7));
    let server = folder.start(&[]);
    folder.keeps("requests_per_unit: 7").await;
    folder.write("rules.yaml", &limit(8));
    folder.keeps("requests_per_unit: 8").await;
    assert_eq!(server.metric("tidegate_rules_last_load_successful").await, 1);
    drop(server);

    folder.write("rules.yaml", BROKEN);
    let server = folder.start(&[]);
    assert_eq!(limit_of(&server).await, Some(8));
    assert_eq!(server.metric("tidegate_rules_last_load_successful").await, 0);
    server.logged("starting with the rules that were valid last: the present ones have errors");
    assert_eq!(server.logged("\\\"many\\\" is not a whole number").len(), 1, "each error is logged once");
    let ready = page(&server, "/readyz").await;
    assert!(ready.starts_with("serving\nrules: those valid last are in force, of 20"), "{ready}");
    let status: Value = serde_json::from_str(&page(&server, "/rules/status").await).expect("JSON");
    assert_eq!(status["last_load_successful"], false);
    assert_eq!(status["failing"]["files"][0]["line"], 4, "{status}");
    assert!(status["kept_from_unix_seconds"]["files"].is_number(), "{status}");

    // The rules stay kept, and a valid file is loaded as always.
    drop(server);
    let server = folder.start(&[]);
    assert_eq!(limit_of(&server).await, Some(8));
    folder.write("rules.yaml", &limit(9));
    folder.keeps("requests_per_unit: 9").await;
    server.logged("rules are valid again");
    assert_eq!(server.metric("tidegate_rules_last_load_successful").await, 1);
    assert_eq!(page(&server, "/readyz").await, "serving\n");
    assert_eq!(limit_of(&server).await, Some(9));
}

#[tokio::test]
async fn strict_rules_other_files_and_damage_fail_the_start() {
    let folder = Folder::new();
    folder.write("rules.yaml", BROKEN);
    let error = folder.refused(&[]);
    assert!(
        error.contains("is not a whole number") && !error.contains("kept"),
        "nothing is kept yet: {error}"
    );
    folder.write("rules.yaml", &limit(7));
    let server = folder.start(&[]);
    folder.keeps("requests_per_unit: 7").await;
    drop(server);
    folder.write("rules.yaml", BROKEN);
    assert!(folder.refused(&["--strict-rules"]).contains("is not a whole number"));
    let other = folder.path("other.yaml");
    let error = folder.refused(&["--rules", other.to_str().expect("UTF-8")]);
    assert!(error.contains("and are not used for others"), "{error}");
    let kept = fs::read_to_string(folder.path(KEPT)).expect("it is there");
    // A file as after a crash of the machine, on a file system that does not keep synced data.
    folder.write(KEPT, &kept[..kept.len() / 2]);
    let error = folder.refused(&[]);
    assert!(error.contains("is not a whole number") && error.contains("last-valid-rules.json"), "{error}");
    folder.write(KEPT, &kept.replace("\"format\":1", "\"format\":9"));
    assert!(folder.refused(&[]).contains("have format 9"));
    // `--check` reports on the files, whatever is kept.
    folder.write(KEPT, &kept);
    assert!(folder.refused(&["--check"]).contains("is not a whole number"));
}

/// At any moment the file contains one of the rule sets as a whole.
#[tokio::test]
async fn a_kill_while_rules_are_kept_leaves_one_of_them() {
    let folder = Folder::new();
    let filler = "# filler\n".repeat(100_000);
    folder.write("rules.yaml", &format!("{}{filler}", limit(1)));
    drop(folder.start(&[]));
    for round in 0..3 {
        let server = folder.start(&[]);
        folder.keeps("filler").await;
        for requests in 1..4 + round {
            replace(&folder.path("rules.yaml"), &format!("{}{filler}", limit(requests)));
            server.signal(rustix::process::Signal::HUP);
        }
        // The server is killed at once.
        drop(server);
        let good = fs::read(folder.path("rules.yaml")).expect("it is there");
        folder.write("rules.yaml", BROKEN);
        let server = folder.start(&[]);
        assert!(limit_of(&server).await.is_some_and(|limit| (1..8).contains(&limit)), "one of them");
        drop(server);
        fs::write(folder.path("rules.yaml"), good).expect("it is written");
    }
}

fn replace(path: &Path, text: &str) {
    let next = path.with_extension("next");
    fs::write(&next, text).expect("it is written");
    fs::rename(next, path).expect("it is renamed");
}

/// Files of blocks have errors of their own: the present rules are used.
#[tokio::test]
async fn broken_blocks_alone_are_replaced_by_kept_ones() {
    let folder = Folder::new();
    folder.write("rules.yaml", &limit(7));
    folder.write("blocks", "k=bad\n");
    let blocks = folder.path("blocks");
    let args = ["--blocks", blocks.to_str().expect("UTF-8")];
    let server = folder.start(&args);
    folder.keeps("k=bad").await;
    drop(server);
    folder.write("rules.yaml", &limit(8));
    folder.write("blocks", "k=10.0.0.0/99\n");
    let server = folder.start(&args);
    assert_eq!(limit_of(&server).await, Some(8));
    let mut client = server.client().await;
    let denied = client.hit("d", &[("k", "bad")]).await.expect("a decision");
    assert_eq!(denied.overall_code, 2, "the kept block is in force");
    let status: Value = serde_json::from_str(&page(&server, "/rules/status").await).expect("JSON");
    assert!(status["failing"]["blocks"].is_array() && status["failing"]["files"].is_null(), "{status}");
}
