//! Connections to the control plane.

use super::settings::XdsSettings;
use crate::api::channel::{TlsConnections, tls_endpoint};
use std::{error::Error, time::Duration};
use tidegate_transport::ListenAddress;
use tonic::transport::{Channel, Endpoint};

/// Time for a connection with its TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between PING frames that find a dead connection. No shorter than gRPC servers permit by default (five minutes).
const PING_INTERVAL: Duration = Duration::from_secs(330);

/// Time for the answer to a PING.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects; the files of TLS are read now.
pub(super) async fn connect(settings: &XdsSettings) -> Result<Channel, Box<dyn Error + Send + Sync>> {
    let with_pings = |endpoint: Endpoint| {
        endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
    };
    let server = &settings.server;
    let Some(tls) = &settings.tls else {
        return Ok(with_pings(Endpoint::from_shared(format!("http://{server}"))?).connect().await?);
    };
    let connections = TlsConnections {
        address: ListenAddress::Tcp(server.clone()),
        tls: tls.config()?.into(),
        name: tls.server_name(server)?,
    };
    let endpoint = with_pings(tls_endpoint(server)?);
    Ok(tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect_with_connector(connections)).await??)
}
