//! The client half of TLS, for commands that connect to a server.

use super::{
    H2,
    files::{TlsFilesError, certificates, file_error, private_key, roots},
    server_verifier::{AcceptAny, ServerVerifier},
};
use rustls::{
    ClientConfig, ConfigBuilder, Error, RootCertStore, WantsVerifier,
    client::{VerifierBuilderError, WantsClientCert},
    crypto::ring,
    pki_types::{CertificateDer, InvalidDnsNameError, ServerName},
};
use std::{path::PathBuf, sync::Arc};

/// Settings of a client's TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsClient {
    /// PEM file of the authorities that must have signed the server's certificate.
    pub ca: Option<PathBuf>,
    /// PEM files of the client's own certificate chain and key.
    pub cert_and_key: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must have. By default the host of the address.
    pub server_name: Option<String>,
    /// Whether any server certificate is accepted.
    pub insecure: bool,
}

/// Settings that do not make a client.
#[derive(Debug, thiserror::Error)]
pub enum TlsClientError {
    /// A file cannot be read, or has other content than expected.
    #[error(transparent)]
    Files(#[from] TlsFilesError),
    /// rustls refuses the settings.
    #[error(transparent)]
    Rustls(#[from] Error),
    /// None of the authorities is usable.
    #[error("the certificate authorities: {0}")]
    Authorities(#[from] VerifierBuilderError),
    /// The name that the certificate must have is neither a DNS name nor an IP address.
    #[error("`{name}` is no server name; write a DNS name or an IP address with --tls-server-name")]
    ServerName {
        /// The name.
        name: String,
        /// The cause.
        #[source]
        source: InvalidDnsNameError,
    },
    /// The settings do not state which server certificates are accepted.
    #[error(
        "TLS needs --tls-ca, the authorities that sign the server's certificate, or --tls-insecure to accept any"
    )]
    NoAuthorities,
    /// The system has no certificate authorities.
    #[error("this machine has no certificate authorities; name a file of them")]
    NoSystemAuthorities,
}

impl TlsClient {
    /// The configuration, which offers HTTP/2.
    pub fn config(&self) -> Result<Arc<ClientConfig>, TlsClientError> {
        let mut config = match &self.ca {
            _ if self.insecure => {
                let verifier = Arc::new(AcceptAny);
                self.with_own_certificate(builder()?.dangerous().with_custom_certificate_verifier(verifier))?
            }
            Some(path) => self.with_own_certificate(builder()?.with_root_certificates(roots(path)?))?,
            None => return Err(TlsClientError::NoAuthorities),
        };
        config.alpn_protocols = vec![H2.to_vec()];
        Ok(Arc::new(config))
    }

    /// The configuration of a client of other services, without ALPN. Without a file of authorities, it trusts the machine's authorities.
    pub fn config_or_system_authorities(&self) -> Result<ClientConfig, TlsClientError> {
        let roots = match &self.ca {
            Some(path) => roots(path)?,
            None => {
                let mut system = RootCertStore::empty();
                system.add_parsable_certificates(system_authorities()?);
                system
            }
        };
        self.with_own_certificate(builder()?.with_root_certificates(roots))
    }

    /// As [`Self::config_or_system_authorities`], and a certificate that is itself among the authorities is accepted. If `any_name`,
    /// certificates with other names than the host's are accepted.
    pub fn config_with_anchors(&self, any_name: bool) -> Result<ClientConfig, TlsClientError> {
        let authorities = match &self.ca {
            Some(path) => certificates(path)?,
            None => system_authorities()?,
        };
        let verifier = Arc::new(ServerVerifier::new(authorities, any_name)?);
        self.with_own_certificate(builder()?.dangerous().with_custom_certificate_verifier(verifier))
    }

    /// The configuration of a client that makes no TLS connections.
    pub fn config_without_authorities() -> Result<ClientConfig, TlsClientError> {
        Ok(builder()?.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
    }

    fn with_own_certificate(
        &self,
        builder: ConfigBuilder<ClientConfig, WantsClientCert>,
    ) -> Result<ClientConfig, TlsClientError> {
        Ok(match &self.cert_and_key {
            Some((cert, key)) => builder
                .with_client_auth_cert(certificates(cert)?, private_key(key)?)
                .map_err(|error| file_error(cert, error))?,
            None => builder.with_no_client_auth(),
        })
    }

    /// The name to verify: the one in the settings, or the host of `host:port`.
    pub fn server_name(&self, address: &str) -> Result<ServerName<'static>, TlsClientError> {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let name = self.server_name.as_deref().unwrap_or(host.trim_matches(['[', ']']));
        ServerName::try_from(name.to_owned())
            .map_err(|source| TlsClientError::ServerName { name: name.to_owned(), source })
    }
}

fn system_authorities() -> Result<Vec<CertificateDer<'static>>, TlsClientError> {
    let authorities = rustls_native_certs::load_native_certs().certs;
    if authorities.is_empty() { Err(TlsClientError::NoSystemAuthorities) } else { Ok(authorities) }
}

fn builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, Error> {
    let provider = Arc::new(ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}
