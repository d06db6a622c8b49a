//! A file system that fills up under a real server.

use crate::support::{Client, Server, descriptor, eventually, rules_file};
use rustix::process::Signal;
use std::{fs, path::Path, process::Command, time::Duration};
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::clock::{Clock, SystemClock};

const RULES: &str = "
domain: d
descriptors:
  - key: user
    rate_limit: { per: 3660d, requests_per_unit: 1000, algorithm: fixed_window }
";

fn start_at(rules: &Path, data: &Path, interval: &str, more: &[&str]) -> Server {
    let data = data.to_str().expect("temporary paths are UTF-8");
    let arguments = ["--data", data, "--snapshot-interval", interval, "--log", "tidegate=debug,info"];
    Server::with_rules(rules, &[&arguments[..], more].concat())
}

async fn hit(client: &mut Client, user: &str) -> u32 {
    let answer = client.hit("d", &[("user", user)]).await.expect("the server decides");
    assert_eq!(answer.overall_code(), Code::Ok);
    answer.statuses[0].limit_remaining
}

fn messages(server: &Server, message: &str) -> usize {
    server.log().iter().filter(|line| line.contains(message)).count()
}

/// Waits until the server has logged the message more often than `times`.
async fn logged_more(server: &Server, message: &str, times: usize) {
    eventually(message, async || match messages(server, message) > times {
        true => Ok(()),
        false => Err(server.log()),
    })
    .await;
}

/// A small file system in memory; unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "tmpfs"]).arg(directory.path());
        let done = mount.output().ok()?;
        done.status.success().then_some(Self(directory))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

async fn decisions_continue_on_a_full_disk_and_snapshots_recover() {
    let (disk, rules) = (SmallDisk::mount("size=3m").expect("mounting works"), rules_file(RULES));
    let data = disk.0.path().join("data");
    let server = start_at(rules.path(), &data, "50ms", &[]);
    let mut client = server.client().await;
    hit(&mut client, "alice").await;
    // Waits for one more snapshot, since a snapshot may have begun before the hit.
    logged_more(&server, "snapshot written", messages(&server, "snapshot written") + 1).await;

    let filler = disk.0.path().join("filler");
    let filled = fs::write(&filler, vec![1; 4 << 20]);
    assert!(filled.is_err(), "the disk is not full");
    let mut left = 999;
    while messages(&server, "snapshot failed") < 3 {
        left -= 1;
        assert_eq!(hit(&mut client, "alice").await, left, "a full disk changes no decision");
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(left > 100, "writing to a full disk never failed: {:#?}", server.log());
    }

    fs::remove_file(&filler).unwrap();
    let written = messages(&server, "snapshot written");
    left -= 1;
    assert_eq!(hit(&mut client, "alice").await, left);
    logged_more(&server, "snapshot written", written + 1).await;
    server.signal(Signal::KILL);
    drop((client, server));
    let server = start_at(rules.path(), &data, "50ms", &[]);
    assert_eq!(
        hit(&mut server.client().await, "alice").await,
        left - 1,
        "a snapshot was written before it was killed"
    );
    drop(server);
}

/// Counts one hit for each of this many users.
async fn hit_many(client: &mut Client, users: usize) {
    let users: Vec<String> = (0..users).map(|user| format!("user-{user}")).collect();
    for some in users.chunks(100) {
        let descriptors = some.iter().map(|user| descriptor(&[("user", user)])).collect();
        client.should_rate_limit("d", descriptors).await.expect("the server decides");
    }
}

/// The server used to write no further snapshot, count no failure and ignore SIGTERM; `verify` and a start needed space to read.
async fn a_disk_that_fills_up_during_a_large_snapshot_delays_neither_stop_nor_start() {
    const USERS: usize = 40_000;
    let (disk, rules) = (SmallDisk::mount("size=24m").expect("mounting works"), rules_file(RULES));
    let data = disk.0.path().join("data");
    let server =
        start_at(rules.path(), &data, "300ms", &["--max-descriptors", "100", "--snapshot-timeout", "3s"]);
    let mut client = server.client().await;
    hit_many(&mut client, USERS).await;
    hit(&mut client, "alice").await;
    // Waits for one more snapshot, since a snapshot may have begun before the hit.
    logged_more(&server, "snapshot written", messages(&server, "snapshot written") + 1).await;

    let filler = disk.0.path().join("filler");
    let filling = std::thread::spawn({
        let filler = filler.clone();
        move || fs::write(filler, vec![1; 24 << 20]).expect_err("the disk is not full")
    });
    hit_many(&mut client, USERS).await;
    filling.join().unwrap();
    logged_more(&server, "snapshot failed", 0).await;
    drop(client);
    let clock = SystemClock::new();
    let stopping = clock.now();
    assert!(!server.terminate().success(), "the last snapshot failed, so the exit code is 1");
    let took = clock.now().since(stopping);
    assert!(took < crate::support::PATIENCE, "the stop took {took:?}");

    let mut verify = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let verified = verify.args(["snapshot", "verify"]).arg(&data).output().expect("the program runs");
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let server = start_at(rules.path(), &data, "300ms", &["--max-descriptors", "100"]);
    let mut client = server.client().await;
    let left = hit(&mut client, "alice").await;
    assert_eq!(left, 998, "the snapshot before the disk was full is restored on the full disk");
    fs::remove_file(&filler).unwrap();
    logged_more(&server, "snapshot written", 0).await;
}

async fn the_decision_log_is_written_again_once_its_full_disk_has_room() {
    let (disk, rules) = (SmallDisk::mount("size=1m").expect("mounting works"), rules_file(RULES));
    let (path, filler) = (disk.0.path().join("log"), disk.0.path().join("filler"));
    let log = path.to_str().expect("temporary paths are UTF-8");
    let server = Server::with_rules(rules.path(), &["--decision-log", log]);
    let mut client = server.client().await;
    assert!(fs::write(&filler, vec![1; 2 << 20]).is_err(), "the disk is not full");
    let mut left = 1_000;
    while messages(&server, "cannot write the decision log; its lines are dropped and counted") == 0 {
        left -= 1;
        assert_eq!(hit(&mut client, "alice").await, left, "a full disk changes no decision");
        assert!(left > 0, "writing to a full disk never failed: {:#?}", server.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fs::remove_file(&filler).unwrap();
    hit(&mut client, "bob").await;
    let is_written = || fs::read_to_string(&path).is_ok_and(|text| text.contains("bob"));
    eventually("a line of bob", async || is_written()).await;
    assert!(server.terminate().success());
    let text = fs::read_to_string(&path).expect("text");
    assert!(text.contains("bob") && text.ends_with('\n'), "{text}");
    for line in text.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
}

/// Whether this process may mount file systems.
pub fn can_mount() -> bool {
    SmallDisk::mount("size=1m").is_some()
}

crate::tests_with! { MOUNT:
    decisions_continue_on_a_full_disk_and_snapshots_recover,
    a_disk_that_fills_up_during_a_large_snapshot_delays_neither_stop_nor_start,
    the_decision_log_is_written_again_once_its_full_disk_has_room,
}
