//! The record of what quotas have assigned: the file `quotas` of lines in the data directory. From it a process knows what the former
//! process may have assigned, as [`Record`] states.
//!
//! Invariant: a ceiling is in the file, on the disk, before clients are assigned what it permits.

use parking_lot::Mutex;
use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError},
    },
    time::Duration,
};
use tidegate_core::{limit::Timestamp, rules::Percent};
use tidegate_service::Quotas;
use tidegate_shared::{
    lease::NodeId,
    quota::{Before, Ceiling, Former, Record, RuleId, Settings},
};
use tidegate_threads::{BackgroundThread, Priority, StartError, StoppableThread};

/// Name of the file in the data directory.
const FILE: &str = "quotas";
const HEAD: &str = "tidegate quotas 1";
const TAIL: &str = "end";

/// Time that a stop waits for the disk.
pub(super) const DISK_WAIT: Duration = Duration::from_secs(2);

/// Time after which a write that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// The place of the record.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QuotaRecordSettings {
    path: PathBuf,
    /// Whether the data directory has no files: no process used it before.
    is_new: bool,
}

impl QuotaRecordSettings {
    /// Settings for this data directory; to be called before anything is written there. Services and containers start with a directory that
    /// is empty or has only a folder of the file system.
    pub fn of(directory: &Path) -> Self {
        let is_file = |entry: io::Result<fs::DirEntry>| {
            entry.and_then(|entry| entry.file_type()).map_or(true, |kind| !kind.is_dir())
        };
        let has_files = match fs::read_dir(directory) {
            Ok(mut entries) => entries.any(is_file),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        };
        Self { path: directory.join(FILE), is_new: !has_files }
    }
}

/// The content of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Content {
    record: Record,
    server: NodeId,
    /// The place where that number is valid: see [`place_of`].
    place: u64,
}

/// The record of a running process.
pub(super) struct QuotaRecord {
    path: PathBuf,
    last: Arc<Mutex<Content>>,
    /// Ends once no sender of ceilings is left.
    writer: Option<StoppableThread>,
    /// See [`Former::in_counters_from`].
    in_counters_from: Timestamp,
    is_in_counters: bool,
}

/// The state that a process begins with.
pub(super) struct Begun {
    pub(super) former: Former,
    pub(super) ceilings: Vec<(RuleId, Ceiling)>,
    /// Number of this server in a store; that of the former process, if there was one here.
    pub(super) server: NodeId,
    /// Whether the process before it had that number.
    pub(super) had_number: bool,
}

impl QuotaRecord {
    /// Reads the record of the former process, and begins that of this one, whose number in a store would be `server`.
    pub(super) fn begin(
        settings: &QuotaRecordSettings,
        server: NodeId,
        now: Timestamp,
    ) -> io::Result<(Self, Begun)> {
        let known = match fs::read_to_string(&settings.path) {
            Ok(text) => Content::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let place = place_of(&settings.path);
        let numbered = known.as_ref().filter(|known| known.place == place);
        let (had_number, server) = (numbered.is_some(), numbered.map_or(server, |known| known.server));
        let before = if settings.is_new { Before::Unrecorded } else { Before::Unknown };
        let of_quota = Settings::default();
        let (record, former) = Record::begin(known.map(|known| known.record), before, &of_quota, now);
        let in_counters_from = former.in_counters_from(&of_quota, now);
        let begun = Begun { former, ceilings: record.ceilings.clone(), server, had_number };
        let content = Content { record, server, place };
        write(&settings.path, &content)?;
        let (path, last) = (settings.path.clone(), Arc::new(Mutex::new(content)));
        Ok((Self { path, last, writer: None, in_counters_from, is_in_counters: false }, begun))
    }

    /// Starts the thread that writes; returns the sender of the ceilings to record.
    pub(super) fn start(
        &mut self,
        quotas: Quotas,
    ) -> Result<impl Fn(Vec<(RuleId, Ceiling)>) + Send + 'static, StartError> {
        let (ceilings, to_write) = mpsc::channel();
        let (path, last) = (self.path.clone(), Arc::clone(&self.last));
        let run = move || {
            let content = |ceilings: Vec<(RuleId, Ceiling)>| {
                let mut content = last.lock().clone();
                content.record.ceilings = ceilings;
                content
            };
            follow(&to_write, &path, content, |content| {
                quotas.recorded(content.record.ceilings.clone());
                *last.lock() = content;
            });
        };
        let thread = BackgroundThread::start("quota-record", Priority::Full, run)?;
        self.writer = Some(thread.stopped_by(ceilings.clone()).awaited_within(DISK_WAIT));
        Ok(move |parts| _ = ceilings.send(parts))
    }

    /// Ends the thread, after the last assignment. The sender that [`Self::start`] returned must be dropped before.
    pub(super) fn stop(&mut self, now: Timestamp) {
        self.is_in_counters = now >= self.in_counters_from;
        self.writer = None;
    }

    /// Records a stop in order, if the counters, and so the last snapshot, have all that was assigned. Waits for the disk at most for a time.
    pub(super) fn stopped_in_order(self, wait_max: Duration) {
        let mut content = self.last.lock().clone();
        content.record.is_stopped = self.is_in_counters;
        let (sender, written) = mpsc::channel();
        // The receiver is gone if the time has passed.
        let run = move || _ = sender.send(write(&self.path, &content));
        let started = BackgroundThread::start("quota-record", Priority::Full, run).map_err(io::Error::from);
        let timed_out = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the disk does not respond"));
        let written = started.and_then(|_| written.recv_timeout(wait_max).unwrap_or_else(timed_out));
        if let Err(error) = written {
            tracing::warn!(%error, "cannot write the end of the record of quotas; the next start treats this stop as a crash");
        }
    }
}

/// Writes the content with each ceiling that arrives; retries until it is written or the server stops.
fn follow(
    to_write: &mpsc::Receiver<Vec<(RuleId, Ceiling)>>,
    path: &Path,
    content: impl Fn(Vec<(RuleId, Ceiling)>) -> Content,
    written: impl Fn(Content),
) {
    let mut is_failing = false;
    while let Ok(ceilings) = to_write.recv() {
        let content = content(ceilings);
        while let Err(error) = write(path, &content) {
            if !std::mem::replace(&mut is_failing, true) {
                tracing::error!(%error, path = %path.display(), "cannot write the record of quotas; shares of limits do not grow beyond it");
            }
            // Only one request is open at a time: nothing else arrives.
            if let Err(RecvTimeoutError::Disconnected) = to_write.recv_timeout(PAUSE) {
                return;
            }
        }
        is_failing = false;
        written(content);
    }
}

/// A number of the host and the path: a copy of the directory elsewhere is another server.
fn place_of(path: &Path) -> u64 {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let path = path.parent().and_then(|directory| directory.canonicalize().ok()).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    (host, path).hash(&mut hasher);
    hasher.finish()
}

/// Replaces the file: a reader finds the former content or the new content.
fn write(path: &Path, content: &Content) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(content.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

impl Content {
    fn text(&self) -> String {
        let Self { record, server: NodeId(server), place } = self;
        let state = if record.is_stopped { "stopped" } else { "running" };
        let (before, until) = (name_of(record.before), record.before_until.as_nanos());
        let rule = |(RuleId(rule), Ceiling { rate, burst }): &(RuleId, Ceiling)| {
            format!("rule {rule} {} {}\n", rate.get(), burst.get())
        };
        let rules: String = record.ceilings.iter().map(rule).collect();
        format!(
            "{HEAD}\nstate {state}\n{before}-until {until}\nserver {server}\nplace {place}\n{rules}{TAIL}\n"
        )
    }

    /// None for anything but a whole record.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.lines();
        if lines.next()? != HEAD {
            return None;
        }
        let mut line = || lines.next()?.split_once(' ');
        let is_stopped = match line()? {
            ("state", "stopped") => true,
            ("state", "running") => false,
            _ => return None,
        };
        let (before, until) = line()?;
        let is_named = |it: &Before| before.strip_suffix("-until") == Some(name_of(*it));
        let before = [Before::Unknown, Before::Unrecorded].into_iter().find(is_named)?;
        let before_until = Timestamp::from_nanos(until.parse().ok()?);
        let ("server", server) = line()? else { return None };
        let ("place", place) = line()? else { return None };
        let (server, place) = (NodeId(server.parse().ok()?), place.parse().ok()?);
        let mut ceilings = Vec::new();
        loop {
            let line = lines.next()?;
            if line == TAIL {
                let record = Record { is_stopped, before, before_until, ceilings };
                return lines.next().is_none().then_some(Self { record, server, place });
            }
            let (rule, ceiling) = line.strip_prefix("rule ")?.split_once(' ')?;
            // Tidegate 0.9.0 wrote one part for both.
            let (rate, burst) = ceiling.split_once(' ').unwrap_or((ceiling, ceiling));
            let [rate, burst] = [rate, burst].map(|part| Percent::new(part.parse().ok()?));
            ceilings.push((RuleId(rule.parse().ok()?), Ceiling { rate: rate?, burst: burst? }));
        }
    }
}

/// Its name in the file.
fn name_of(before: Before) -> &'static str {
    match before {
        Before::Unknown => "unknown",
        Before::Unrecorded => "unrecorded",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn begin(settings: &QuotaRecordSettings, server: u64, now: Timestamp) -> (QuotaRecord, Begun) {
        QuotaRecord::begin(settings, NodeId(server), now).expect("the folder is there")
    }

    fn kind(former: &Former) -> &'static str {
        match former {
            Former::Unknown => "unknown",
            Former::Unrecorded => "unrecorded",
            Former::RecordedOrUnrecorded(_) => "recorded or unrecorded",
            Former::Recorded(_) => "recorded",
            Former::InCounters => "counters",
        }
    }

    #[test]
    fn a_process_knows_what_the_one_before_it_recorded_and_whether_it_stopped_in_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = |is_new| QuotaRecordSettings { path: folder.path().join(FILE), is_new };
        let later = |secs| NOW.saturating_add(Duration::from_secs(secs));
        let (_, first) = begin(&settings(true), 1, NOW);
        assert_eq!((kind(&first.former), first.server, first.had_number), ("unrecorded", NodeId(1), false));
        // Assignments of the process before the first may still be in force.
        assert_eq!(kind(&begin(&settings(false), 2, later(15)).1.former), "recorded or unrecorded");
        let (mut record, second) = begin(&settings(false), 2, later(60));
        assert_eq!((kind(&second.former), second.server, second.had_number), ("recorded", NodeId(1), true));
        record.last.lock().record.ceilings.push((RuleId(9), Ceiling::ALL));
        record.stop(later(80));
        record.stopped_in_order(DISK_WAIT);
        let (_, third) = begin(&settings(false), 3, later(81));
        assert_eq!((kind(&third.former), &*third.ceilings), ("counters", &[(RuleId(9), Ceiling::ALL)][..]));
        // The third was killed.
        let (_, fourth) = begin(&settings(false), 4, later(82));
        assert_eq!((kind(&fourth.former), &*fourth.ceilings), ("recorded", &[(RuleId(9), Ceiling::ALL)][..]));
        // A copy elsewhere has another number: two servers with one number would hold one part twice.
        let copy = tempfile::tempdir().expect("a folder");
        fs::copy(folder.path().join(FILE), copy.path().join(FILE)).expect("copied");
        let settings = QuotaRecordSettings { path: copy.path().join(FILE), is_new: false };
        let (_, fifth) = begin(&settings, 5, later(83));
        assert_eq!((kind(&fifth.former), fifth.server, fifth.had_number), ("recorded", NodeId(5), false));
    }

    /// A client that did not report to the second process may still have assignments of the first, which no counter has.
    #[test]
    fn a_stop_in_order_soon_after_a_crash_leaves_what_was_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = |is_new| QuotaRecordSettings { path: folder.path().join(FILE), is_new };
        let later = |secs| NOW.saturating_add(Duration::from_secs(secs));
        begin(&settings(true), 1, NOW);
        let lives = [(100, 5), (106, 20), (127, 1), (129, 1)].map(|(began, secs)| {
            let (mut record, begun) = begin(&settings(false), 1, later(began));
            record.stop(later(began + secs));
            record.stopped_in_order(DISK_WAIT);
            kind(&begun.former)
        });
        // Each life begins with what the former left: a crash, a stop too early, two ordered stops.
        assert_eq!(lives, ["recorded", "recorded", "counters", "counters"]);
    }

    #[test]
    fn a_stop_does_not_wait_for_a_disk_that_does_not_respond() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = QuotaRecordSettings { path: folder.path().join(FILE), is_new: true };
        let (record, _) = begin(&settings, 1, NOW);
        // Without a reader, the open of a pipe for writing does not return.
        let pipe = settings.path.with_extension("new");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
        record.stopped_in_order(Duration::from_millis(1));
        // Ends with the late write, which would otherwise meet the writes below.
        fs::read(&pipe).expect("the content");
        fs::remove_file(pipe).expect("removed");
        assert_eq!(
            kind(&begin(&settings, 1, NOW.saturating_add(Duration::from_secs(60))).1.former),
            "recorded"
        );
    }

    /// Services and containers start with an existing directory: once, all of each limit counted as assigned.
    #[test]
    fn a_directory_without_files_is_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let is_new = |directory: &Path| QuotaRecordSettings::of(directory).is_new;
        assert!(is_new(&folder.path().join("absent")) && is_new(folder.path()));
        fs::create_dir(folder.path().join("lost+found")).expect("a folder");
        assert!(is_new(folder.path()));
        fs::write(folder.path().join("lock"), "").expect("a file");
        assert!(!is_new(folder.path()));
    }

    #[test]
    fn a_record_that_is_lost_or_cut_off_is_no_record() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = QuotaRecordSettings { path: folder.path().join(FILE), is_new: false };
        assert_eq!(kind(&begin(&settings, 1, NOW).1.former), "unknown");
        let later = NOW.saturating_add(Duration::from_secs(60));
        let text = fs::read_to_string(&settings.path).expect("it is written");
        for end in 0..text.len() {
            fs::write(&settings.path, &text[..end]).expect("it is writable");
            assert_eq!(kind(&begin(&settings, 1, later).1.former), "unknown", "{end}");
        }
        fs::write(&settings.path, &text).expect("it is writable");
        assert_eq!(kind(&begin(&settings, 1, later).1.former), "recorded");
    }
}
