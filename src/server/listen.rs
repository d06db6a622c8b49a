//! Where the server listens: TCP addresses and Unix sockets.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener as StdTcpListener, ToSocketAddrs},
    os::unix::{fs::FileTypeExt, net::UnixStream as StdUnixStream},
    path::{Path, PathBuf},
    str::FromStr,
};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// An address to listen on: `host:port` or `unix:/path/of/socket`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddress {
    /// A TCP address.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// Why a text is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not an address; write host:port (127.0.0.1:8081, [::1]:8081) or unix:/path/of/socket")]
pub struct ListenAddressError(String);

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                Ok(Self::Tcp(text.into()))
            }
            _ => Err(ListenAddressError(text.into())),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A connection before a worker takes it.
pub(super) enum Stream {
    Tcp(std::net::TcpStream),
    Unix(StdUnixStream),
}

/// A bound address.
pub(super) enum Listener {
    Tcp { listener: TcpListener, address: SocketAddr },
    Unix { listener: UnixListener, socket: SocketFile },
}

/// The file of a Unix socket; it goes with the listener.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may be gone already, and there is nobody left to tell.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// The address that was bound: with port 0, the port that was given.
    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp { address, .. } => address.to_string(),
            Self::Unix { socket, .. } => format!("unix:{}", socket.0.display()),
        }
    }

    /// Serves HTTP pages to whoever connects, for as long as it is polled.
    pub(super) async fn serve_pages(self, pages: axum::Router) {
        let served = match self {
            Self::Tcp { listener, .. } => axum::serve(listener, pages).await,
            Self::Unix { listener, socket } => {
                let served = axum::serve(listener, pages).await;
                drop(socket);
                served
            }
        };
        if let Err(error) = served {
            tracing::warn!(%error, "the pages for those who watch are served no more");
        }
    }

    /// The next connection, taken off this runtime so that a worker's can have it.
    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match self {
            Self::Tcp { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                stream.set_nodelay(true)?;
                stream.into_std().map(Stream::Tcp)
            }
            Self::Unix { listener, .. } => listener.accept().await?.0.into_std().map(Stream::Unix),
        }
    }
}

/// A connection on a worker's runtime.
pub(super) enum Registered {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// Puts the connection on the current runtime.
    pub(super) fn register(self) -> io::Result<Registered> {
        match self {
            Self::Tcp(stream) => TcpStream::from_std(stream).map(Registered::Tcp),
            Self::Unix(stream) => UnixStream::from_std(stream).map(Registered::Unix),
        }
    }
}

/// Binds all addresses, or none.
pub(super) fn bind(addresses: &[ListenAddress]) -> Result<Vec<Listener>, super::ServeError> {
    let bind_one = |address: &ListenAddress| {
        let bound = match address {
            ListenAddress::Tcp(text) => bind_tcp(text),
            ListenAddress::Unix(path) => bind_unix(path),
        };
        bound.map_err(|source| super::ServeError::Listen { address: address.clone(), source })
    };
    addresses.iter().map(bind_one).collect()
}

fn bind_tcp(text: &str) -> io::Result<Listener> {
    let addresses: Vec<SocketAddr> = text.to_socket_addrs()?.collect();
    let listener = StdTcpListener::bind(addresses.as_slice())?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let address = listener.local_addr()?;
    Ok(Listener::Tcp { listener, address })
}

/// A socket file that nobody answers on was left by a process that was killed: it is replaced.
fn bind_unix(path: &Path) -> io::Result<Listener> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && StdUnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    Ok(Listener::Unix { listener, socket: SocketFile(path.into()) })
}

/// What to do about an address that cannot be bound.
pub(super) fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => "; something listens there already: choose another with --listen",
        io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023 or a directory you may write to, with --listen"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address: choose another with --listen",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_others_are_told_what_to_write() {
        let read = |text: &str| text.parse::<ListenAddress>();
        assert_eq!(read("127.0.0.1:0"), Ok(ListenAddress::Tcp("127.0.0.1:0".into())));
        assert_eq!(read("[::1]:8081"), Ok(ListenAddress::Tcp("[::1]:8081".into())));
        assert_eq!(read("unix:/run/t.sock"), Ok(ListenAddress::Unix("/run/t.sock".into())));
        for wrong in ["", "8081", ":8081", "localhost", "localhost:http", "localhost:70000", "unix:"] {
            let error = read(wrong).expect_err("is no address").to_string();
            assert!(error.contains("write host:port"), "{error}");
        }
    }
}
