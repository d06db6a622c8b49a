//! Connections to a store by TLS.

use super::tcp;
use redis::{ErrorKind, RedisError};
use rustls::{ClientConfig, pki_types::ServerName};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

/// Connects to a host that has a certificate.
pub(super) async fn connect(
    host: &str,
    port: u16,
    config: Option<&Arc<ClientConfig>>,
) -> Result<TlsStream<TcpStream>, RedisError> {
    let invalid = |why| RedisError::from((ErrorKind::InvalidClientConfig, why));
    let config = config.ok_or_else(|| invalid("the settings have no TLS"))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| invalid("the host has no valid name"))?;
    let stream = TcpStream::connect((host, port)).await?;
    tcp::apply(&stream)?;
    Ok(TlsConnector::from(Arc::clone(config)).connect(name, stream).await?)
}
