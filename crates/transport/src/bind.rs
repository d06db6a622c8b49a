//! Binding of addresses.

use super::{ListenAddress, inherited::InheritedSockets, listener::Listener, socket_file::SocketFile};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener, ToSocketAddrs},
};

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
            ListenAddress::Unix(path) => {
                SocketFile::bind(path).map(|(file, listener)| listeners.push(Listener::unix(listener, file)))
            }
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
