//! TLS of a port: its certificate, which can be replaced while the port serves, and handshakes with their results.
//!
//! Invariants: a certificate is in force only with its own key; after a failed reload, the former certificate stays in force; connections
//! keep the certificate with which they were opened.

mod anchors;
mod client;
mod client_verifier;
mod counts;
mod files;
mod server_verifier;
mod signatures;

pub use client::{TlsClient, TlsClientError};
pub(super) use client_verifier::sans;
pub use client_verifier::{San, SanError};
pub use counts::{HandshakeResult, TlsCounts};
pub use files::{TlsFiles, TlsFilesError, read_pem};

use super::{Accepted, Peer, UnreadAlert};
use arc_swap::ArcSwap;
use files::unix_seconds;
use rustls::{CertificateError, ServerConfig};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio_rustls::TlsAcceptor;

/// ALPN protocol of HTTP/2.
pub const H2: &[u8] = b"h2";
/// ALPN protocol of HTTP/1.1.
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// A time that no clock reaches.
const NEVER: i64 = i64::MAX;

/// TLS of one port.
pub struct TlsPort {
    /// Name in logs.
    name: &'static str,
    files: TlsFiles,
    protocols: &'static [&'static [u8]],
    current: ArcSwap<ServerConfig>,
    /// Start of the validity, in seconds since the Unix epoch, of a pair that the last reload refused because it was not valid yet. Without
    /// such a pair, [`NEVER`].
    refused_until: AtomicI64,
    counts: Arc<TlsCounts>,
}

/// A failed handshake.
#[derive(Debug)]
pub struct HandshakeError {
    /// The result, by which handshakes are counted.
    pub result: HandshakeResult,
    /// The cause, as text.
    pub cause: String,
}

impl HandshakeError {
    fn of(error: &io::Error) -> Self {
        let tls = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
        let cause = match tls {
            Some(rustls::Error::InvalidCertificate(CertificateError::Other(error))) => error.0.to_string(),
            _ => error.to_string(),
        };
        Self { result: HandshakeResult::of_error(error), cause }
    }
}

/// A connection without a complete handshake.
pub struct RefusedConnection {
    /// The reason.
    pub error: HandshakeError,
    /// The connection, if the client was sent the reason. None if the connection has ended.
    pub unread: Option<UnreadAlert>,
}

impl From<HandshakeError> for RefusedConnection {
    fn from(error: HandshakeError) -> Self {
        Self { error, unread: None }
    }
}

impl TlsPort {
    /// Reads the files of the port `name`. An expired certificate is put in force with a warning, so that a restart never makes things
    /// worse.
    pub fn load(
        name: &'static str,
        files: TlsFiles,
        protocols: &'static [&'static [u8]],
        counts: &Arc<TlsCounts>,
        now: Duration,
    ) -> Result<Self, TlsFilesError> {
        let loaded = files.load(protocols)?;
        if let Err(error) = loaded.check_validity(&files, now) {
            tracing::warn!(port = name, %error, "clients will refuse this certificate");
        }
        counts.certificate_loaded(loaded.not_after);
        let current = ArcSwap::new(loaded.config);
        let refused_until = AtomicI64::new(NEVER);
        Ok(Self { name, files, protocols, current, refused_until, counts: Arc::clone(counts) })
    }

    /// Reads the files again. After an error, or if the new certificate is not valid now, the certificate in force stays.
    pub fn reload(&self, now: Duration) -> Result<(), TlsFilesError> {
        self.refused_until.store(NEVER, Relaxed);
        let loaded = self.files.load(self.protocols).and_then(|loaded| {
            if loaded.not_before > unix_seconds(now) {
                self.refused_until.store(loaded.not_before, Relaxed);
            }
            loaded.check_validity(&self.files, now)?;
            Ok(loaded)
        });
        self.counts.reloaded(loaded.is_ok().into());
        let loaded = loaded?;
        self.counts.certificate_loaded(loaded.not_after);
        self.current.store(loaded.config);
        Ok(())
    }

    /// Whether the pair that the last reload refused because it was not valid yet is valid now.
    pub fn is_reload_due(&self, now: Duration) -> bool {
        unix_seconds(now) >= self.refused_until.load(Relaxed)
    }

    /// The name of the port in logs.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The counts of handshakes, reloads and certificates. Several ports may share them.
    pub fn counts(&self) -> &Arc<TlsCounts> {
        &self.counts
    }

    /// Completes the handshake of a connection, on the current runtime.
    pub async fn handshake(&self, accepted: Accepted) -> Result<Accepted, RefusedConnection> {
        let closed = |error: io::Error| {
            RefusedConnection::from(HandshakeError {
                result: HandshakeResult::Closed,
                cause: error.to_string(),
            })
        };
        let peer: Peer = accepted.peer;
        let socket = accepted.register_socket().map_err(closed)?;
        let acceptor = TlsAcceptor::from(self.current.load_full());
        match acceptor.accept(socket).into_fallible().await {
            Ok(stream) => Accepted::tls(peer, Box::new(stream)).map_err(closed),
            Err((error, socket)) => {
                let error = HandshakeError::of(&error);
                let unread = (error.result != HandshakeResult::Closed).then(|| UnreadAlert::new(socket));
                Err(RefusedConnection { error, unread })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_counts::Attempt;

    /// A certificate that is valid from the start of one year to the start of another.
    fn write_pair(files: &TlsFiles, from: i32, to: i32) {
        let mut params = rcgen::CertificateParams::default();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(from, 1, 1), rcgen::date_time_ymd(to, 1, 1));
        let key = rcgen::KeyPair::generate().expect("a key");
        std::fs::write(&files.cert, params.self_signed(&key).expect("signed").pem()).expect("written");
        std::fs::write(&files.key, key.serialize_pem()).expect("written");
    }

    fn start_of(year: i32) -> Duration {
        Duration::from_secs(rcgen::date_time_ymd(year, 1, 1).unix_timestamp().unsigned_abs())
    }

    /// It was refused once and never read again, while the former certificate expired.
    #[test]
    fn a_pair_that_is_not_valid_yet_is_due_when_it_becomes_valid() {
        let folder = tempfile::tempdir().expect("a folder");
        let (cert, key) = (folder.path().join("crt"), folder.path().join("key"));
        let files = TlsFiles { cert, key, client_ca: None, allowed_sans: Vec::new() };
        write_pair(&files, 2020, 2031);
        let counts = Arc::<TlsCounts>::default();
        let port = TlsPort::load("grpc", files.clone(), &[H2], &counts, start_of(2029)).expect("loaded");
        let not_after = |year| Some(start_of(year).as_secs() as i64);
        assert!(!port.is_reload_due(start_of(2100)), "nothing was refused");

        write_pair(&files, 2030, 2040);
        assert!(port.reload(start_of(2029)).is_err());
        assert_eq!(counts.not_after(), not_after(2031));
        let second = Duration::from_secs(1);
        assert!(!port.is_reload_due(start_of(2030) - second));
        assert!(port.is_reload_due(start_of(2030)));
        port.reload(start_of(2030)).expect("valid by now");
        assert_eq!((counts.not_after(), counts.reloads(Attempt::Succeeded)), (not_after(2040), 1));
        assert!(!port.is_reload_due(start_of(2030)), "it is in force");

        // If the files are then replaced by a pair that is refused for another reason, time changes nothing.
        write_pair(&files, 2035, 2040);
        assert!(port.reload(start_of(2030)).is_err());
        write_pair(&files, 2020, 2021);
        assert!(port.reload(start_of(2030)).is_err());
        assert!(!port.is_reload_due(start_of(2100)));
    }
}
