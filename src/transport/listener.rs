//! Bound addresses that accept connections.

use super::{Accepted, ListenAddress, Peer, inherited::InheritedSockets};
use std::{
    io,
    net::{SocketAddr, TcpListener as StdTcpListener, ToSocketAddrs},
    os::unix::{
        fs::FileTypeExt,
        net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream},
    },
    path::{Path, PathBuf},
};
use tokio::net::{TcpListener, UnixListener};

/// Connections that the kernel completes before they are accepted; it may have a lower bound. Beyond it clients connect a second later.
const BACKLOG: i32 = 4_096;

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
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been removed already.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// An address that could not be bound.
#[derive(Debug)]
pub(crate) struct BindError {
    pub(crate) address: ListenAddress,
    pub(crate) source: io::Error,
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

/// Binds all addresses and takes the inherited sockets that they name, or neither.
pub(crate) fn bind(
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

/// Replaces a socket file that refuses connections: a killed process left it behind.
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
    Ok(Listener::Unix { listener, socket: SocketFile(path.into()) })
}
