//! Snapshots on a real disk, and damage to its files.

use super::{RULES, content, count, key, limiter, pass, start_of_time};
use crate::{
    disk::sled_disk::SledDisk,
    read::ReadError,
    restore::{RestoreError, Restored, restore},
    write::Writer,
};
use std::{collections::BTreeMap, fs, path::Path};
use tidegate_core::{
    clock::{Clock, ManualClock},
    limit::Timestamp,
    limiter::Limiter,
    store::{Key, Seed},
};

fn start_on_sled(directory: &Path, now: Timestamp) -> Result<(Limiter, Writer, Restored), RestoreError> {
    let build = |seed| limiter(RULES, seed, 1_000_000);
    let disk = Box::new(SledDisk::new(directory));
    restore(disk, None, Seed::from_bytes([1; 16]), build, now, |_| {})
}

#[test]
fn a_snapshot_on_a_real_disk_is_restored() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), ManualClock::new(start_of_time()));
    let now = clock.now();
    let (mut limiter, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
    for round in 0..4 {
        (0..40_000).for_each(|number| count(&limiter, key(number * (round + 1)), "user", 1, now));
        pass(&mut writer, &limiter, now).unwrap();
        let before = content(&limiter, now);
        drop(writer);
        (limiter, writer, _) = start_on_sled(directory.path(), now).unwrap();
        assert!(content(&limiter, now) == before, "round {round}");
    }
}

/// If a server was killed while sled wrote its index, it could not start again.
#[test]
fn a_partial_index_of_sled_does_not_prevent_a_start() {
    let (directory, now) = (tempfile::tempdir().unwrap(), start_of_time());
    let (limiter, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
    (0..5_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    pass(&mut writer, &limiter, now).unwrap();
    drop(writer);
    let content_of = |limiter: &Limiter| content(limiter, now);
    for (name, half) in [("snap.FFFFFFFFFFFFFFF0.generating", ""), ("snap.FFFFFFFFFFFFFFF1", "half")] {
        fs::write(directory.path().join("generation-1").join(name), half).unwrap();
        let (again, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
        assert!(content_of(&again) == content_of(&limiter));
        pass(&mut writer, &again, now).unwrap();
    }
}

/// One flipped bit in an unneeded file made all counters unreadable. sled never syncs the file, so that a power cut may leave it empty.
#[test]
fn damaged_settings_of_sled_do_not_matter() {
    let (directory, now) = (tempfile::tempdir().unwrap(), start_of_time());
    let (limiter, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
    (0..4_000).for_each(|number| count(&limiter, key(number), "user", 1, now));
    pass(&mut writer, &limiter, now).unwrap();
    drop(writer);
    let settings = directory.path().join("generation-1").join("conf");
    let intact = fs::read(&settings).expect("sled keeps its settings there");
    let flipped = [&[intact[0] ^ 1], &intact[1..]].concat();
    for damaged in [flipped, vec![0; 62], Vec::new()] {
        fs::write(&settings, &damaged).unwrap();
        let (again, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
        assert!(content(&again, now) == content(&limiter, now));
        pass(&mut writer, &again, now).unwrap();
    }
}

/// Copies the directory and damages one file. Either the start is refused, or the counters are as written.
fn damage_is_seen(
    directory: &Path,
    file: &str,
    expected: &BTreeMap<Key, (String, u64)>,
    change: impl Fn(&mut Vec<u8>),
) {
    let copy = tempfile::tempdir().unwrap();
    for entry in files_below(directory) {
        let to = copy.path().join(entry.strip_prefix(directory).unwrap());
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(entry, to).unwrap();
    }
    let path = copy.path().join(file);
    let mut bytes = fs::read(&path).unwrap();
    change(&mut bytes);
    fs::write(&path, bytes).unwrap();
    match start_on_sled(copy.path(), start_of_time()) {
        Ok((limiter, ..)) => {
            let found = content(&limiter, start_of_time());
            assert!(found == *expected, "{file} was damaged and read all the same");
        }
        Err(error) => {
            assert!(
                matches!(error, RestoreError::Read(ReadError::Damaged(_) | ReadError::Newer(_))),
                "{error}"
            );
        }
    }
}

fn files_below(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[test]
fn damage_anywhere_in_the_files_is_an_error_or_changes_nothing() {
    let (directory, now) = (tempfile::tempdir().unwrap(), start_of_time());
    let (limiter, mut writer, _) = start_on_sled(directory.path(), now).unwrap();
    for round in 0..3 {
        (0..40).for_each(|number| count(&limiter, key(number + round * 20), "user", 1, now));
        pass(&mut writer, &limiter, now).unwrap();
    }
    drop(writer);
    let expected = content(&limiter, now);
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: usize| super::random(&mut seed, below.max(1) as u64) as usize;
    for path in files_below(directory.path()) {
        let file = path.strip_prefix(directory.path()).unwrap().to_str().unwrap();
        let bytes = fs::read(&path).unwrap();
        // After the last record, most of a sled file is zeros.
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        for _ in 0..60 {
            let (at, bit, cut) = (random(used), random(8), random(used));
            damage_is_seen(directory.path(), file, &expected, |bytes| bytes[at] ^= 1 << bit);
            damage_is_seen(directory.path(), file, &expected, |bytes| bytes.truncate(cut));
        }
    }
}
