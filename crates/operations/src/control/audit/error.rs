//! Errors of the log.

use std::{io, path::PathBuf};
use tidegate_threads::StartError;

/// The log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// It cannot be read or written, another process uses it, or its chain is broken.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
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
