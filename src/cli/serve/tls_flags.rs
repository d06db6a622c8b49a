//! Flags of TLS.

use crate::{
    cli::arguments::interval,
    server::{TlsFiles, TlsSettings},
};
use clap::Args;
use std::{num::NonZeroUsize, path::PathBuf, time::Duration};
use tidegate_transport::San;

/// TLS of the gRPC port and of the HTTP port. Unix sockets stay without.
#[derive(Args)]
pub(super) struct TlsFlags {
    /// Certificate chain of the gRPC port, as PEM; it then serves TLS 1.2 and 1.3 on TCP addresses. Read again when it changes.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Authorities of client certificates, as PEM; clients need a certificate that one of them signed.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_client_ca: Option<PathBuf>,
    /// Subject alternative name that client certificates must have: a DNS name or a URI, such as a SPIFFE id; repeatable.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "tls_client_ca")]
    tls_allow_san: Vec<San>,
    /// Time from the start of a connection to the end of its TLS handshake, after which it is closed.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10s")]
    tls_handshake_timeout: Duration,
    /// Maximum number of TLS handshakes in progress. Beyond it the oldest handshake is ended.
    #[arg(long, value_name = "N", default_value = "1000")]
    tls_max_handshakes: NonZeroUsize,
    /// Like --tls-cert, for the HTTP port.
    #[arg(long, value_name = "FILE", requires_all = ["http_tls_key", "http_listen"])]
    http_tls_cert: Option<PathBuf>,
    /// Private key of --http-tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_tls_key: Option<PathBuf>,
    /// Like --tls-client-ca, for the HTTP port.
    #[arg(long, value_name = "FILE", requires = "http_tls_cert")]
    http_tls_client_ca: Option<PathBuf>,
    /// Like --tls-allow-san, for the HTTP port.
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "http_tls_client_ca")]
    http_tls_allow_san: Vec<San>,
}

impl TlsFlags {
    pub(super) fn settings(&self) -> TlsSettings {
        let files = |cert: &Option<PathBuf>, key: &Option<PathBuf>, client_ca: &Option<_>, sans: &[San]| {
            let (cert, key) = cert.clone().zip(key.clone())?;
            Some(TlsFiles { cert, key, client_ca: client_ca.clone(), allowed_sans: sans.to_vec() })
        };
        TlsSettings {
            grpc: files(&self.tls_cert, &self.tls_key, &self.tls_client_ca, &self.tls_allow_san),
            http: files(
                &self.http_tls_cert,
                &self.http_tls_key,
                &self.http_tls_client_ca,
                &self.http_tls_allow_san,
            ),
            handshake_timeout: self.tls_handshake_timeout,
            handshakes_max: self.tls_max_handshakes.get(),
            ..TlsSettings::default()
        }
    }
}
