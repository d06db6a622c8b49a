//! Flags of TLS, of the commands that connect to a server.

use clap::Args;
use std::path::PathBuf;
use tidegate_transport::TlsClient;

/// TLS of a connection to a server.
#[derive(Args, Clone, Default)]
pub(in crate::cli) struct ClientTlsFlags {
    /// Connect with TLS, and verify the server by these authorities, as PEM.
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Certificate chain of this client, as PEM, for servers that require a client certificate.
    #[arg(long, value_name = "FILE", requires = "tls_key", global = true)]
    tls_cert: Option<PathBuf>,
    /// Private key of --tls-cert, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", global = true)]
    tls_key: Option<PathBuf>,
    /// Name that the server's certificate must have; by default the host of the address.
    #[arg(long, value_name = "NAME", global = true)]
    tls_server_name: Option<String>,
    /// Connect with TLS, and accept any certificate of the server.
    #[arg(long, conflicts_with = "tls_ca", global = true)]
    tls_insecure: bool,
}

impl ClientTlsFlags {
    /// The settings, if any flag enables TLS.
    pub(in crate::cli) fn client(&self) -> Option<TlsClient> {
        let Self { tls_ca, tls_cert, tls_key, tls_server_name, tls_insecure } = self;
        let is_used = tls_ca.is_some() || tls_cert.is_some() || tls_server_name.is_some() || *tls_insecure;
        is_used.then(|| TlsClient {
            ca: tls_ca.clone(),
            cert_and_key: tls_cert.clone().zip(tls_key.clone()),
            server_name: tls_server_name.clone(),
            insecure: *tls_insecure,
        })
    }
}
