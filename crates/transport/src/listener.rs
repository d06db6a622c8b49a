//! Bound addresses that accept connections.

use super::{Accepted, Peer, socket_file::SocketFile};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::net::UnixListener as StdUnixListener,
    path::Path,
};
use tokio::net::{TcpListener, UnixListener};

/// A bound address.
pub struct Listener(Kind);

enum Kind {
    Tcp {
        listener: TcpListener,
        address: SocketAddr,
    },
    Unix {
        /// Dropped before the listener, as it must be. None if the file belongs to systemd.
        _file: Option<SocketFile>,
        listener: UnixListener,
        address: String,
    },
}

impl Listener {
    /// A bound TCP socket.
    pub(super) fn tcp(listener: StdTcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok(Self(Kind::Tcp { listener, address }))
    }

    /// A bound Unix socket, whose file is removed when the listener is dropped.
    pub(super) fn unix(listener: UnixListener, file: SocketFile) -> Self {
        let address = unix_address(file.path());
        Self(Kind::Unix { _file: Some(file), listener, address })
    }

    /// A bound Unix socket whose file remains when the listener is dropped.
    pub(super) fn inherited_unix(listener: StdUnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = unix_address(listener.local_addr()?.as_pathname().unwrap_or(Path::new("(unnamed)")));
        Ok(Self(Kind::Unix { _file: None, listener: UnixListener::from_std(listener)?, address }))
    }

    /// The bound address. A requested port 0 is replaced by the assigned port.
    pub fn address(&self) -> String {
        match &self.0 {
            Kind::Tcp { address, .. } => address.to_string(),
            Kind::Unix { address, .. } => address.clone(),
        }
    }

    /// Whether it is a TCP listener, which other machines may reach.
    pub fn is_tcp(&self) -> bool {
        matches!(self.0, Kind::Tcp { .. })
    }

    /// The next connection, deregistered from this runtime so that a runtime of another thread can serve it.
    pub async fn accept(&self) -> io::Result<Accepted> {
        match &self.0 {
            Kind::Tcp { listener, .. } => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Accepted::tcp(Peer::from_ip(address.ip()), stream)
            }
            Kind::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred().map_or(Peer::UnknownUser, |process| Peer::User(process.uid()));
                Accepted::unix(peer, stream)
            }
        }
    }
}

fn unix_address(path: &Path) -> String {
    format!("unix:{}", path.display())
}
