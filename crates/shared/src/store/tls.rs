//! Connections to a store by TLS. Its certificate is verified by authorities and by name, unless any name is accepted. A certificate that
//! is itself among the authorities is accepted.

use super::StoreTls;
use redis::{ErrorKind, RedisError};
use rustls::{
    ClientConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use std::{fmt::Display, sync::Arc};
use tidegate_transport::ServerVerifier;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects to a host that has a certificate.
pub(super) async fn connect(
    host: &str,
    port: u16,
    tls: &StoreTls,
) -> Result<TlsStream<TcpStream>, RedisError> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| invalid("the host", &error))?;
    let connector = TlsConnector::from(Arc::new(config(tls)?));
    let stream = TcpStream::connect((host, port)).await?;
    stream.set_nodelay(true)?;
    Ok(connector.connect(name, stream).await?)
}

fn config(tls: &StoreTls) -> Result<ClientConfig, RedisError> {
    let StoreTls { authorities, identity, any_name } = tls;
    let anchors = match authorities {
        Some(pem) => certificates("the authorities of the store", pem)?,
        None => {
            let system = rustls_native_certs::load_native_certs();
            if let (true, Some(error)) = (system.certs.is_empty(), system.errors.first()) {
                return Err(invalid("the authorities of the system", error));
            }
            system.certs
        }
    };
    let verifier = ServerVerifier::new(anchors, *any_name)
        .map_err(|error| invalid("the authorities of the store", &error))?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?;
    let config = config.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    Ok(match identity {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = certificates("the certificate for the store", chain)?;
            let key = PrivateKeyDer::from_pem_slice(key).map_err(|error| invalid("its key", &error))?;
            config.with_client_auth_cert(chain, key)?
        }
    })
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, RedisError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let read = read.map_err(|error| invalid(what, &error))?;
    if read.is_empty() { Err(invalid(what, &"no certificate in PEM form")) } else { Ok(read) }
}

fn invalid(what: &'static str, error: &dyn Display) -> RedisError {
    (ErrorKind::InvalidClientConfig, what, error.to_string()).into()
}
