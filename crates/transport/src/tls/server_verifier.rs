//! Which server certificates a client accepts.

use super::{anchors::Anchors, signatures::verify_signatures};
use rustls::{
    CertificateError, Error, RootCertStore,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::ring,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// Verifies server certificates by authorities and, unless any name is accepted, by name. A certificate that is itself among the
/// authorities is accepted.
#[derive(Debug)]
pub struct ServerVerifier {
    authorities: Arc<WebPkiServerVerifier>,
    anchors: Anchors,
    any_name: bool,
}

impl ServerVerifier {
    /// A verifier with these authorities. A system has many authorities, some of which may have unsupported forms: these are left out.
    pub fn new(
        authorities: Vec<CertificateDer<'static>>,
        any_name: bool,
    ) -> Result<Self, VerifierBuilderError> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        let provider = Arc::new(ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build()?;
        Ok(Self { authorities: verifier, anchors: Anchors(authorities), any_name })
    }
}

impl ServerCertVerifier for ServerVerifier {
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
            // Names are checked last, so that everything else is valid.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if self.any_name =>
            {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    verify_signatures!();
}

/// Accepts every server certificate. Signatures are still verified.
#[derive(Debug)]
pub(super) struct AcceptAny;

impl ServerCertVerifier for AcceptAny {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!();
}
