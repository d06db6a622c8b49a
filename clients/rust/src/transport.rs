//! Connections to the servers: addresses, round-robin, and bytes that arrived before a connection broke.
//!
//! Each address has one lazily connected channel, and a breaker. Calls use, in order, the addresses whose breaker is closed; an address
//! that refused its last connection is skipped for [`SKIPPED`] while another address is left.

use crate::{
    breaker::{Breaker, Permit, nanos},
    builder::BuildError,
    dial::{Dialed, Dialer, Target},
};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::{
    io::{self, ErrorKind, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

/// Time for which an address that refused its last connection is skipped.
const SKIPPED: Duration = Duration::from_secs(1);

/// Calls in a row without an answer in time, after which a name with several addresses gets another connection. One such call is enough if
/// no call was answered for some time.
const LATE_MAX: u32 = 3;

/// The channels of all addresses.
pub(crate) struct Channels {
    addresses: Vec<Address>,
    next: AtomicUsize,
}

struct Address {
    /// The name as the caller wrote it.
    name: String,
    connections: Connections,
    channel: RwLock<Channel>,
    /// Calls in a row without an answer in time.
    late: AtomicU32,
    /// Time, in nanoseconds, at which the last connection was dropped because it hung.
    left_at: AtomicU64,
    breaker: Arc<Breaker>,
    /// Time, in nanoseconds of the client's clock, until which the address is skipped; 0 after a connection.
    skipped_until: AtomicU64,
}

/// The way to connect to an address.
pub(crate) struct Connections {
    pub(crate) endpoint: Endpoint,
    pub(crate) connector: Connector,
}

impl Connections {
    /// A channel that connects with its first call.
    fn channel(&self) -> Channel {
        self.endpoint.connect_with_connector_lazy(self.connector.clone())
    }
}

/// The address of a call.
pub(crate) struct Choice {
    pub(crate) address: usize,
    pub(crate) permit: Permit,
    /// An address whose breaker permits a probe beside the call.
    pub(crate) due: Option<(usize, Permit)>,
}

impl Channels {
    pub(crate) fn new(addresses: Vec<(String, Connections)>, breaker: impl Fn() -> Breaker) -> Self {
        let address = |(name, connections): (String, Connections)| Address {
            name,
            channel: RwLock::new(connections.channel()),
            connections,
            late: AtomicU32::new(0),
            left_at: AtomicU64::new(0),
            breaker: Arc::new(breaker()),
            skipped_until: AtomicU64::new(0),
        };
        Self { addresses: addresses.into_iter().map(address).collect(), next: AtomicUsize::new(0) }
    }

    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns the next address whose breaker is closed, preferably an address that is not skipped; else an address whose breaker permits a
    /// probe; None if no breaker permits a call.
    pub(crate) fn choose(&self, now: Duration) -> Option<Choice> {
        let count = self.addresses.len();
        let start = if count == 1 { 0 } else { self.next.fetch_add(1, Ordering::Relaxed) };
        let mut due = None;
        for is_skipped in [false, true] {
            for offset in 0..count {
                let index = start.wrapping_add(offset) % count;
                let address = &self.addresses[index];
                if (address.skipped_until.load(Ordering::Relaxed) > nanos(now)) != is_skipped {
                    continue;
                }
                match address.breaker.enter(now) {
                    Some(permit) if !permit.is_probe() => {
                        return Some(Choice { address: index, permit, due });
                    }
                    Some(probe) if due.is_none() => due = Some((index, probe)),
                    _ => {}
                }
            }
        }
        due.map(|(address, permit)| Choice { address, permit, due: None })
    }

    pub(crate) fn name(&self, address: usize) -> &str {
        &self.addresses[address].name
    }

    pub(crate) fn channel(&self, address: usize) -> Channel {
        self.addresses[address].channel.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that a call was answered.
    pub(crate) fn answered(&self, address: usize) {
        let late = &self.addresses[address].late;
        // A load is cheaper than a store that all callers share.
        if late.load(Ordering::Relaxed) != 0 {
            late.store(0, Ordering::Relaxed);
        }
    }

    /// Whether an address beside this one is in use.
    pub(crate) fn has_other(&self, than: usize, now: Duration) -> bool {
        self.addresses.iter().enumerate().any(|(index, address)| {
            let is_skipped = address.skipped_until.load(Ordering::Relaxed) > nanos(now);
            index != than && !is_skipped && !address.breaker.is_open()
        })
    }

    /// Records that a call, sent at some time, had no answer in time. If the name has several addresses, the next calls use another.
    pub(crate) fn late(&self, address: usize, sent: Duration, now: Duration) {
        let Address { late, left_at, connections, channel, breaker, .. } = &self.addresses[address];
        if nanos(sent) < left_at.load(Ordering::Relaxed) {
            return;
        }
        let is_last = late.fetch_add(1, Ordering::Relaxed) + 1 == LATE_MAX;
        if is_last || breaker.is_silent(now) {
            late.store(0, Ordering::Relaxed);
            if connections.connector.0.hangs() {
                left_at.store(nanos(now), Ordering::Relaxed);
                *channel.write().unwrap_or_else(PoisonError::into_inner) = connections.channel();
            }
        }
    }

    /// Records that a connection to the address failed.
    pub(crate) fn refused(&self, address: usize, now: Duration) {
        self.addresses[address].skipped_until.store(nanos(now + SKIPPED), Ordering::Relaxed);
    }
}

/// Returns the endpoint and the connector for an address: `host:port`, `unix:/path/of/socket`, `ipv4:` or `ipv6:` with addresses and
/// ports between commas, or a URI.
pub(crate) fn endpoint(address: &str, scheme: &str) -> Result<(Endpoint, Connector), BuildError> {
    let failed = |source| BuildError::Address { address: address.to_owned(), source };
    if let Some(path) = address.strip_prefix("unix:") {
        // The authority of requests; the connector does not read it.
        let endpoint = Endpoint::from_shared(format!("{scheme}://localhost")).map_err(failed)?;
        return Ok((endpoint, Connector::of(Target::Unix(path.trim_start_matches("//").into()))));
    }
    if let Some(list) = address.strip_prefix("ipv4:").or_else(|| address.strip_prefix("ipv6:")) {
        let addresses: Result<Vec<SocketAddr>, _> = list.split(',').map(str::parse).collect();
        let Ok(addresses) = addresses else {
            return Err(BuildError::Port { address: address.to_owned() });
        };
        let first = addresses.first().map_or_else(String::new, ToString::to_string);
        let endpoint = Endpoint::from_shared(format!("{scheme}://{first}")).map_err(failed)?;
        return Ok((endpoint, Connector::of(Target::Addresses(addresses))));
    }
    if address.contains("://") {
        let endpoint = Endpoint::from_shared(address.to_owned()).map_err(failed)?;
        return Ok((endpoint, Connector::of(Target::Name)));
    }
    let endpoint = Endpoint::from_shared(format!("{scheme}://{address}")).map_err(failed)?;
    if endpoint.uri().port_u16().is_none() {
        return Err(BuildError::Port { address: address.to_owned() });
    }
    Ok((endpoint, Connector::of(Target::Name)))
}

/// Opens connections, for the channel of one address.
#[derive(Clone)]
pub(crate) struct Connector(Arc<Dialer>);

impl Connector {
    fn of(target: Target) -> Self {
        Self(Arc::new(Dialer::new(target)))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Connection>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move {
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
            let default_port = if uri.scheme_str() == Some("https") { 443 } else { 80 };
            let stream: Box<dyn Stream> =
                match dialer.dial(host, uri.port_u16().unwrap_or(default_port)).await? {
                    Dialed::Tcp(stream) => Box::new(stream),
                    Dialed::Unix(stream) => Box::new(stream),
                };
            Ok(TokioIo::new(Connection { stream, is_closed_by_peer: false }))
        })
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection whose received bytes are read before a failed write ends it.
///
/// A server that sends GOAWAY and closes at once resets a connection with a request in progress. HTTP/2 clients give up at the failed
/// write, with the GOAWAY unread in the socket's buffer, and cannot know that the request was not processed. Here a write to a connection
/// closed by the peer succeeds without effect; the following reads return the bytes that had arrived, then the end or the error.
pub(crate) struct Connection {
    stream: Box<dyn Stream>,
    is_closed_by_peer: bool,
}

impl Connection {
    /// Replaces the failure of a write to a closed connection by a value.
    fn written<T>(&mut self, result: io::Result<T>, if_closed: T) -> Poll<io::Result<T>> {
        use ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
        match result {
            Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected) => {
                self.is_closed_by_peer = true;
                Poll::Ready(Ok(if_closed))
            }
            other => Poll::Ready(other),
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed_by_peer {
            return Poll::Ready(Ok(bytes.len()));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write(context, bytes));
        self.written(result, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all = slices.iter().map(|slice| slice.len()).sum();
        if self.is_closed_by_peer {
            return Poll::Ready(Ok(all));
        }
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(context, slices));
        self.written(result, all)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_flush(context));
        self.written(result, ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.stream).poll_shutdown(context));
        self.written(result, ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    #[tokio::test]
    async fn bytes_that_arrived_before_a_reset_are_read_after_a_failed_write() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (_, mut connector) = endpoint(&address, "http").expect("an address");
        let uri = format!("http://{address}").parse().expect("a URI");
        let mut client = connector.call(uri).await.expect("a connection").into_inner();
        let (mut server, _) = listener.accept().await.expect("a connection");
        server.write_all(b"last words").await.expect("it is sent");
        server.set_zero_linger().expect("it is set");
        drop(server);
        // The first write may still be accepted; a write after the reset is not.
        while !client.is_closed_by_peer {
            client.write_all(b"request").await.expect("it succeeds without effect");
        }
        let mut received = Vec::new();
        _ = client.read_to_end(&mut received).await;
        assert_eq!(received, b"last words");
    }

    fn channels(count: usize) -> Channels {
        let connections = || {
            let (endpoint, connector) = endpoint("127.0.0.1:1", "http").expect("an address");
            Connections { endpoint, connector }
        };
        let addresses = (0..count).map(|_| (String::new(), connections())).collect();
        Channels::new(addresses, || Breaker::new(1, SKIPPED))
    }

    #[tokio::test]
    async fn addresses_alternate_and_those_that_refused_are_skipped() {
        let channels = channels(3);
        let used = |now, calls| {
            (0..calls).map(|_| channels.choose(now).expect("an address").address).collect::<Vec<_>>()
        };
        assert_eq!(used(Duration::ZERO, 4), [0, 1, 2, 0]);
        channels.refused(1, Duration::ZERO);
        assert_eq!(used(SKIPPED / 2, 2), [2, 2], "1 is skipped");
        assert_eq!(used(SKIPPED, 3), [0, 1, 2]);
        for address in 0..3 {
            channels.refused(address, SKIPPED);
        }
        assert_eq!(used(SKIPPED, 3), [0, 1, 2], "all are skipped");
    }

    #[tokio::test]
    async fn an_open_breaker_is_probed_beside_a_call_and_by_a_call_only_if_all_are_open() {
        let channels = channels(2);
        let fail = |now| {
            let choice = channels.choose(now).expect("an address");
            choice.permit.failed(now, now, false);
            choice.address
        };
        assert_eq!(fail(Duration::ZERO), 0);
        let choices = [0, 1].map(|_| channels.choose(Duration::ZERO).expect("the other address"));
        assert!(choices.iter().all(|choice| choice.address == 1 && choice.due.is_none()));
        channels.choose(SKIPPED).expect("the other address").permit.succeeded(SKIPPED);
        let probed = channels.choose(SKIPPED).expect("the other address");
        assert_eq!((probed.address, probed.due.expect("a probe").0), (1, 0));
        assert_eq!(fail(Duration::ZERO), 1);
        assert!(channels.choose(Duration::ZERO).is_none(), "all are open");
        assert!(channels.choose(SKIPPED).expect("a probe").permit.is_probe());
    }
}
