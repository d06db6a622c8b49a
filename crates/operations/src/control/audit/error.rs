//! Errors of the log.

use super::chain::BrokenChain;
use std::{io, path::PathBuf};
use tidegate_threads::StartError;

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
    /// Another process has it.
    #[error("{}: another process writes it; give each server a file of its own", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The chain is broken.
    #[error("{}: {source}; move the file away to begin another", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// Where.
        source: BrokenChain,
    },
    /// The thread of the log cannot be started.
    #[error(transparent)]
    Thread(#[from] StartError),
}

/// A line could not be appended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the audit log {path} cannot be written: {error}")]
pub struct NotLogged {
    pub(super) path: String,
    pub(super) error: String,
}
