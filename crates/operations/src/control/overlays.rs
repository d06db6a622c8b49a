//! Overrides and blocks that operators set. They are kept on disk, passed to the owner of the rules, and dropped when they expire.

use crate::config::whole_file;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};
use tidegate_core::{
    limit::Timestamp,
    rules::{Block, OverrideRule, RuleErrors, Source, read_regular},
};

/// The most overrides, and the most blocks.
pub const OVERLAYS_MAX: usize = 10_000;

/// Maximum length of the file.
const BYTES_MAX: u64 = 256 << 20;

/// The name of the document that declares the blocks.
const BLOCKS: &str = "blocks";

/// An override or block with its origin.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Stored<T> {
    /// The override or the block.
    pub declared: T,
    /// Nanoseconds since the Unix epoch. None if it stays until it is deleted.
    pub expires_ns: Option<u64>,
    /// The reason that the operator gave.
    pub reason: String,
    /// The operator.
    pub actor: String,
    /// Nanoseconds since the Unix epoch.
    pub created_ns: u64,
}

/// Everything that operators set, by id.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Overlays {
    /// The overrides.
    pub overrides: BTreeMap<String, Stored<OverrideRule>>,
    /// The blocks.
    pub blocks: BTreeMap<String, Stored<Block>>,
}

/// The kept overrides and blocks cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "overrides and blocks in {}: {source}; restore the file from a copy, or move it away to start without any",
    path.display()
)]
pub struct KeptOverlaysError {
    path: PathBuf,
    source: io::Error,
}

/// Overrides or blocks cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The server has no rules yet.
    #[error("starting: the counters are being restored; retry shortly")]
    Starting,
    /// There are too many.
    #[error("there are {OVERLAYS_MAX} already; delete some")]
    TooMany,
    /// The rules cannot be built.
    #[error("{0}")]
    Rules(Arc<RuleErrors>),
    /// They cannot be kept on disk, so that nothing was changed.
    #[error("cannot be kept: {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl<T> Stored<T> {
    fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_ns.is_some_and(|expires| expires <= now.as_nanos())
    }
}

impl Overlays {
    /// Whether an override or a block has expired.
    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        self.overrides.values().any(|stored| stored.has_expired(now))
            || self.blocks.values().any(|stored| stored.has_expired(now))
    }

    /// Drops expired overrides and blocks. Returns their ids.
    pub fn expire(&mut self, now: Timestamp) -> Vec<String> {
        let mut expired = Vec::new();
        self.overrides.retain(|id, stored| keep(!stored.has_expired(now), id, &mut expired));
        self.blocks.retain(|id, stored| keep(!stored.has_expired(now), id, &mut expired));
        expired
    }

    /// The documents that declare them, in the order in which they were set: of several overrides for a descriptor, the newest applies.
    pub(super) fn sources(&self) -> Vec<Source> {
        let mut overrides: Vec<&Stored<OverrideRule>> = self.overrides.values().collect();
        overrides.sort_by_key(|stored| stored.created_ns);
        let overrides = overrides.into_iter().map(|stored| Source::of_override(stored.declared.clone()));
        let blocks: Vec<Block> = self.blocks.values().map(|stored| stored.declared.clone()).collect();
        let blocks = (!blocks.is_empty()).then(|| Source::of_blocks(BLOCKS, blocks));
        overrides.chain(blocks).collect()
    }

    /// The content of a file. A damaged file is refused: without its blocks, the server would admit what operators denied.
    pub(super) fn open(path: &Path) -> Result<Self, KeptOverlaysError> {
        Self::read(path).map_err(|source| KeptOverlaysError { path: path.to_owned(), source })
    }

    /// Reads a file. A missing file is empty.
    fn read(path: &Path) -> io::Result<Self> {
        match read_regular(path, BYTES_MAX) {
            Ok(text) => Ok(serde_json::from_slice(&text)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file as a whole.
    pub(super) fn write(&self, path: &Path) -> io::Result<()> {
        whole_file::replace(path, &serde_json::to_vec_pretty(self)?)
    }
}

fn keep(keep: bool, id: &str, dropped: &mut Vec<String>) -> bool {
    if !keep {
        dropped.push(id.to_owned());
    }
    keep
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::rules::OverrideAction;

    /// Of several overrides for a descriptor, the last document applies.
    #[test]
    fn the_newest_override_is_the_last_document_whatever_its_id() {
        let stored = |(id, created_ns): (&str, u64)| {
            let entries = vec![("user".to_owned(), "ann".to_owned())];
            let action = OverrideAction::Denied;
            let declared = OverrideRule { id: id.into(), domain: "shop".into(), entries, action };
            let (reason, actor) = (String::new(), String::new());
            (id.to_owned(), Stored { declared, expires_ns: None, reason, actor, created_ns })
        };
        let overrides = [("a", 3), ("b", 1), ("c", 2)].map(stored).into();
        let overlays = Overlays { overrides, ..Overlays::default() };
        let ids: Vec<String> = overlays.sources().iter().map(|source| source.id.to_string()).collect();
        assert_eq!(ids, ["override:b", "override:c", "override:a"]);
    }
}
