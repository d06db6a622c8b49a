//! Connections to a store by TLS: its certificate is verified by authorities and by name, unless any name is accepted. A certificate
//! that is itself among the authorities is accepted.

use super::StoreTls;
use redis::{ErrorKind, RedisError};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    server::ParsedCertificate,
};
use std::{fmt::Display, sync::Arc};
use tidegate_transport::Anchors;
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
    let mut roots = RootCertStore::empty();
    // Of many authorities of a system some may be of forms that are not supported.
    roots.add_parsable_certificates(anchors.iter().cloned());
    let provider = Arc::new(ring::default_provider());
    let verifier =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|error| invalid("the authorities of the store", &error))?;
    let verifier = StoreVerifier { authorities: verifier, anchors: Anchors(anchors), any_name: *any_name };
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
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

/// Verifies the certificate of a store.
#[derive(Debug)]
struct StoreVerifier {
    authorities: Arc<WebPkiServerVerifier>,
    anchors: Anchors,
    /// Whether certificates of other names are accepted.
    any_name: bool,
}

impl ServerCertVerifier for StoreVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let verified =
            self.authorities.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
        let verified = verified.or_else(|error| match self.anchors.accept(end_entity, &error) {
            true => verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)
                .map(|()| ServerCertVerified::assertion()),
            false => Err(error),
        });
        match verified {
            // Names are checked last.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if self.any_name =>
            {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.authorities.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}
