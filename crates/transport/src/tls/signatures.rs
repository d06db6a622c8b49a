//! Signatures in handshakes. All verifiers of certificates check them with the algorithms of ring.

use rustls::crypto::{WebPkiSupportedAlgorithms, ring};
use std::sync::LazyLock;

pub(super) static ALGORITHMS: LazyLock<WebPkiSupportedAlgorithms> =
    LazyLock::new(|| ring::default_provider().signature_verification_algorithms);

/// The methods for signatures, which are the same in rustls' traits for clients and for servers.
macro_rules! verify_signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(message, cert, dss, &super::signatures::ALGORITHMS)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &rustls::pki_types::CertificateDer<'_>,
            dss: &rustls::DigitallySignedStruct,
        ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, cert, dss, &super::signatures::ALGORITHMS)
        }

        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            super::signatures::ALGORITHMS.supported_schemes()
        }
    };
}

pub(super) use verify_signatures;
