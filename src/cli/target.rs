//! Connections of commands to a server, and the remedies for those that fail.

use super::Failure;
use crate::server::ListenAddress;
use std::{error::Error, io, os::unix::fs::FileTypeExt as _, time::Duration};
use tonic::transport::{Channel, Endpoint};

/// The reason why no client connects to `systemd:NAME`.
pub(super) const LISTEN_ONLY: &str = ": it is an address of `tidegate serve` alone";

/// Connects to a gRPC server.
pub(super) async fn connect(address: &ListenAddress, timeout: Duration) -> Result<Channel, Failure> {
    let uri = match address {
        ListenAddress::Tcp(address) => format!("http://{address}"),
        unix @ ListenAddress::Unix(_) => unix.to_string(),
        ListenAddress::Systemd(_) => {
            return Err(Failure(format!("cannot connect to {address}{LISTEN_ONLY}")));
        }
    };
    let endpoint = Endpoint::from_shared(uri)?.connect_timeout(timeout);
    endpoint.connect().await.map_err(|error| {
        let remedy = io_cause(&error).map(|cause| connect_remedy(address, cause)).unwrap_or_default();
        Failure(format!("cannot connect to {address}: {}{remedy}", root_cause(&error)))
    })
}

/// The remedy to append to an error of connecting to `address`; empty if none is known.
pub(super) fn connect_remedy(address: &ListenAddress, cause: &io::Error) -> String {
    if let ListenAddress::Unix(path) = address
        && path.metadata().is_ok_and(|found| !found.file_type().is_socket())
    {
        return format!("; {} is not a socket", path.display());
    }
    match cause.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            "; start a server with `tidegate serve`, or give the address of a running one".to_owned()
        }
        _ => String::new(),
    }
}

/// The first IO error among the causes of `error`.
pub(super) fn io_cause<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}

/// The innermost cause of `error`, in words.
pub(super) fn root_cause(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(cause) = innermost.source() {
        innermost = cause;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_file_is_not_called_a_missing_server() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let address = ListenAddress::Unix(file.path().into());
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(connect_remedy(&address, &refused).ends_with("is not a socket"));
        let absent = ListenAddress::Unix(file.path().with_extension("absent"));
        assert!(connect_remedy(&absent, &refused).contains("tidegate serve"));
    }

    #[test]
    fn causes_are_found_at_any_depth() {
        let inner = io::Error::other(io::Error::from(io::ErrorKind::TimedOut));
        assert!(io_cause(&inner).is_some());
        assert_eq!(root_cause(&std::fmt::Error), std::fmt::Error.to_string());
    }
}
