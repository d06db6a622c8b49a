//! Connections to the server.

use crate::tls::{ClientTls, TlsSocket};
use mio::event::Source;
use rustls::ClientConnection;
use std::{
    io,
    io::{Read, Write},
    net::{SocketAddr, ToSocketAddrs as _},
    time::Duration,
};
use tidegate_transport::ListenAddress;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A connected non-blocking socket.
pub(crate) trait Socket: Read + Write + Source {}

impl<S: Read + Write + Source> Socket for S {}

/// The server, and TLS of connections to it.
pub struct Target {
    /// Its address.
    pub address: ListenAddress,
    /// TLS of the connections. None for connections without TLS.
    pub tls: Option<ClientTls>,
}

/// A failed connection attempt.
#[derive(Debug, thiserror::Error)]
#[error("cannot connect to {address}: {cause}")]
pub struct ConnectError {
    /// The server's address.
    pub address: ListenAddress,
    /// The cause.
    #[source]
    pub cause: io::Error,
}

/// Connects. Blocks until the connection is established.
pub(crate) fn connect(target: &Target) -> Result<Box<dyn Socket>, ConnectError> {
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
            Err(io::Error::new(io::ErrorKind::Unsupported, ListenAddress::LISTEN_ONLY))
        }
    };
    connected.map_err(|cause| ConnectError { address: address.clone(), cause })
}

/// Tries each address of the name.
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
