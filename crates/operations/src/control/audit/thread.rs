//! The thread of the audit log: the only place that appends lines and waits for the disk.
//!
//! Lines that arrive while the disk is busy are written and synced together.

use super::{
    chain::{AuditEntry, CONTINUED, ChainEnd},
    error::NotLogged,
    event::AuditEvent,
    file::AuditFile,
    recent::Recent,
};
use parking_lot::Mutex;
use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};
use tidegate_core::limit::Timestamp;

/// The most lines of one write.
const BATCH_MAX: usize = 256;
/// The most lines without a waiting caller that are kept until the file can be written again.
const BACKLOG_MAX: usize = 1_000;
/// Time between two attempts to write these.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Called with the number of the line once it is durable.
pub(super) type Done = Box<dyn FnOnce(Result<u64, NotLogged>) + Send>;

pub(super) enum Message {
    Append(NewEntry),
    /// Reopens the file by its name.
    Reopen,
    /// Called when all earlier messages are handled.
    Flush(Box<dyn FnOnce() + Send>),
}

/// An event without a number yet.
pub(super) struct NewEntry {
    pub(super) event: AuditEvent,
    pub(super) time: Timestamp,
    /// None if no caller waits.
    pub(super) done: Option<Done>,
}

pub(super) struct Writer {
    /// None if the log is only in memory.
    pub(super) file: Option<AuditFile>,
    pub(super) end: ChainEnd,
    pub(super) recent: Arc<Mutex<Recent>>,
    pub(super) backlog: VecDeque<NewEntry>,
    /// Whether the last write failed.
    pub(super) is_failing: bool,
}

impl Writer {
    /// Writes until all senders are dropped.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let first = match self.backlog.is_empty() {
                true => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                false => messages.recv_timeout(RETRY_INTERVAL),
            };
            let mut lines: Vec<NewEntry> = self.backlog.drain(..).collect();
            let mut next = match first {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.write(lines),
            };
            while let Some(Message::Append(line)) = next {
                lines.push(line);
                next = if lines.len() < BATCH_MAX { messages.try_recv().ok() } else { None };
            }
            self.write(lines);
            match next {
                Some(Message::Reopen) => self.reopen(),
                Some(Message::Flush(done)) => done(),
                Some(Message::Append(_)) | None => {}
            }
        }
    }

    fn reopen(&mut self) {
        let Some(file) = &mut self.file else { return };
        let path = file.path.display().to_string();
        match file.reopen() {
            Ok(()) => tracing::info!(path, "audit log opened again"),
            Err(error) => {
                tracing::error!(%error, path, "audit log not opened again; writing to the former file")
            }
        }
    }

    /// Appends all lines or none.
    fn write(&mut self, lines: Vec<NewEntry>) {
        if lines.is_empty() {
            return;
        }
        match self.append(&lines) {
            Ok(entries) => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the audit log is written again");
                }
                let numbers: Vec<u64> = entries.iter().map(|entry| entry.number).collect();
                let mut recent = self.recent.lock();
                for entry in entries {
                    tracing::info!(
                        actor = entry.actor,
                        action = entry.action,
                        outcome = entry.outcome,
                        "audit"
                    );
                    recent.push(entry);
                }
                drop(recent);
                // The first number may be that of the first line of a new file.
                let numbers = &numbers[numbers.len() - lines.len()..];
                for (line, number) in lines.into_iter().zip(numbers) {
                    line.done.into_iter().for_each(|done| done(Ok(*number)));
                }
            }
            Err(error) => self.not_written(lines, &error),
        }
    }

    fn not_written(&mut self, lines: Vec<NewEntry>, error: &io::Error) {
        let path = self.file.as_ref().map(|file| file.path.display().to_string()).unwrap_or_default();
        if !std::mem::replace(&mut self.is_failing, true) {
            tracing::error!(%error, path, "cannot write the audit log; changes are refused");
        }
        for line in lines {
            match line.done {
                Some(done) => done(Err(NotLogged { path: path.clone(), error: error.to_string() })),
                None if self.backlog.len() < BACKLOG_MAX => self.backlog.push_back(line),
                None => {}
            }
        }
    }

    fn append(&mut self, lines: &[NewEntry]) -> io::Result<Vec<AuditEntry>> {
        let mut end = self.end.clone();
        let is_new = self.file.as_mut().map_or(Ok(false), AuditFile::prepare)?;
        let first = (is_new && end.number > 0).then(|| NewEntry {
            event: AuditEvent {
                actor: "server".into(),
                action: CONTINUED.into(),
                outcome: "OK".into(),
                details: serde_json::to_string(&end).expect("texts and numbers are JSON"),
                ..AuditEvent::default()
            },
            time: lines[0].time,
            done: None,
        });
        let mut chain = |line: &NewEntry| {
            let entry = entry(line, &end);
            end = ChainEnd { number: entry.number, hash: entry.hash.clone() };
            entry
        };
        let entries: Vec<AuditEntry> = first.iter().chain(lines).map(&mut chain).collect();
        if let Some(file) = &mut self.file {
            let mut text = Vec::new();
            for entry in &entries {
                serde_json::to_writer(&mut text, entry).expect("texts and numbers are JSON");
                text.push(b'\n');
            }
            file.append(&text)?;
        }
        self.end = end;
        Ok(entries)
    }
}

fn entry(line: &NewEntry, end: &ChainEnd) -> AuditEntry {
    let AuditEvent { actor, peer, action, outcome, reason, details, intent } = line.event.clone();
    let (number, time_ns) = (end.number + 1, line.time.as_nanos());
    let entry = AuditEntry {
        number,
        time_ns,
        actor,
        peer,
        action,
        outcome,
        reason,
        details,
        intent,
        hash: String::new(),
    };
    AuditEntry { hash: entry.expected_hash(&end.hash), ..entry }
}
