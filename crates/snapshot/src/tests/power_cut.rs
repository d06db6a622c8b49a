//! A power cut at any moment of a snapshot, on a disk that keeps only what was synced.

use super::{RULES, content, count, key, limit, limiter, pass, start_of_time};
use crate::{
    disk::{
        durability::{SyncCall, sync},
        sled_disk::SledDisk,
    },
    restore::restore,
    write::Writer,
};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use tidegate_core::{
    algorithm::State,
    limiter::Limiter,
    store::{Counter, Seed, Store},
};

/// Hits of a counter whose record fits in no segment.
const LONG_LOG: u64 = 200_000;

/// Identity of a file. The number alone is not enough, as a new file may have the number of a removed one.
type FileId = (u64, Option<SystemTime>);

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.ino(), metadata.created().ok())
}

/// The files after a power cut: directories and content as of their last sync. Calls that sled makes by itself do not count.
#[derive(Clone, Default)]
struct Durable {
    /// The files in each directory: name, file, and whether it is a directory.
    names: HashMap<FileId, Vec<(String, FileId, bool)>>,
    content: HashMap<FileId, Vec<u8>>,
    root: Option<FileId>,
}

impl Durable {
    /// Writes the durable files to another directory.
    fn write_to(&self, directory: &Path, of: FileId) {
        fs::create_dir_all(directory).unwrap();
        for (name, file, is_directory) in self.names.get(&of).into_iter().flatten() {
            let path = directory.join(name);
            if *is_directory {
                self.write_to(&path, *file);
            } else {
                fs::write(&path, self.content.get(file).map_or(&[][..], Vec::as_slice)).unwrap();
            }
        }
    }
}

/// Records the durable files after each system call that makes a file durable.
#[derive(Default)]
struct Recorder {
    state: Mutex<Durable>,
    /// The states after each call.
    states: Mutex<Vec<(&'static str, PathBuf, Durable)>>,
}

impl Recorder {
    fn record(&self, call: &'static str, path: &Path, change: impl FnOnce(&mut Durable)) {
        let mut state = self.state.lock();
        change(&mut state);
        self.states.lock().push((call, path.to_owned(), state.clone()));
    }
}

impl Recorder {
    fn sync(&self, path: &Path) -> io::Result<()> {
        sync(path)?;
        if !path.is_dir() {
            let (file, content) = (file_id(&fs::metadata(path)?), fs::read(path)?);
            self.record("the sync of the file", path, |durable| drop(durable.content.insert(file, content)));
            return Ok(());
        }
        let mut names = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let (name, metadata) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?);
            names.push((name, file_id(&metadata), metadata.is_dir()));
        }
        let directory = file_id(&fs::metadata(path)?);
        self.record("the sync of the directory", path, |durable| {
            drop(durable.names.insert(directory, names))
        });
        Ok(())
    }
}

/// A call that is recorded.
fn recorded(recorder: &Arc<Recorder>) -> Arc<SyncCall> {
    let recorder = Arc::clone(recorder);
    Arc::new(move |path: &Path| recorder.sync(path))
}

fn start(directory: &Path, sync: Arc<SyncCall>, context: &str) -> (Limiter, Writer) {
    let build = |seed| limiter(RULES, seed, 1_000_000);
    let disk = Box::new(SledDisk::new(directory).with_sync(sync));
    let started = restore(disk, None, Seed::from_bytes([1; 16]), build, start_of_time(), |_| {});
    let (limiter, writer, _) = started.unwrap_or_else(|error| panic!("{context}: {error}"));
    (limiter, writer)
}

/// A power cut could lose the database to which the manifest referred: "record 0 is missing".
#[test]
fn a_power_cut_at_any_moment_leaves_a_committed_snapshot() {
    let (directory, now) = (tempfile::tempdir().unwrap(), start_of_time());
    let recorder = Arc::new(Recorder::default());
    recorder.state.lock().root = Some(file_id(&fs::metadata(directory.path()).unwrap()));
    let (limiter, mut writer) = start(directory.path(), recorded(&recorder), "an empty directory");
    let mut allowed: Vec<BTreeMap<_, _>> = vec![content(&limiter, now)];
    let mut checked = 0;
    // The first pass writes everything. So do some later passes, when the log has grown.
    for round in 0..8 {
        (0..12_000).for_each(|number| count(&limiter, key(number * 3 + round), "user", 1, now));
        allowed.push(content(&limiter, now));
        pass(&mut writer, &limiter, now).unwrap();
        let states = std::mem::take(&mut *recorder.states.lock());
        assert!(!states.is_empty(), "a snapshot makes nothing durable");
        let last = states.len() - 1;
        for (index, (call, path, durable)) in states.into_iter().enumerate() {
            let left = tempfile::tempdir().unwrap();
            durable.write_to(left.path(), durable.root.expect("it is set above"));
            let after = format!("round {round}, after {call} {}", path.display());
            let (restored, _) = start(left.path(), Arc::new(sync), &after);
            let found = content(&restored, now);
            assert!(allowed[allowed.len() - 2..].contains(&found), "{after}");
            if index == last {
                assert!(found == allowed[allowed.len() - 1], "{after}, the last call: it is not durable");
            }
            checked += 1;
        }
    }
    println!("{checked} power cuts, a committed snapshot after each");
}

/// A record that is too long for a segment has its own file. Its name could be lost although the database referred to it.
#[test]
fn a_power_cut_at_any_moment_leaves_a_committed_snapshot_of_long_records() {
    let (directory, now) = (tempfile::tempdir().unwrap(), start_of_time());
    let recorder = Arc::new(Recorder::default());
    recorder.state.lock().root = Some(file_id(&fs::metadata(directory.path()).unwrap()));
    let (limiter, mut writer) = start(directory.path(), recorded(&recorder), "an empty directory");
    let (id, algorithm) = limit(&limiter, "log");
    let hit = |state, at: u64| algorithm.add(state, 1, now.saturating_add(Duration::from_millis(at)));
    let state = (0..LONG_LOG).map(|at| at * 97 + at * at % 89).fold(State::EMPTY, hit);
    let mut allowed = vec![content(&limiter, now)];
    let mut blobs = 0;
    for round in 0..8 {
        (0..9_000).for_each(|number| count(&limiter, key(number * 3 + round), "user", 1, now));
        let counter = Counter::new(state.clone(), id, now.saturating_add(Duration::from_secs(86_400)));
        assert!(limiter.store().reserve(1));
        let long = key(1_000_000 + round);
        limiter.store().lock(Store::shard_of(long)).insert(long, counter, now);
        allowed.push(content(&limiter, now));
        pass(&mut writer, &limiter, now).unwrap();
        for (call, path, durable) in std::mem::take(&mut *recorder.states.lock()) {
            let left = tempfile::tempdir().unwrap();
            durable.write_to(left.path(), durable.root.expect("it is set above"));
            let after = format!("round {round}, after {call} {}", path.display());
            let (restored, _) = start(left.path(), Arc::new(sync), &after);
            assert!(allowed[allowed.len() - 2..].contains(&content(&restored, now)), "{after}");
            blobs += usize::from(path.parent().is_some_and(|parent| parent.ends_with("blobs")));
        }
    }
    assert!(blobs >= 4, "{blobs} records were in files of their own");
}
