//! Connections to the server, which may have several addresses.
//!
//! Addresses are raced (RFC 8305): each gets a head start, and the first whose server sends SETTINGS is used. An accepted connection proves
//! nothing, since the system accepts connections of a stopped process too. A failed address is tried last from then on.

use super::{messages::PATH, reply::Reply};
use crate::settings::{Address, HostPort, Server};
use std::{fs, io, net::SocketAddr, sync::Arc, time::Duration};
use tidegate_http2::client::{Connection, RequestEncoder};
use tidegate_transport::TlsClientError;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream, lookup_host},
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// The longest time for the lookup of a name, and for a connection up to the server's SETTINGS.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Head start of an address before the next address is tried.
const HEAD_START: Duration = Duration::from_millis(250);

/// Makes connections to a server.
pub(super) struct Dialer {
    server: Arc<Server>,
    /// Addresses that have failed since their last connection.
    suspects: Vec<SocketAddr>,
}

/// A connection after the server's SETTINGS.
pub(super) struct Connected {
    pub(super) stream: Box<dyn Stream>,
    pub(super) connection: Connection<Reply>,
    /// None of a Unix socket.
    pub(super) address: Option<SocketAddr>,
}

/// A stream of bytes, by whatever transport.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

impl Dialer {
    pub(super) fn new(server: &Server) -> Self {
        Self { server: Arc::new(server.clone()), suspects: Vec::new() }
    }

    /// Connects, in a set of local tasks; the error has the reason for each address.
    pub(super) async fn dial(&mut self) -> Result<Connected, String> {
        let mut hosts = match &self.server.address {
            Address::Unix(_) => return in_time(attempt(Arc::clone(&self.server), None)).await,
            Address::Tcp(hosts) => addresses(hosts).await?,
        };
        self.suspects.retain(|suspect| hosts.iter().any(|(address, _)| address == suspect));
        // A stable sort: otherwise the configured order, and the resolver's, are kept.
        hosts.sort_by_key(|(address, _)| self.suspects.contains(address));
        self.race(hosts).await
    }

    async fn race(&mut self, hosts: Vec<(SocketAddr, HostPort)>) -> Result<Connected, String> {
        let (mut attempts, mut started) = (JoinSet::new(), Vec::with_capacity(hosts.len()));
        let (mut waiting, mut failures) = (hosts.into_iter().peekable(), Vec::new());
        loop {
            if let Some((address, host)) = waiting.next() {
                started.push(address);
                let attempt = in_time(attempt(Arc::clone(&self.server), Some((address, host))));
                attempts.spawn_local(async move { (address, attempt.await) });
            }
            let ended = match waiting.peek() {
                None => attempts.join_next().await,
                Some(_) => match timeout(HEAD_START, attempts.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            match ended {
                Some(Ok((address, Ok(connected)))) => {
                    self.suspects.retain(|suspect| *suspect != address);
                    // Addresses with a head start do not respond, or are slower.
                    started.iter().take_while(|own| **own != address).for_each(|own| self.suspect(*own));
                    return Ok(connected);
                }
                Some(Ok((address, Err(why)))) => {
                    self.suspect(address);
                    failures.push(format!("{address}: {why}"));
                }
                Some(Err(_)) => {}
                None => return Err(failures.join("; ")),
            }
        }
    }

    /// Notes that a connection to this address failed: the next connection goes to another address, if there is one.
    pub(super) fn suspect(&mut self, address: SocketAddr) {
        if !self.suspects.contains(&address) {
            self.suspects.push(address);
        }
    }
}

/// All addresses of the hosts, in order; an error if there is none.
async fn addresses(hosts: &[HostPort]) -> Result<Vec<(SocketAddr, HostPort)>, String> {
    let lookup = |own: &HostPort| {
        let (host, port) = (own.host.clone(), own.port);
        tokio::spawn(timeout(CONNECT_TIMEOUT, async move {
            lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>)
        }))
    };
    // All at once: a name server that does not respond delays one name only.
    let lookups: Vec<_> = hosts.iter().map(lookup).collect();
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for (own, lookup) in hosts.iter().zip(lookups) {
        match lookup.await {
            Ok(Ok(Ok(addresses))) => found.extend(addresses.into_iter().map(|one| (one, own.clone()))),
            Ok(Ok(Err(error))) => failures.push(format!("{}: {error}", own.host)),
            Ok(Err(_)) | Err(_) => failures.push(format!("{}: no address in time", own.host)),
        }
    }
    if found.is_empty() { Err(failures.join("; ")) } else { Ok(found) }
}

async fn in_time(attempt: impl Future<Output = Result<Connected, String>>) -> Result<Connected, String> {
    let failure = format!("no HTTP/2 SETTINGS within {CONNECT_TIMEOUT:?}");
    timeout(CONNECT_TIMEOUT, attempt).await.unwrap_or(Err(failure))
}

/// Connects to one address, or to the Unix socket, and waits for SETTINGS.
async fn attempt(server: Arc<Server>, to: Option<(SocketAddr, HostPort)>) -> Result<Connected, String> {
    let text = |error: io::Error| error.to_string();
    let authority = to.as_ref().map_or("localhost".to_owned(), |(_, host)| host.to_string());
    let mut connection = Connection::new(encoder(&server, &authority)?);
    let mut stream = open(&server, to.as_ref()).await?;
    stream.write_all(connection.unwritten()).await.map_err(text)?;
    stream.flush().await.map_err(text)?;
    connection.wrote(connection.unwritten().len());
    let mut buffer = [0; 1024];
    while !connection.is_ready() {
        match stream.read(&mut buffer).await.map_err(text)? {
            0 => return Err("the connection was closed".to_owned()),
            // Without a call, none can finish.
            count => {
                connection.read(&buffer[..count], &mut Vec::new()).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(Connected { stream, connection, address: to.map(|(address, _)| address) })
}

async fn open(server: &Server, to: Option<&(SocketAddr, HostPort)>) -> Result<Box<dyn Stream>, String> {
    let text = |error: io::Error| error.to_string();
    match (&server.address, to) {
        (Address::Unix(path), _) => Ok(Box::new(UnixStream::connect(path).await.map_err(text)?)),
        (Address::Tcp(_), None) => Err("no address".to_owned()),
        (Address::Tcp(_), Some((address, own))) => {
            let stream = TcpStream::connect(address).await.map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            let Some(tls) = &server.tls else { return Ok(Box::new(stream)) };
            // Files are read at every connection, so that certificates can be renewed.
            let refused = |error: TlsClientError| error.to_string();
            let config = tls.config().map_err(refused)?;
            let name = tls.server_name(&own.to_string()).map_err(refused)?;
            Ok(Box::new(TlsConnector::from(config).connect(name, stream).await.map_err(text)?))
        }
    }
}

/// The headers of calls.
fn encoder(server: &Server, authority: &str) -> Result<RequestEncoder, String> {
    let token = token(server)?.map(|token| format!("Bearer {token}"));
    let mut fields =
        vec![(":authority", authority), ("te", "trailers"), ("content-type", "application/grpc")];
    fields.extend(token.as_deref().map(|token| ("authorization", token)));
    Ok(RequestEncoder::new(PATH, &fields))
}

/// The module's token from its file; none if no file is configured.
pub(super) fn token(server: &Server) -> Result<Option<String>, String> {
    let Some(path) = &server.token_file else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let token = text.trim();
    let is_visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_visible.then(|| Some(token.to_owned())).ok_or_else(|| format!("{}: is not one token", path.display()))
}

#[cfg(test)]
#[path = "../../../../tests/it/support/certificates.rs"]
#[allow(dead_code, reason = "tests/it uses the rest")]
mod certificates;

#[cfg(test)]
mod tests {
    use super::{super::tests::SETTINGS, *};
    use certificates::Authority;
    use rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    };
    use tidegate_transport::TlsClient;
    use tokio::{net::TcpListener, runtime, task::LocalSet};
    use tokio_rustls::TlsAcceptor;

    /// Accepts connections and sends SETTINGS on each.
    async fn respond(listener: TcpListener) {
        let mut streams = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            // An error is a connection that was closed.
            let _ = stream.write_all(&SETTINGS).await;
            streams.push(stream);
        }
    }

    async fn respond_with_tls(listener: TcpListener, acceptor: TlsAcceptor) {
        let mut streams = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            // Clients that refuse the certificate end the handshake.
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            let _ = stream.write_all(&SETTINGS).await;
            streams.push(stream);
        }
    }

    #[test]
    fn a_server_needs_a_certificate_of_the_authority_for_its_name() {
        let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("tests"));
        let pair = authority.issue(&["127.0.0.1", "limits.example"]);
        let chain = vec![CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let _serving = tokio::spawn(respond_with_tls(listener, acceptor));
            let dial = async |authority: &Authority, name: Option<&str>| {
                let ca = certificates::replace(&folder.path().join("ca.crt"), &authority.pem);
                let server_name = name.map(str::to_owned);
                let tls = TlsClient { ca: Some(ca), cert_and_key: None, server_name, insecure: false };
                let hosts = vec![HostPort { host: address.ip().to_string(), port: address.port() }];
                let server = Server { address: Address::Tcp(hosts), tls: Some(tls), token_file: None };
                Dialer::new(&server).dial().await.map(|connected| connected.address)
            };
            assert_eq!(dial(&authority, None).await, Ok(Some(address)));
            assert_eq!(dial(&authority, Some("limits.example")).await, Ok(Some(address)));
            let wrong_name = dial(&authority, Some("other.example")).await.unwrap_err();
            assert!(wrong_name.contains("certificate not valid for name"), "{wrong_name}");
            let wrong_authority = dial(&Authority::new("another"), None).await.unwrap_err();
            assert!(wrong_authority.contains("UnknownIssuer"), "{wrong_authority}");
        });
    }

    /// The system accepts its connections, as it does for a process that is stopped.
    #[test]
    fn an_address_that_is_mute_costs_its_head_start_once_and_is_tried_last_from_then_on() {
        let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let [mute, first, second] = [(); 3].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
            let addresses = [&mute, &first, &second].map(|listener| listener.local_addr().unwrap());
            let serve = |listener: std::net::TcpListener| {
                listener.set_nonblocking(true).unwrap();
                tokio::spawn(respond(TcpListener::from_std(listener).unwrap()))
            };
            let (serving, _serving) = (serve(first), serve(second));
            let hosts = addresses.map(|own| HostPort { host: own.ip().to_string(), port: own.port() });
            let server = Server { address: Address::Tcp(hosts.to_vec()), tls: None, token_file: None };
            let mut dialer = Dialer::new(&server);
            assert_eq!(dialer.dial().await.unwrap().address, Some(addresses[1]));
            assert_eq!(dialer.suspects, [addresses[0]]);
            // Its server hangs or is killed.
            dialer.suspect(addresses[1]);
            serving.abort();
            assert_eq!(dialer.dial().await.unwrap().address, Some(addresses[2]));
            dialer.suspect(addresses[2]);
            // All are suspects: an address that responds is found nevertheless.
            assert_eq!(dialer.dial().await.unwrap().address, Some(addresses[2]));
        });
    }
}
