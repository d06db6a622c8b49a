//! The chain of hashes: the format of a line, and the check that a line follows from those before.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, BufRead};

/// The action of a file's first line if it continues the chain of another file.
pub(super) const CONTINUED: &str = "Continued";

/// A line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditEntry {
    /// Number of the line, from 1.
    pub number: u64,
    /// Nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The actor: `token:NAME`, `unix:UID` or `server`.
    pub actor: String,
    /// The other end of the connection.
    pub peer: String,
    /// The method, or the name of an event.
    pub action: String,
    /// `OK`, the code of an error, or `INTENT`: the change was about to be made.
    pub outcome: String,
    /// The reason that the caller gave.
    pub reason: String,
    /// The request or the event, as JSON.
    pub details: String,
    /// Number of the line with the intent, if this line has the outcome.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<u64>,
    /// Hexadecimal SHA-256 of the hash of the line before, and of this line without its hash.
    pub hash: String,
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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ChainEnd {
    /// Number of the last line; 0 if there is none.
    pub number: u64,
    /// Its hash; empty if there is none.
    pub hash: String,
}

/// A log whose lines follow from each other.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VerifiedChain {
    /// Its end.
    pub end: ChainEnd,
    /// Its lines.
    pub lines: u64,
    /// Its bytes, up to the last complete line.
    pub bytes: u64,
    /// Bytes after these: the beginning of a line whose write was cut off.
    pub torn_bytes: u64,
}

impl AuditEntry {
    /// The hash that the line must have after a line with the hash `before`.
    pub(super) fn expected_hash(&self, before: &str) -> String {
        let without = Self { hash: String::new(), ..self.clone() };
        let text = serde_json::to_string(&without).expect("texts and numbers are JSON");
        let digest = Sha256::new().chain_update(before).chain_update("\n").chain_update(text).finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The end of the chain that this line must follow.
    fn follows(&self, chain: &VerifiedChain) -> ChainEnd {
        match (chain.lines, &*self.action) {
            (0, CONTINUED) => serde_json::from_str(&self.details).unwrap_or_default(),
            _ => chain.end.clone(),
        }
    }
}

/// Verifies the lines of a log, and passes each to `read`. Returns the chain, or the first line that breaks it.
pub fn verify(
    mut lines: impl BufRead,
    mut read: impl FnMut(AuditEntry),
) -> io::Result<Result<VerifiedChain, BrokenChain>> {
    let (mut chain, mut line) = (VerifiedChain::default(), Vec::new());
    loop {
        line.clear();
        let length = lines.read_until(b'\n', &mut line)? as u64;
        if line.last() != Some(&b'\n') {
            return Ok(Ok(VerifiedChain { torn_bytes: length, ..chain }));
        }
        let broken = |reason| BrokenChain { line: chain.lines + 1, reason };
        let Ok(entry) = serde_json::from_slice::<AuditEntry>(&line) else {
            return Ok(Err(broken("is not a line of an audit log")));
        };
        let before = entry.follows(&chain);
        if entry.number != before.number + 1 {
            return Ok(Err(broken("has a number that does not follow")));
        }
        if entry.expected_hash(&before.hash) != entry.hash {
            return Ok(Err(broken("has another hash than its content and the line before")));
        }
        chain.end = ChainEnd { number: entry.number, hash: entry.hash.clone() };
        chain.lines += 1;
        chain.bytes += length;
        read(entry);
    }
}
