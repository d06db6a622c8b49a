//! The audit log: one JSON line for each change, and for each attempt that was denied.
//!
//! Lines are only appended. Each has the number after that of the line before, and a hash of itself and of the hash of the
//! line before: a line that is changed, removed or inserted breaks the chain, which `verify` reports. Lines cut off at the end
//! are not detected; the number and the hash of the last line, kept elsewhere, reveal them.

use crate::limit::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    collections::VecDeque,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
};

/// Lines in memory, for `ListAudit`.
const RECENT_MAX: usize = 1_000;

/// A line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEntry {
    /// Number of the line, from 1 on.
    pub number: u64,
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// Who: `token:NAME`, `unix:UID` or `server`.
    pub actor: String,
    /// The other end of the connection.
    pub peer: String,
    /// The method, or the name of an event.
    pub action: String,
    /// `OK`, or the code of an error.
    pub outcome: String,
    /// The reason that the caller gave.
    pub reason: String,
    /// The request, or what happened: JSON.
    pub details: String,
    /// Hexadecimal SHA-256 of the hash of the line before and of this line without its hash.
    pub hash: String,
}

/// Content of a line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditEvent {
    /// See [`AuditEntry::actor`].
    pub actor: String,
    /// See [`AuditEntry::peer`].
    pub peer: String,
    /// See [`AuditEntry::action`].
    pub action: String,
    /// See [`AuditEntry::outcome`].
    pub outcome: String,
    /// See [`AuditEntry::reason`].
    pub reason: String,
    /// See [`AuditEntry::details`].
    pub details: String,
}

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// It cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// The chain is broken.
    #[error("{}: {source}; move the file away to begin another", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        source: BrokenChain,
    },
}

/// A line does not follow from those before.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct BrokenChain {
    /// The line.
    pub line: u64,
    /// The fault found.
    pub reason: &'static str,
}

/// The end of a chain.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ChainEnd {
    /// Number of the last line; 0 if there is none.
    pub number: u64,
    /// Its hash; empty if there is none.
    pub hash: String,
}

/// The log. Without a file, it is in memory alone.
pub struct AuditLog(Mutex<State>);

struct State {
    file: Option<File>,
    end: ChainEnd,
    recent: VecDeque<AuditEntry>,
}

impl AuditEntry {
    /// The hash that the line must have after a line with the hash `before`.
    fn expected_hash(&self, before: &str) -> String {
        let without = Self { hash: String::new(), ..self.clone() };
        let text = serde_json::to_string(&without).expect("texts and numbers are JSON");
        let digest = Sha256::new().chain_update(before).chain_update("\n").chain_update(text).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl AuditLog {
    /// Continues the log in this file, after its chain was verified.
    pub fn open(path: Option<&Path>) -> Result<Self, AuditError> {
        let Some(path) = path else { return Ok(Self(Mutex::new(State::new(None, ChainEnd::default())))) };
        let failed = |source| AuditError::File { path: path.to_owned(), source };
        // The data directory may not exist yet.
        path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(path).map_err(failed)?;
        let mut recent = VecDeque::new();
        let verified = verify(BufReader::new(&file), |entry| push(&mut recent, entry)).map_err(failed)?;
        let end = verified.map_err(|source| AuditError::Broken { path: path.to_owned(), source })?;
        let state = State { recent, ..State::new(Some(file), end) };
        Ok(Self(Mutex::new(state)))
    }

    /// Appends a line. If the file does not take it, the line is in memory and the error in the log of the server.
    pub fn append(&self, event: AuditEvent, now: Timestamp) {
        let mut state = self.0.lock();
        let AuditEvent { actor, peer, action, outcome, reason, details } = event;
        let mut entry = AuditEntry {
            number: state.end.number + 1,
            time_ns: now.as_nanos(),
            actor,
            peer,
            action,
            outcome,
            reason,
            details,
            hash: String::new(),
        };
        entry.hash = entry.expected_hash(&state.end.hash);
        let line = serde_json::to_string(&entry).expect("texts and numbers are JSON") + "\n";
        if let Some(file) = &mut state.file {
            // One write: a line is whole or absent, unless the disk is full.
            if let Err(error) = file.write_all(line.as_bytes()).and_then(|()| file.sync_data()) {
                tracing::error!(%error, "the audit log takes no lines");
            }
        }
        tracing::info!(actor = entry.actor, action = entry.action, outcome = entry.outcome, "audit");
        state.end = ChainEnd { number: entry.number, hash: entry.hash.clone() };
        push(&mut state.recent, entry);
    }

    /// The newest lines before this number, newest first.
    pub fn recent(&self, before: u64, count: usize) -> Vec<AuditEntry> {
        let state = self.0.lock();
        let newest = state.recent.iter().rev();
        newest.filter(|entry| before == 0 || entry.number < before).take(count).cloned().collect()
    }
}

impl State {
    fn new(file: Option<File>, end: ChainEnd) -> Self {
        Self { file, end, recent: VecDeque::new() }
    }
}

fn push(recent: &mut VecDeque<AuditEntry>, entry: AuditEntry) {
    if recent.len() == RECENT_MAX {
        recent.pop_front();
    }
    recent.push_back(entry);
}

/// Verifies the lines of a log, and passes each to `read`; returns the end of the chain, or the first line that breaks it.
pub fn verify(
    lines: impl BufRead,
    mut read: impl FnMut(AuditEntry),
) -> io::Result<Result<ChainEnd, BrokenChain>> {
    let mut end = ChainEnd::default();
    for line in lines.lines() {
        let (text, broken) = (line?, |reason| BrokenChain { line: end.number + 1, reason });
        let Ok(entry) = serde_json::from_str::<AuditEntry>(&text) else {
            return Ok(Err(broken("is not a line of an audit log")));
        };
        if entry.number != end.number + 1 {
            return Ok(Err(broken("has a number that does not follow")));
        }
        if entry.expected_hash(&end.hash) != entry.hash {
            return Ok(Err(broken("has another hash than its content and the line before")));
        }
        end = ChainEnd { number: entry.number, hash: entry.hash.clone() };
        read(entry);
    }
    Ok(Ok(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(action: &str) -> AuditEvent {
        AuditEvent { actor: "token:ann".into(), action: action.into(), ..AuditEvent::default() }
    }

    fn append(log: &AuditLog, actions: &[&str]) {
        actions.iter().for_each(|action| log.append(event(action), Timestamp::from_millis(1_000)));
    }

    fn verified(text: &str) -> Result<u64, u64> {
        let end = verify(text.as_bytes(), |_| {}).expect("memory is read");
        end.map(|end| end.number).map_err(|broken| broken.line)
    }

    #[test]
    fn a_chain_goes_on_after_a_restart_and_a_changed_line_breaks_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("audit.jsonl");
        append(&AuditLog::open(Some(&path)).expect("opens"), &["Reset", "SetBlock"]);
        let log = AuditLog::open(Some(&path)).expect("opens again");
        append(&log, &["DeleteBlock"]);
        let actions: Vec<_> = log.recent(0, 2).into_iter().map(|entry| entry.action).collect();
        assert_eq!((actions, log.recent(2, 9).len()), (vec!["DeleteBlock".into(), "SetBlock".into()], 1));

        let text = fs::read_to_string(&path).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(verified(&text), Ok(3));
        assert_eq!(verified(&text.replace("SetBlock", "GetBlock")), Err(2), "changed");
        assert_eq!(verified(&[lines[0], lines[2]].join("\n")), Err(2), "removed");
        assert_eq!(verified(&[lines[1], lines[0], lines[2]].join("\n")), Err(1), "moved");
        assert_eq!(verified(&(lines[0].to_owned() + "\n{}")), Err(2), "no line");
        fs::write(&path, text.replace("SetBlock", "GetBlock")).expect("written");
        let error = AuditLog::open(Some(&path)).err().expect("broken").to_string();
        assert!(error.contains("line 2: has another hash"), "{error}");
    }
}
