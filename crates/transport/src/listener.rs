//! Bound addresses that accept connections.

use super::{Accepted, Peer};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener},
    os::unix::net::UnixListener as StdUnixListener,
    path::{Path, PathBuf},
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
        listener: UnixListener,
        path: PathBuf,
        /// Whether the socket file belongs to systemd.
        is_inherited: bool,
    },
}

/// Removes the file of a Unix socket.
impl Drop for Listener {
    fn drop(&mut self) {
        if let Kind::Unix { path, is_inherited: false, .. } = &self.0 {
            // The file may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
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
    pub(super) fn unix(listener: UnixListener, path: &Path) -> Self {
        Self(Kind::Unix { listener, path: path.into(), is_inherited: false })
    }

    /// A bound Unix socket whose file remains when the listener is dropped.
    pub(super) fn inherited_unix(listener: StdUnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().unwrap_or(Path::new("(unnamed)")).into();
        Ok(Self(Kind::Unix { listener: UnixListener::from_std(listener)?, path, is_inherited: true }))
    }

    /// The bound address. A requested port 0 is replaced by the assigned port.
    pub fn address(&self) -> String {
        match &self.0 {
            Kind::Tcp { address, .. } => address.to_string(),
            Kind::Unix { path, .. } => format!("unix:{}", path.display()),
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
