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
use rustls::{CertificateError, ServerConfig};
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use tokio_rustls::TlsAcceptor;

/// ALPN protocol of HTTP/2.
pub const H2: &[u8] = b"h2";
/// ALPN protocol of HTTP/1.1.
pub const HTTP_1_1: &[u8] = b"http/1.1";

/// TLS of one port.
pub struct TlsPort {
    /// Name in logs.
    name: &'static str,
    files: TlsFiles,
    protocols: &'static [&'static [u8]],
    current: ArcSwap<ServerConfig>,
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
        Ok(Self { name, files, protocols, current, counts: Arc::clone(counts) })
    }

    /// Reads the files again. After an error, or if the new certificate has expired, the certificate in force stays.
    pub fn reload(&self, now: Duration) -> Result<(), TlsFilesError> {
        let loaded = self.files.load(self.protocols).and_then(|loaded| {
            loaded.check_validity(&self.files, now)?;
            Ok(loaded)
        });
        self.counts.reloaded(loaded.is_ok().into());
        let loaded = loaded?;
        self.counts.certificate_loaded(loaded.not_after);
        self.current.store(loaded.config);
        Ok(())
    }

    /// The name of the port in logs.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The counts of handshakes, reloads and certificates. Several ports may share them.
    pub fn counts(&self) -> &Arc<TlsCounts> {
        &self.counts
    }

    /// The files to watch.
    pub fn paths(&self) -> Vec<PathBuf> {
        let TlsFiles { cert, key, client_ca, .. } = &self.files;
        [cert, key].into_iter().chain(client_ca).cloned().collect()
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
