//! Errors that keep the server from starting, or from stopping well.

use crate::api::TokensError;
use std::{
    io,
    path::{Path, PathBuf},
};
use tidegate_operations::{control::ControlError, telemetry::TracesError};
use tidegate_snapshot::DiskError;
use tidegate_threads::StartError;
use tidegate_transport::{BindError, ListenAddress, TlsFilesError};

/// Errors that keep the server from starting, or from stopping well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", bind_remedy(source, flag))]
    Listen {
        /// The flag that names the address.
        flag: &'static str,
        /// The address.
        address: ListenAddress,
        /// The operating system's error.
        source: io::Error,
    },
    /// The certificate of a port cannot be used.
    #[error("TLS of the {port} port: {source}{}", Self::tls_cause(source))]
    Tls {
        /// The port.
        port: &'static str,
        /// The cause.
        source: TlsFilesError,
    },
    /// The bearer tokens of the HTTP port cannot be used.
    #[error("--http-token-file {0}")]
    Tokens(#[source] TokenFileError),
    /// The control API cannot start.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// A thread cannot be started.
    #[error(transparent)]
    Thread(#[from] StartError),
    /// A runtime cannot be created, or signals not be received.
    #[error("cannot start {what}: {source}")]
    Start {
        /// The part that failed.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The environment configures traces in a way that is not supported.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The drain succeeded, but changes since the last snapshot are lost.
    #[error("the last snapshot could not be written: {0}")]
    LastSnapshot(DiskError),
}

impl ServeError {
    /// Makes the error of a push of metrics that cannot start.
    pub(super) fn push(source: io::Error) -> Self {
        Self::Start { what: "a push of metrics", source }
    }

    /// Makes an error of one of the addresses of a flag.
    pub(super) fn listen(flag: &'static str) -> impl Fn(BindError) -> Self {
        move |BindError { address, source }| Self::Listen { flag, address, source }
    }
}

/// Reasons why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("{}: {source}{}", path.display(), token_file_remedy(source, path))]
    Read {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// It has errors.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// The errors.
        source: TokensError,
    },
}

impl TokenFileError {
    /// Whether the operating system could not read the file, so that the same file may be read later.
    pub(super) fn is_of_reading(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.raw_os_error().is_some())
    }
}

/// Returns the remedy for a token file that cannot be read, as the end of an error message.
fn token_file_remedy(error: &io::Error, path: &Path) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("; make it with `tidegate token NAME --role ROLE --file {}`", path.display())
        }
        _ => String::new(),
    }
}

/// Returns the remedy for an address that cannot be bound, as the end of an error message.
fn bind_remedy(error: &io::Error, flag: &str) -> String {
    match error.kind() {
        io::ErrorKind::AlreadyExists => format!("; choose another path with {flag}, or remove the file"),
        io::ErrorKind::AddrInUse => format!("; something listens there already: choose another with {flag}"),
        io::ErrorKind::PermissionDenied => {
            format!("; choose a port above 1023 or a directory you may write to, with {flag}")
        }
        io::ErrorKind::AddrNotAvailable => {
            format!("; this machine has no such address: choose another with {flag}")
        }
        _ => String::new(),
    }
}
