//! Which client certificates a port accepts: those that its authorities signed, with an allowed subject alternative name.

use super::{anchors::Anchors, signatures::verify_signatures};
use rustls::{
    CertificateError, DistinguishedName, Error, OtherError,
    pki_types::{CertificateDer, UnixTime},
    server::danger::{ClientCertVerified, ClientCertVerifier},
};
use std::{fmt, str::FromStr, sync::Arc};
use webpki::EndEntityCert;

/// A subject alternative name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum San {
    /// A DNS name, in lower case.
    Dns(String),
    /// A URI, such as a SPIFFE id.
    Uri(String),
}

/// A text that is not a subject alternative name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "`{0}` is neither a DNS name nor a URI; write client.example.com or spiffe://cluster.local/ns/edge/sa/envoy"
)]
pub struct SanError(String);

impl FromStr for San {
    type Err = SanError;

    fn from_str(text: &str) -> Result<Self, SanError> {
        let is_dns = |text: &str| {
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            };
            text.split('.').all(is_label)
        };
        match text.split_once("://") {
            Some((scheme, rest)) if !scheme.is_empty() && !rest.is_empty() => Ok(Self::Uri(text.to_owned())),
            None if is_dns(text) => Ok(Self::Dns(text.to_ascii_lowercase())),
            _ => Err(SanError(text.to_owned())),
        }
    }
}

impl fmt::Display for San {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Dns(name) | Self::Uri(name)) = self;
        f.write_str(name)
    }
}

/// A client certificate without an allowed name.
#[derive(Debug, thiserror::Error)]
#[error("the client certificate has no allowed name; it has: {found}")]
pub(super) struct SanNotAllowed {
    found: String,
}

/// Verifies client certificates by authorities and, if any names are allowed, by name. A certificate that is itself in the file of the
/// authorities is accepted.
#[derive(Debug)]
pub(super) struct ClientVerifier {
    authorities: Arc<dyn ClientCertVerifier>,
    anchors: Anchors,
    /// Empty allows every name.
    allowed: Vec<San>,
}

impl ClientVerifier {
    pub(super) fn new(
        authorities: Arc<dyn ClientCertVerifier>,
        anchors: Vec<CertificateDer<'static>>,
        allowed: Vec<San>,
    ) -> Self {
        Self { authorities, anchors: Anchors(anchors), allowed }
    }

    fn verify_names(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        if self.allowed.is_empty() {
            return Ok(());
        }
        let names = sans(certificate).ok_or(Error::InvalidCertificate(CertificateError::BadEncoding))?;
        if names.iter().any(|name| self.allowed.contains(name)) {
            return Ok(());
        }
        let found = names.iter().map(San::to_string).collect::<Vec<_>>().join(", ");
        let error = SanNotAllowed { found };
        Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))
    }
}

/// The DNS names and URIs of a certificate; none if it cannot be parsed.
pub(crate) fn sans(certificate: &CertificateDer<'_>) -> Option<Vec<San>> {
    let parsed = EndEntityCert::try_from(certificate).ok()?;
    let dns = parsed.valid_dns_names().map(|name| San::Dns(name.to_ascii_lowercase()));
    let uris = parsed.valid_uri_names().map(|uri| San::Uri(uri.to_owned()));
    Some(dns.chain(uris).collect())
}

impl ClientCertVerifier for ClientVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authorities.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = match self.authorities.verify_client_cert(end_entity, intermediates, now) {
            Err(error) if self.anchors.accept(end_entity, &error) => ClientCertVerified::assertion(),
            verified => verified?,
        };
        self.verify_names(end_entity)?;
        Ok(verified)
    }

    verify_signatures!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_or_uri() {
        let parse = |text: &str| text.parse::<San>();
        assert_eq!(parse("Edge.Example.com"), Ok(San::Dns("edge.example.com".into())));
        assert_eq!(parse("spiffe://td/ns/a"), Ok(San::Uri("spiffe://td/ns/a".into())));
        for wrong in ["", "a b", "a..b", "://x", "spiffe://", "10.0.0.1/8"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    /// The certificate is made by `openssl req -x509`: it is an authority by its extensions, and in the file of `--tls-client-ca`.
    #[test]
    fn a_self_signed_certificate_that_is_an_authority_is_accepted_while_it_is_valid() {
        use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
        use rustls::{RootCertStore, crypto::ring, server::WebPkiClientVerifier};
        let self_signed = |until| {
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.not_before = date_time_ymd(2020, 1, 1);
            params.not_after = date_time_ymd(until, 1, 1);
            params.self_signed(&KeyPair::generate().expect("a key")).expect("signed").der().clone()
        };
        let (client, expired, other) = (self_signed(2099), self_signed(2021), self_signed(2099));
        let anchors = vec![client.clone(), expired.clone()];
        let mut roots = RootCertStore::empty();
        anchors.iter().for_each(|anchor| roots.add(anchor.clone()).expect("an authority"));
        let provider = Arc::new(ring::default_provider());
        let authorities = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
        let verifier = ClientVerifier::new(authorities.expect("a verifier"), anchors, Vec::new());
        let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000));
        let verify = |certificate| verifier.verify_client_cert(certificate, &[], now).map(|_| ());
        assert_eq!(verify(&client), Ok(()));
        assert!(verify(&expired).is_err());
        assert!(verify(&other).is_err());
    }

    #[test]
    fn names_of_a_certificate_are_its_dns_names_and_uris() {
        use rcgen::{CertificateParams, KeyPair, SanType};
        let text = |text: &str| text.try_into().expect("ASCII");
        let certificate = |names| {
            let mut params = CertificateParams::default();
            params.subject_alt_names = names;
            params.self_signed(&KeyPair::generate().expect("a key")).expect("signed")
        };
        let named = certificate(vec![
            SanType::DnsName(text("Edge_1.Example.com")),
            SanType::IpAddress([10, 0, 0, 1].into()),
            SanType::DnsName(text("*.example.com")),
            SanType::Rfc822Name(text("edge@example.com")),
            SanType::URI(text("spiffe://td/ns/A")),
        ]);
        let (dns, uri) = (|name: &str| San::Dns(name.into()), |uri: &str| San::Uri(uri.into()));
        let expected = vec![dns("edge_1.example.com"), dns("*.example.com"), uri("spiffe://td/ns/A")];
        assert_eq!(sans(named.der()), Some(expected));
        assert_eq!(sans(certificate(Vec::new()).der()), Some(Vec::new()));
        assert_eq!(sans(&CertificateDer::from(vec![0x30, 0])), None);
    }
}
