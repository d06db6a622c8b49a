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
pub(crate) enum Listener {
    Tcp {
        listener: TcpListener,
        address: SocketAddr,
    },
    Unix {
        listener: UnixListener,
        socket: SocketFile,
    },
    /// The owner of the socket file is systemd.
    InheritedUnix {
        listener: UnixListener,
        path: PathBuf,
    },
}

/// The file of a Unix socket, removed when the listener is dropped.
pub(crate) struct SocketFile(pub(super) PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// A bound TCP socket.
    pub(super) fn tcp(listener: StdTcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let address = listener.local_addr()?;
        Ok(Self::Tcp { listener, address })
    }

    /// A bound Unix socket. Its file remains when the listener is dropped.
    pub(super) fn inherited_unix(listener: StdUnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let path = listener.local_addr()?.as_pathname().unwrap_or(Path::new("(unnamed)")).into();
        Ok(Self::InheritedUnix { listener: UnixListener::from_std(listener)?, path })
    }

    /// The bound address; a requested port 0 is replaced by the assigned port.
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Tcp { address, .. } => address.to_string(),
            Self::Unix { socket, .. } => format!("unix:{}", socket.0.display()),
            Self::InheritedUnix { path, .. } => format!("unix:{}", path.display()),
        }
    }

    /// Whether it is a TCP listener, which other machines may reach.
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self, Self::Tcp { .. })
    }

    /// The next connection, deregistered from this runtime so that another thread's can serve it.
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp { listener, .. } => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Accepted::tcp(Peer::from_ip(address.ip()), stream)
            }
            Self::Unix { listener, .. } | Self::InheritedUnix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred().map_or(Peer::UnknownUser, |process| Peer::User(process.uid()));
                Accepted::unix(peer, stream)
            }
        }
    }
}
