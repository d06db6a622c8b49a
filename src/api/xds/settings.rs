//! A control plane, and how to connect to it.

use std::time::Duration;
use tidegate_transport::{TlsClient, TlsClientError};

/// A control plane, and how to connect to it.
#[derive(Clone, Debug)]
pub struct XdsSettings {
    /// Its `host:port`.
    pub server: String,
    /// Id of this client: control planes keep resources by it.
    pub node: String,
    /// Metadata of this client.
    pub node_metadata: Vec<(String, String)>,
    /// Request headers of the stream, such as credentials.
    pub headers: Vec<(String, String)>,
    /// Bounds of the wait before connecting again.
    pub backoff: (Duration, Duration),
    /// Bytes of one response.
    pub message_bytes_max: usize,
    /// TLS, if the control plane is reached by it. The files are read again for each connection.
    pub(crate) tls: Option<TlsClient>,
}

impl XdsSettings {
    /// Reads the files of TLS once, so that a wrong path is an error at the start.
    pub(crate) fn check(&self) -> Result<(), TlsClientError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.config().and(tls.server_name(&self.server)).map(drop))
    }
}
