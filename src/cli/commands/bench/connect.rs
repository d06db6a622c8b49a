//! Connections to the server.

use super::tls::{ClientTls, TlsSocket};
use crate::{api::channel::LISTEN_ONLY, cli::commands::target::connect_remedy, server::ListenAddress};
use mio::event::Source;
use rustls::ClientConnection;
use std::{
    io,
    io::{Read, Write},
    net::{SocketAddr, ToSocketAddrs as _},
    time::Duration,
};

pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connected non-blocking socket.
pub(super) trait Socket: Read + Write + Source {}

impl<S: Read + Write + Source> Socket for S {}

/// The server, and TLS of connections to it.
pub(super) struct Target {
    pub(super) address: ListenAddress,
    pub(super) tls: Option<ClientTls>,
}

/// A failed connection attempt.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {address}: {cause}{}", connect_remedy(address, cause))]
pub(super) struct ConnectError {
    address: ListenAddress,
    #[source]
    cause: io::Error,
}

/// The `:authority` of requests.
pub(super) fn authority(address: &ListenAddress) -> &str {
    match address {
        ListenAddress::Tcp(address) => address,
        ListenAddress::Unix(_) | ListenAddress::Systemd(_) => "localhost",
    }
}

/// Connects, blocking until the connection stands.
pub(super) fn connect(target: &Target) -> Result<Box<dyn Socket>, ConnectError> {
    let Target { address, tls } = target;
    let tls = tls.as_ref();
    let connected = match address {
        ListenAddress::Tcp(address) => connect_tcp(address, tls),
        ListenAddress::Unix(path) => std::os::unix::net::UnixStream::connect(path).and_then(|socket| {
            let session = tls.map(|tls| tls.handshake(&mut &socket)).transpose()?;
            socket.set_nonblocking(true)?;
            let socket = mio::net::UnixStream::from_std(socket);
            Ok(with_session(socket, session))
        }),
        ListenAddress::Systemd(_) => {
            Err(io::Error::new(io::ErrorKind::Unsupported, LISTEN_ONLY.trim_start_matches([':', ' '])))
        }
    };
    connected.map_err(|cause| ConnectError { address: address.clone(), cause })
}

/// Tries each address that the name resolves to.
fn connect_tcp(address: &str, tls: Option<&ClientTls>) -> io::Result<Box<dyn Socket>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name resolves to no address");
    for address in address.to_socket_addrs()? {
        match connect_to(address, tls) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, tls: Option<&ClientTls>) -> io::Result<Box<dyn Socket>> {
    let socket = std::net::TcpStream::connect_timeout(&address, CONNECT_TIMEOUT)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(CONNECT_TIMEOUT))?;
    let session = tls.map(|tls| tls.handshake(&mut &socket)).transpose()?;
    socket.set_nonblocking(true)?;
    Ok(with_session(mio::net::TcpStream::from_std(socket), session))
}

fn with_session(socket: impl Socket + 'static, session: Option<Box<ClientConnection>>) -> Box<dyn Socket> {
    match session {
        None => Box::new(socket),
        Some(session) => Box::new(TlsSocket::new(socket, session)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_connection_has_a_remedy() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let refused = ListenAddress::Tcp(free.expect("a free port").to_string());
        let absent = ListenAddress::Unix("/nowhere/tidegate.sock".into());
        for address in [refused, absent] {
            let Err(error) = connect(&Target { address, tls: None }) else { panic!("nothing listens there") };
            assert!(error.to_string().contains("tidegate serve"), "{error}");
        }
    }
}
