//! Connections to one address of the caller, which may be a name with several addresses.
//!
//! Addresses are raced (RFC 8305): each gets a head start, and the first that connects is used. A failed address is tried last from then
//! on.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    net::{TcpStream, UnixStream, lookup_host},
    task::JoinSet,
    time::timeout,
};

/// Head start of an address before the next address is tried.
const HEAD_START: Duration = Duration::from_millis(250);

/// Destination of connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// The host and port of the URI.
    Name,
    /// These addresses.
    Addresses(Vec<SocketAddr>),
    /// The path of a Unix socket.
    Unix(PathBuf),
}

/// Opens connections to a target.
#[derive(Debug)]
pub(crate) struct Dialer {
    target: Target,
    peers: Mutex<Peers>,
}

/// The known state of a target's addresses.
#[derive(Debug, Default)]
struct Peers {
    /// Number of addresses.
    count: usize,
    /// The address of the last connection.
    connected: Option<SocketAddr>,
    /// Addresses that refused, swallowed or hung, until they connect again; the most recent last.
    suspects: Vec<SocketAddr>,
}

/// A connection, before [`Connection`](crate::transport::Connection) wraps it.
pub(crate) enum Dialed {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Dialer {
    pub(crate) fn new(target: Target) -> Self {
        Self { target, peers: Mutex::default() }
    }

    /// Connects to the target; `host` and `port` are those of the URI.
    pub(crate) async fn dial(&self, host: &str, port: u16) -> io::Result<Dialed> {
        let mut addresses: Vec<SocketAddr> = match &self.target {
            Target::Unix(path) => return UnixStream::connect(path).await.map(Dialed::Unix),
            Target::Addresses(addresses) => addresses.clone(),
            Target::Name => lookup_host((host, port)).await?.collect(),
        };
        {
            let mut peers = self.peers();
            peers.count = addresses.len();
            // A stable sort keeps the resolver's order, which alternates families; the address that failed last goes last.
            addresses.sort_by_key(|address| {
                let suspected = peers.suspects.iter().position(|suspect| suspect == address);
                suspected.map_or(0, |number| number + 1)
            });
        }
        let (address, stream) = self.race(addresses).await?;
        let mut peers = self.peers();
        peers.suspects.retain(|suspect| *suspect != address);
        peers.connected = Some(address);
        stream.set_nodelay(true)?;
        Ok(Dialed::Tcp(stream))
    }

    async fn race(&self, addresses: Vec<SocketAddr>) -> io::Result<(SocketAddr, TcpStream)> {
        let (mut attempts, mut started) = (JoinSet::new(), Vec::with_capacity(addresses.len()));
        let mut waiting = addresses.into_iter().peekable();
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        loop {
            if let Some(address) = waiting.next() {
                started.push(address);
                attempts.spawn(async move { (address, TcpStream::connect(address).await) });
            }
            let joined = if waiting.peek().is_none() {
                attempts.join_next().await
            } else {
                match timeout(HEAD_START, attempts.join_next()).await {
                    Ok(joined) => joined,
                    Err(_) => continue,
                }
            };
            match joined {
                Some(Ok((address, Ok(stream)))) => {
                    // Addresses with a head start swallow, or are slower.
                    started
                        .into_iter()
                        .take_while(|other| *other != address)
                        .for_each(|other| self.suspect(other));
                    return Ok((address, stream));
                }
                Some(Ok((address, Err(error)))) => {
                    self.suspect(address);
                    failure = error;
                }
                Some(Err(_)) => {}
                None => return Err(failure),
            }
        }
    }

    /// Records that the connected address does not respond. Returns whether there is another address.
    pub(crate) fn hangs(&self) -> bool {
        let mut peers = self.peers();
        let Some(address) = peers.connected.take() else { return peers.count > 1 };
        let count = peers.count;
        drop(peers);
        if count > 1 {
            self.suspect(address);
        }
        count > 1
    }

    fn suspect(&self, address: SocketAddr) {
        let mut peers = self.peers();
        peers.suspects.retain(|suspect| *suspect != address);
        peers.suspects.push(address);
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_address_that_refuses_or_hangs_comes_last_from_then_on() {
        let (first, second) =
            (TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await);
        let (first, second) = (first.expect("a port"), second.expect("a port"));
        let addresses = [&first, &second].map(|listener| listener.local_addr().expect("an address"));
        let dialer = Dialer::new(Target::Addresses(addresses.to_vec()));
        let connected = async || {
            let Ok(Dialed::Tcp(stream)) = dialer.dial("", 0).await else { panic!("no connection") };
            stream.peer_addr().expect("an address")
        };
        assert_eq!(connected().await, addresses[0]);
        assert!(dialer.hangs(), "there is another one");
        assert_eq!(connected().await, addresses[1]);
        // The other address hung before.
        assert!(dialer.hangs());
        assert_eq!(connected().await, addresses[0]);
        assert!(dialer.hangs());
        assert_eq!(connected().await, addresses[1]);
        drop(second);
        assert_eq!(connected().await, addresses[0], "the other one refuses");
        assert_eq!(dialer.peers().suspects, [addresses[1]]);
    }

    #[tokio::test]
    async fn a_single_address_that_hangs_stays() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let dialer = Dialer::new(Target::Addresses(vec![listener.local_addr().expect("an address")]));
        dialer.dial("", 0).await.expect("a connection");
        assert!(!dialer.hangs());
    }
}
