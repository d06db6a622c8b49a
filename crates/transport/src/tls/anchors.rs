//! Certificates of authorities that are also accepted as certificates of a peer.

use rustls::{CertificateError, Error, OtherError, pki_types::CertificateDer};

/// The certificates of authorities. A peer's certificate is accepted if it is itself among them, as in OpenSSL: `openssl req -x509` makes
/// certificates that are authorities by their extensions.
#[derive(Debug)]
pub(super) struct Anchors(pub(super) Vec<CertificateDer<'static>>);

impl Anchors {
    /// Whether a certificate that the authorities do not verify for this reason is among them. Its validity was checked before.
    pub(super) fn accept(&self, certificate: &CertificateDer<'_>, error: &Error) -> bool {
        let Error::InvalidCertificate(CertificateError::Other(OtherError(reason))) = error else {
            return false;
        };
        matches!(reason.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
            && self.0.iter().any(|anchor| anchor == certificate)
    }
}
