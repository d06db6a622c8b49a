//! The record of what quotas have assigned, in the data directory: `quotas`, a file of lines. By it a process knows what the one before it may
//! have assigned: after a stop in order what its counters have, else no more of each limit than its rule's ceiling.
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
    quota::{Former, RuleId, Settings},
};
use tidegate_threads::{BackgroundThread, Priority, StartError};

/// Name of the file in the data directory.
const FILE: &str = "quotas";
const HEAD: &str = "tidegate quotas 1";
const TAIL: &str = "end";

/// Time after which a write that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Where the record is.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct QuotaRecordSettings {
    path: PathBuf,
    /// Whether the data directory did not exist before: no process had a record there.
    is_new: bool,
}

impl QuotaRecordSettings {
    /// In this data directory. To be called before it is made.
    pub fn of(directory: &Path) -> Self {
        Self { path: directory.join(FILE), is_new: !directory.exists() }
    }
}

/// The content of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Record {
    is_stopped: bool,
    /// Until then, what a process before this one assigned is not known.
    unknown_until: Timestamp,
    server: NodeId,
    /// Where that number is valid: see [`place_of`].
    place: u64,
    ceilings: Vec<(RuleId, Percent)>,
}

/// Ceilings on their way to the thread that writes them.
type ToWrite = mpsc::Sender<Vec<(RuleId, Percent)>>;

/// The record of a running process.
pub(super) struct QuotaRecord {
    path: PathBuf,
    last: Arc<Mutex<Record>>,
    writer: Option<(ToWrite, BackgroundThread)>,
    /// From then on, the counters have all that is assigned: until then a client that has not reported yet may have more of the former
    /// process.
    in_counters_from: Timestamp,
    is_in_counters: bool,
}

/// What a process begins with.
pub(super) struct Begun {
    pub(super) former: Former,
    pub(super) ceilings: Vec<(RuleId, Percent)>,
    /// The number of this server in a store, which is that of the process before it.
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
            Ok(text) => Record::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let of_quota = Settings::default();
        let known_at = now.saturating_add(of_quota.ttl + of_quota.round_trip);
        let (former, unknown_until) = match &known {
            // Not for longer: what processes assigned after the one that is not known is recorded.
            Some(record) if now < record.unknown_until => (Former::Unknown, record.unknown_until),
            Some(record) if record.is_stopped => (Former::InCounters, Timestamp::EPOCH),
            Some(record) => (Former::Recorded(record.ceilings.iter().copied().collect()), Timestamp::EPOCH),
            None if settings.is_new => (Former::Unrecorded, known_at),
            None => (Former::Unknown, known_at),
        };
        let place = place_of(&settings.path);
        let had_number = known.as_ref().is_some_and(|record| record.place == place);
        let server = known.as_ref().filter(|_| had_number).map_or(server, |record| record.server);
        let ceilings = known.map_or(Vec::new(), |record| record.ceilings);
        let record = Record { is_stopped: false, unknown_until, server, place, ceilings: ceilings.clone() };
        write(&settings.path, &record)?;
        let last = Arc::new(Mutex::new(record));
        let in_counters_from = if former.is_estimate() { known_at } else { Timestamp::EPOCH };
        let (path, writer) = (settings.path.clone(), None);
        let begun = Begun { former, ceilings, server, had_number };
        Ok((Self { path, last, writer, in_counters_from, is_in_counters: false }, begun))
    }

    /// Starts the thread that writes; returns what passes it the ceilings to be recorded.
    pub(super) fn start(
        &mut self,
        quotas: Quotas,
    ) -> Result<impl Fn(Vec<(RuleId, Percent)>) + Send + 'static, StartError> {
        let (ceilings, to_write) = mpsc::channel();
        let (path, last) = (self.path.clone(), Arc::clone(&self.last));
        let run = move || {
            let record = |ceilings: Vec<(RuleId, Percent)>| Record { ceilings, ..last.lock().clone() };
            follow(&to_write, &path, record, |record| {
                quotas.recorded(record.ceilings.clone());
                *last.lock() = record;
            });
        };
        let thread = BackgroundThread::start("quota-record", Priority::Full, run)?;
        self.writer = Some((ceilings.clone(), thread));
        Ok(move |parts| _ = ceilings.send(parts))
    }

    /// Ends the thread, after the last assignment. Expects that what [`Self::start`] returned is dropped.
    pub(super) fn stop(&mut self, now: Timestamp) {
        self.is_in_counters = now >= self.in_counters_from;
        if let Some((ceilings, thread)) = self.writer.take() {
            drop(ceilings);
            thread.join();
        }
    }

    /// Notes that the counters are in the last snapshot, if they have all that was assigned.
    pub(super) fn stopped_in_order(self) {
        let record = Record { is_stopped: self.is_in_counters, ..self.last.lock().clone() };
        if let Err(error) = write(&self.path, &record) {
            tracing::warn!(%error, "cannot write the end of the record of quotas; the next start treats this stop as a crash");
        }
    }
}

/// Writes each record that arrives, until it is written or the server stops.
fn follow(
    to_write: &mpsc::Receiver<Vec<(RuleId, Percent)>>,
    path: &Path,
    record: impl Fn(Vec<(RuleId, Percent)>) -> Record,
    written: impl Fn(Record),
) {
    let mut is_failing = false;
    while let Ok(ceilings) = to_write.recv() {
        let record = record(ceilings);
        while let Err(error) = write(path, &record) {
            if !std::mem::replace(&mut is_failing, true) {
                tracing::error!(%error, path = %path.display(), "cannot write the record of quotas; shares of limits do not grow beyond it");
            }
            // One request at a time: nothing else arrives.
            if let Err(RecvTimeoutError::Disconnected) = to_write.recv_timeout(PAUSE) {
                return;
            }
        }
        is_failing = false;
        written(record);
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

/// Replaces the file: a reader finds the former content or this.
fn write(path: &Path, record: &Record) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(record.text().as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

impl Record {
    fn text(&self) -> String {
        let state = if self.is_stopped { "stopped" } else { "running" };
        let (until, server, place) = (self.unknown_until.as_nanos(), self.server.0, self.place);
        let rule = |(RuleId(rule), percent): &(RuleId, Percent)| format!("rule {rule} {}\n", percent.get());
        let rules: String = self.ceilings.iter().map(rule).collect();
        format!(
            "{HEAD}\nstate {state}\nunknown-until {until}\nserver {server}\nplace {place}\n{rules}{TAIL}\n"
        )
    }

    /// None for anything but a whole record.
    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_suffix('\n')?.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ').map(str::to_owned);
        if value("tidegate").is_none_or(|rest| format!("tidegate {rest}") != HEAD) {
            return None;
        }
        let is_stopped = match &*value("state")? {
            "stopped" => true,
            "running" => false,
            _ => return None,
        };
        let unknown_until = Timestamp::from_nanos(value("unknown-until")?.parse().ok()?);
        let server = NodeId(value("server")?.parse().ok()?);
        let place = value("place")?.parse().ok()?;
        let mut ceilings = Vec::new();
        loop {
            let line = lines.next()?;
            if line == TAIL {
                return lines.next().is_none().then_some(Self {
                    is_stopped,
                    unknown_until,
                    server,
                    place,
                    ceilings,
                });
            }
            let (rule, percent) = line.strip_prefix("rule ")?.split_once(' ')?;
            ceilings.push((RuleId(rule.parse().ok()?), Percent::new(percent.parse().ok()?)?));
        }
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
        // What the one before the first had is not known yet.
        assert_eq!(kind(&begin(&settings(false), 2, later(15)).1.former), "unknown");
        let (mut record, second) = begin(&settings(false), 2, later(60));
        assert_eq!((kind(&second.former), second.server, second.had_number), ("recorded", NodeId(1), true));
        record.last.lock().ceilings.push((RuleId(9), Percent::ALL));
        record.stop(later(80));
        record.stopped_in_order();
        let (_, third) = begin(&settings(false), 3, later(81));
        assert_eq!((kind(&third.former), &*third.ceilings), ("counters", &[(RuleId(9), Percent::ALL)][..]));
        // The third was killed.
        let (_, fourth) = begin(&settings(false), 4, later(82));
        assert_eq!((kind(&fourth.former), &*fourth.ceilings), ("recorded", &[(RuleId(9), Percent::ALL)][..]));
        // A copy elsewhere has another number: two servers with one number would have one part twice.
        let copy = tempfile::tempdir().expect("a folder");
        fs::copy(folder.path().join(FILE), copy.path().join(FILE)).expect("copied");
        let settings = QuotaRecordSettings { path: copy.path().join(FILE), is_new: false };
        let (_, fifth) = begin(&settings, 5, later(83));
        assert_eq!((kind(&fifth.former), fifth.server, fifth.had_number), ("recorded", NodeId(5), false));
    }

    /// A client that had not reported to the second process may have what the first one assigned, which no counter has.
    #[test]
    fn a_stop_in_order_soon_after_a_crash_leaves_what_was_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = |is_new| QuotaRecordSettings { path: folder.path().join(FILE), is_new };
        let later = |secs| NOW.saturating_add(Duration::from_secs(secs));
        begin(&settings(true), 1, NOW);
        let lives = [(100, 5), (106, 20), (127, 1), (129, 1)].map(|(began, secs)| {
            let (mut record, begun) = begin(&settings(false), 1, later(began));
            record.stop(later(began + secs));
            record.stopped_in_order();
            kind(&begun.former)
        });
        // Each of what the one before it left: a crash, a stop too early, two that were in order.
        assert_eq!(lives, ["recorded", "recorded", "counters", "counters"]);
    }

    /// Starts within 16 s of each other denied requests for as long as they went on.
    #[test]
    fn starts_again_and_again_make_nothing_unknown_for_longer_than_the_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let settings = |is_new| QuotaRecordSettings { path: folder.path().join(FILE), is_new };
        let kinds = (0..6).map(|start| {
            let now = NOW.saturating_add(Duration::from_secs(5 * start));
            kind(&begin(&settings(start == 0), 1, now).1.former)
        });
        let expected = ["unrecorded", "unknown", "unknown", "unknown", "recorded", "recorded"];
        assert_eq!(kinds.collect::<Vec<_>>(), expected);
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
