//! Binding of addresses.

use super::{ListenAddress, inherited::InheritedSockets, listener::Listener};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener, ToSocketAddrs},
    os::unix::{fs::FileTypeExt, net::UnixStream as StdUnixStream},
    path::Path,
};
use tokio::net::UnixListener;

/// Number of connections that the kernel completes before they are accepted. Its own bound may be lower. Beyond it, clients connect a
/// second later.
const BACKLOG: i32 = 4_096;

/// An address that could not be bound.
#[derive(Debug)]
pub struct BindError {
    /// The address.
    pub address: ListenAddress,
    /// The cause.
    pub source: io::Error,
}

/// Binds all addresses and takes the inherited sockets that they name. Does neither if one fails.
pub fn bind(
    addresses: &[ListenAddress],
    inherited: &mut InheritedSockets,
) -> Result<Vec<Listener>, BindError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let bound = match address {
            ListenAddress::Tcp(text) => bind_tcp(text).map(|listener| listeners.push(listener)),
            ListenAddress::Unix(path) => bind_unix(path).map(|listener| listeners.push(listener)),
            ListenAddress::Systemd(name) => inherited.take(name).map(|taken| listeners.extend(taken)),
        };
        bound.map_err(|source| BindError { address: address.clone(), source })?;
    }
    Ok(listeners)
}

fn bind_tcp(text: &str) -> io::Result<Listener> {
    let addresses: Vec<SocketAddr> = text.to_socket_addrs()?.collect();
    let listener = StdTcpListener::bind(addresses.as_slice())?;
    // Raises the backlog of the standard library, which is 128.
    rustix::net::listen(&listener, BACKLOG)?;
    Listener::tcp(listener)
}

/// Replaces a socket file that refuses connections, because a killed process left it behind.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let found = std::fs::symlink_metadata(path).ok().map(|found| found.file_type());
    let is_socket = found.is_some_and(|found| found.is_socket());
    if found.is_some() && !is_socket {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket"));
    }
    if is_socket && StdUnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    Ok(Listener::unix(listener, path))
}
