//! Connections to a collector of OpenTelemetry, for traces and metrics.

use crate::transport::TlsClient;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use std::{error::Error, fs, io, path::Path};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Any error of a connection.
pub(super) type AnyError = Box<dyn Error + Send + Sync>;

/// Connects to collectors by HTTP.
pub(super) type Connector = HttpsConnector<HttpConnector>;

/// TLS of a connection by gRPC. Without a file of authorities, those of the machine are trusted.
pub(super) fn grpc_tls(TlsClient { ca, cert_and_key, .. }: &TlsClient) -> Result<ClientTlsConfig, AnyError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    let mut config = ClientTlsConfig::new();
    config = match ca {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = cert_and_key {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

/// Connects by HTTP with the TLS of an endpoint with `https`, or without.
pub(super) fn connector(tls: Option<&TlsClient>) -> Result<Connector, AnyError> {
    let config = match tls {
        Some(tls) => tls.config_or_system_authorities()?,
        None => TlsClient::config_without_authorities()?,
    };
    Ok(HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build())
}
