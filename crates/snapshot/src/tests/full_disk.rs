//! A disk that fills up at random points while a snapshot is written, on in-memory file systems of several sizes. `TIDEGATE_DISK_FULL_RUNS`
//! sets the number of runs. Compiled with the feature `mount`; mounting needs root.

use super::{RULES, content, count, key, limiter, start_of_time};
use crate::{
    SnapshotTask,
    disk::{Disk, DiskError, deadline::DeadlineDisk, sled_disk::SledDisk},
    restore::restore,
    write::Writer,
};
use parking_lot::Mutex;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};
use tidegate_core::{
    clock::{Clock, ManualClock, SystemClock},
    limiter::Limiter,
    store::Seed,
};

const COUNTERS: u64 = 60_000;
const TIMEOUT: Duration = Duration::from_secs(2);
/// The timeout, and the delay of a slow machine.
const STOP_MAX: Duration = Duration::from_secs(4);
/// Room for two snapshots of [`COUNTERS`], which take up to 6 MB each, and for the space that has to stay free.
const SIZES_MB: [u64; 4] = [24, 28, 32, 40];

/// An in-memory file system, unmounted when dropped.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(megabytes: u64) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let size = format!("size={megabytes}m");
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(directory.path()).output();
        assert!(mount.is_ok_and(|mount| mount.status.success()), "mount has to work; it needs root");
        Self(directory)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Fills the file system except for `free` bytes.
    fn fill(&self, free: usize) {
        let path = self.path("filler");
        let mut filler = File::create(&path).expect("a file");
        let block = [1; 4096];
        let error = loop {
            if let Err(error) = filler.write_all(&block) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        let length = filler.metadata().expect("its length").len();
        filler.set_len(length.saturating_sub(free as u64)).expect("it can be cut");
    }

    fn empty(&self) {
        fs::remove_file(self.path("filler")).expect("the filler exists");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Lazily, because an abandoned thread may still have a file open.
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).output();
    }
}

/// Calls a function after a number of appended records.
struct AfterAppends<D> {
    disk: D,
    left: Trigger,
}

type Trigger = Arc<Mutex<Option<(u64, Box<dyn FnOnce() + Send>)>>>;

impl<D: Disk> Disk for AfterAppends<D> {
    fn read_manifest(&mut self) -> Result<Option<Vec<u8>>, DiskError> {
        self.disk.read_manifest()
    }
    fn write_manifest(&mut self, manifest: &[u8]) -> Result<(), DiskError> {
        self.disk.write_manifest(manifest)
    }
    fn generations(&mut self) -> Result<Vec<u64>, DiskError> {
        self.disk.generations()
    }
    fn remove(&mut self, generation: u64) -> Result<(), DiskError> {
        self.disk.remove(generation)
    }
    fn append(&mut self, generation: u64, number: u64, record: Vec<u8>) -> Result<(), DiskError> {
        let due = self.left.lock().take_if(|(left, _)| {
            *left = left.saturating_sub(1);
            *left == 0
        });
        if let Some((_, act)) = due {
            act();
        }
        self.disk.append(generation, number, record)
    }
    fn cut(&mut self, generation: u64, from: u64) -> Result<(), DiskError> {
        self.disk.cut(generation, from)
    }
    fn read(&mut self, generation: u64, number: u64) -> Result<Option<Vec<u8>>, DiskError> {
        self.disk.read(generation, number)
    }
    fn sync(&mut self, generation: u64) -> Result<(), DiskError> {
        self.disk.sync(generation)
    }
    fn close(&mut self) {
        self.disk.close();
    }
    fn bytes(&mut self) -> Result<u64, DiskError> {
        self.disk.bytes()
    }
    fn set_timeout(&mut self, timeout: Duration) {
        self.disk.set_timeout(timeout);
    }
}

fn restore_from(disk: Box<dyn Disk>, directory: &Path) -> (Limiter, Writer) {
    let build = |seed| limiter(RULES, seed, 1_000_000);
    let (limiter, writer, _) = restore(disk, None, Seed::from_bytes([1; 16]), build, start_of_time(), |_| {})
        .unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    (limiter, writer.with_timeout(TIMEOUT))
}

fn start(directory: &Path, trigger: &Trigger, reserves: bool) -> (Limiter, Writer) {
    let path = directory.to_owned();
    let disk = DeadlineDisk::new(directory, move |permit| {
        let disk = SledDisk::new(&path).with_permit(permit);
        Box::new(if reserves { disk } else { disk.without_reservations() })
    });
    let disk = Box::new(AfterAppends { disk, left: Arc::clone(trigger) });
    restore_from(disk, directory)
}

/// The counters that a start would find, on a full disk or with room again.
fn restored(directory: &Path) -> std::collections::BTreeMap<tidegate_core::store::Key, (String, u64)> {
    let (limiter, _) = start(directory, &Trigger::default(), true);
    content(&limiter, start_of_time())
}

fn hit_all(limiter: &Limiter) {
    (0..COUNTERS).for_each(|number| count(limiter, key(number), "user", 1, start_of_time()));
}

#[derive(Default, Debug)]
struct Outcome {
    runs: u64,
    failed: u64,
    hangs: u64,
    lost: usize,
    longest_stop: Duration,
}

/// Commits a snapshot. The disk fills up while the next is written. The process stops and starts again on the full disk. Then there is room
/// again.
fn run(mounted: &Arc<Mounted>, number: u64, random: &mut impl FnMut(u64) -> u64, outcome: &mut Outcome) {
    let directory = mounted.path(&format!("data-{number}"));
    fs::create_dir(&directory).expect("a directory");
    let trigger = Trigger::default();
    let (limiter, mut writer) = start(&directory, &trigger, true);
    let now = start_of_time();
    hit_all(&limiter);
    super::pass(&mut writer, &limiter, now).expect("there is room for the first snapshot");
    let committed = content(&limiter, now);
    hit_all(&limiter);

    let (records, free) = (1 + random(14), random(1 << 20) as usize);
    let filling = Arc::clone(mounted);
    *trigger.lock() = Some((records, Box::new(move || filling.fill(free))));
    let limiter = Arc::new(limiter);
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::new(now));
    let task = SnapshotTask::start(writer, &limiter, &clock, Duration::from_millis(1)).expect("a thread");
    let time = SystemClock::new();
    let began = time.now();
    while task.counts().figures().failures == 0
        && task.counts().figures().passes == 0
        && time.now().since(began) < STOP_MAX * 4
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    outcome.hangs += u64::from(task.counts().figures().failures == 0 && task.counts().figures().passes == 0);
    let counts = Arc::clone(task.counts());
    let stopping = time.now();
    let finished = task.finish();
    outcome.longest_stop = outcome.longest_stop.max(time.now().since(stopping));
    outcome.runs += 1;
    outcome.failed += u64::from(counts.figures().failures > 0);
    assert!(counts.figures().failures > 0 || finished.is_ok(), "a failure is counted");
    let is_full = trigger.lock().take().is_none();

    // The last committed snapshot is intact, and can be read while the disk is full.
    let written = content(&limiter, now);
    let expected = if counts.figures().passes > 0 { &written } else { &committed };
    let found = restored(&directory);
    outcome.lost += expected.iter().filter(|(key, used)| found.get(key) != Some(used)).count();

    if is_full {
        mounted.empty();
    }
    let (limiter, mut writer) = start(&directory, &Trigger::default(), true);
    hit_all(&limiter);
    super::pass(&mut writer, &limiter, now).expect("there is room again");
    let expected = content(&limiter, now);
    drop((limiter, writer));
    let found = restored(&directory);
    outcome.lost += expected.iter().filter(|(key, used)| found.get(key) != Some(used)).count();
    fs::remove_dir_all(&directory).expect("it can be removed");
}

fn runs(runs: u64) -> Outcome {
    let (mut outcome, mut seed) = (Outcome::default(), 0x2545_f491_4f6c_dd1d_u64);
    let mut random = |below| super::random(&mut seed, below);
    let mounts = SIZES_MB.map(|megabytes| Arc::new(Mounted::new(megabytes)));
    for number in 0..runs {
        run(&mounts[number as usize % mounts.len()], number, &mut random, &mut outcome);
    }
    println!(
        "{} runs on {SIZES_MB:?} MB, {} with a failed snapshot: {} hangs, {} counters lost, longest stop {:.2?}",
        outcome.runs, outcome.failed, outcome.hangs, outcome.lost, outcome.longest_stop
    );
    outcome
}

/// If the disk filled up during a snapshot, a server wrote no more snapshots, ignored SIGTERM, and counted no failure.
#[test]
fn a_disk_that_fills_up_during_a_snapshot_hangs_nothing_and_loses_nothing() {
    let number = std::env::var("TIDEGATE_DISK_FULL_RUNS");
    let outcome = runs(number.map_or(8, |text| text.parse().expect("a number of runs")));
    assert_eq!((outcome.hangs, outcome.lost), (0, 0), "{outcome:?}");
    assert!(outcome.failed > 0 && outcome.longest_stop < STOP_MAX, "{outcome:?}");
}

/// Without reserved space, sled waits forever on the full disk. Its thread is abandoned, and the same writer continues once there is space.
#[test]
fn sled_waiting_forever_is_abandoned() {
    let (mounted, now) = (Arc::new(Mounted::new(24)), start_of_time());
    let (time, mut timeouts) = (SystemClock::new(), 0);
    for records in [2, 5, 9, 12] {
        let directory = mounted.path(&format!("data-{records}"));
        fs::create_dir(&directory).expect("a directory");
        let trigger = Trigger::default();
        let (limiter, mut writer) = start(&directory, &trigger, false);
        hit_all(&limiter);
        super::pass(&mut writer, &limiter, now).expect("there is room for the first snapshot");
        let committed = content(&limiter, now);
        hit_all(&limiter);
        let filling = Arc::clone(&mounted);
        *trigger.lock() = Some((records, Box::new(move || filling.fill(0))));
        let began = time.now();
        let error = super::pass(&mut writer, &limiter, now).expect_err("the disk is full");
        assert!(time.now().since(began) < STOP_MAX, "{error}");
        timeouts += u32::from(error.source.kind() == io::ErrorKind::TimedOut);
        // The abandoned thread still has the database open: reads it as `snapshot verify` does.
        let disk = Box::new(SledDisk::read_only(&directory));
        let found = restore_from(disk, &directory).0;
        assert!(content(&found, now) == committed, "{records}: the committed snapshot is damaged");
        mounted.empty();
        super::pass(&mut writer, &limiter, now).expect("there is room again");
        assert!(restored(&directory) == content(&limiter, now));
        drop(writer);
        fs::remove_dir_all(&directory).expect("it can be removed");
    }
    println!("{timeouts} of 4 snapshots were given up");
}
