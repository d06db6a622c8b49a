//! A process that is killed at random moments while it writes one snapshot after the other.

use super::{RULES, content, count, key, limiter, pass, random, start_of_time};
use crate::{disk::sled_disk::SledDisk, restore::restore, write::Writer};
use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tidegate_core::{limiter::Limiter, store::Seed};

/// Names the data directory in the process that is killed.
const DIRECTORY: &str = "TIDEGATE_KILLED_DIRECTORY";
/// Sets the number of kills.
const KILLS: &str = "TIDEGATE_KILLS";
const KILLS_DEFAULT: u64 = 12;
/// Several nodes of sled.
const COUNTERS: u64 = 9_000;
/// Number of snapshots after which a process that is not killed ends.
const SNAPSHOTS: u64 = 2_000;
const LIFE_MICROS: u64 = 150_000;
const WRITING: &str = "the first snapshot is written";

fn start(disk: SledDisk) -> (Limiter, Writer) {
    let build = |seed| limiter(RULES, seed, 1_000_000);
    let started = restore(Box::new(disk), None, Seed::from_bytes([1; 16]), build, start_of_time(), |_| {});
    let (limiter, writer, _) = started.unwrap_or_else(|error| panic!("{error}"));
    (limiter, writer)
}

/// Starts with the directory, and writes a snapshot of all counters, then others after hits of some.
fn write_snapshots(directory: &Path) {
    let (limiter, mut writer) = start(SledDisk::new(directory));
    let mut seed = u64::from(std::process::id());
    for snapshot in 0..SNAPSHOTS {
        let from = if snapshot == 0 { 0 } else { random(&mut seed, COUNTERS) };
        (from..COUNTERS).for_each(|number| count(&limiter, key(number), "user", 1, start_of_time()));
        pass(&mut writer, &limiter, start_of_time()).expect("there is room");
        if snapshot == 0 {
            println!("{WRITING}");
        }
    }
}

/// About one killed process in twenty left a directory in which `snapshot verify` found no record: the copy that it read had no index, and
/// without an index sled finds no page in some files whose segments it has reused.
#[test]
fn a_killed_process_leaves_its_last_snapshot() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return write_snapshots(Path::new(&directory));
    }
    let kills = env::var(KILLS).map_or(KILLS_DEFAULT, |text| text.parse().expect("a number of kills"));
    let (directory, mut seed, mut before) = (tempfile::tempdir().unwrap(), 1, BTreeMap::new());
    for kill in 0..kills {
        let mut process = Command::new(env::current_exe().unwrap())
            .args(["a_killed_process_leaves_its_last_snapshot", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let is_writing = lines.any(|line| line.is_ok_and(|line| line.contains(WRITING)));
        thread::sleep(Duration::from_micros(random(&mut seed, LIFE_MICROS)));
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(is_writing, "start {kill} failed; the reason is above");
        let (limiter, _) = start(SledDisk::read_only(directory.path()));
        let after = content(&limiter, start_of_time());
        let is_lost =
            |(key, (_, used)): &(&_, &(String, u64))| after.get(*key).is_none_or(|(_, now)| now < used);
        assert_eq!(before.iter().find(is_lost), None, "kill {kill}");
        before = after;
    }
    assert_eq!(before.len() as u64, COUNTERS);
}
