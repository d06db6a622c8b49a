//! The files of a port's TLS: certificate chain, key, and authorities of client certificates.

use super::client_verifier::{ClientVerifier, San};
use rustls::{
    InconsistentKeys, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject as _},
    },
    server::{NoServerSessionStorage, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use webpki::{EndEntityCert, KeyUsage};

/// The most bytes of a file of certificates. All public authorities take a quarter of a mebibyte.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// The files of a port's TLS, and the allowed clients.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// PEM file of the certificate chain, the port's own certificate first.
    pub cert: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// PEM file of the authorities that sign client certificates. Without it, clients need no certificate.
    pub client_ca: Option<PathBuf>,
    /// Allowed names: a client certificate must have one of them. If empty, every client with a certificate of the authorities is allowed.
    pub allowed_sans: Vec<San>,
}

/// Files that cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum TlsFilesError {
    /// A file cannot be read.
    #[error("{}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has other content than expected.
    #[error("{}: {cause}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause, with the remedy.
        cause: String,
    },
    /// The key does not belong to the certificate.
    #[error("the key in {} does not belong to the certificate in {}", .key.display(), .cert.display())]
    Mismatch {
        /// The file of the certificate.
        cert: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
    /// The certificate is not valid at this time.
    #[error("{}: the certificate {when}", .path.display())]
    Validity {
        /// The file of the certificate.
        path: PathBuf,
        /// When it expired, or when it will be valid.
        when: String,
    },
    /// rustls refuses the settings.
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
}

impl TlsFilesError {
    /// Whether the operating system could not read a file, so that the same file may be read later.
    pub fn is_of_reading(&self) -> bool {
        matches!(self, Self::Read { source, .. } if source.raw_os_error().is_some())
    }
}

/// Files that were read and match each other.
pub(super) struct Loaded {
    pub(super) config: Arc<ServerConfig>,
    /// Validity of the certificate, in seconds since the Unix epoch.
    pub(super) not_before: i64,
    pub(super) not_after: i64,
}

impl TlsFiles {
    /// The files to watch.
    pub fn paths(&self) -> Vec<PathBuf> {
        let Self { cert, key, client_ca, .. } = self;
        [cert, key].into_iter().chain(client_ca).cloned().collect()
    }

    pub(super) fn load(&self, protocols: &[&[u8]]) -> Result<Loaded, TlsFilesError> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates(&self.cert)?;
        let (not_before, not_after) = validity(&chain[0]).map_err(|cause| file_error(&self.cert, cause))?;
        let certified = self.certified_key(chain, &provider)?;
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(self.client_verifier(path, &provider)?),
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        // Connections are long-lived. A resumed session would skip the check of the client's certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(Loaded { config: Arc::new(config), not_before, not_after })
    }

    fn certified_key(
        &self,
        chain: Vec<CertificateDer<'static>>,
        provider: &CryptoProvider,
    ) -> Result<CertifiedKey, TlsFilesError> {
        let key = private_key(&self.key)?;
        CertifiedKey::from_der(chain, key, provider).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                TlsFilesError::Mismatch { cert: self.cert.clone(), key: self.key.clone() }
            }
            error => file_error(&self.key, error),
        })
    }

    fn client_verifier(
        &self,
        path: &Path,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsFilesError> {
        let (roots, anchors) = (Arc::new(roots(path)?), certificates(path)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider)).build();
        let verifier = verifier.map_err(|error| file_error(path, error))?;
        Ok(Arc::new(ClientVerifier::new(verifier, anchors, self.allowed_sans.clone())))
    }
}

impl Loaded {
    pub(super) fn check_validity(&self, files: &TlsFiles, now: Duration) -> Result<(), TlsFilesError> {
        let now = unix_seconds(now);
        let when = match now {
            _ if now > self.not_after => format!("expired {} s ago", now - self.not_after),
            _ if now < self.not_before => format!("is not valid for another {} s", self.not_before - now),
            _ => return Ok(()),
        };
        Err(TlsFilesError::Validity { path: files.cert.clone(), when })
    }
}

/// A time since the Unix epoch in the unit of [`Loaded`].
pub(super) fn unix_seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

/// The content of a regular file of bounded length. Opening a pipe would wait for its other end, and a device does not end.
pub fn read_pem(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let mut pem = Vec::new();
    fs::File::open(path)?.take(PEM_BYTES_MAX + 1).read_to_end(&mut pem)?;
    match pem.len() as u64 > PEM_BYTES_MAX {
        true => Err(io::Error::other(format!("is longer than {PEM_BYTES_MAX} bytes"))),
        false => Ok(pem),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, TlsFilesError> {
    read_pem(path).map_err(|source| TlsFilesError::Read { path: path.to_owned(), source })
}

/// The certificates of a PEM file; at least one.
pub(super) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFilesError> {
    let pem = read_file(path)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = read.map_err(|error| file_error(path, pem_cause(&error)))?;
    match certificates.is_empty() {
        true => Err(file_error(path, "no certificate in PEM form (-----BEGIN CERTIFICATE-----)")),
        false => Ok(certificates),
    }
}

/// The private key of a PEM file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsFilesError> {
    let pem = read_file(path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|error| match error {
        pem::Error::NoItemsFound => {
            file_error(path, "no private key in PEM form (-----BEGIN PRIVATE KEY-----)")
        }
        error => file_error(path, pem_cause(&error)),
    })
}

/// The reason why a PEM file cannot be read, with the remedy.
fn pem_cause(error: &pem::Error) -> String {
    match error {
        pem::Error::MissingSectionEnd { end_marker } => {
            let section = String::from_utf8_lossy(end_marker);
            format!("the line -----END {section}----- is missing: the file is cut short; copy all of it")
        }
        pem::Error::IllegalSectionStart { line } => {
            format!("`{}` does not begin a section; write -----BEGIN …-----", String::from_utf8_lossy(line))
        }
        pem::Error::Base64Decode(error) => format!("a section is not base64: {error}; copy the file again"),
        error => error.to_string(),
    }
}

/// The authorities of a PEM file.
pub(super) fn roots(path: &Path) -> Result<RootCertStore, TlsFilesError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| file_error(path, error))?;
    }
    Ok(roots)
}

pub(super) fn file_error(path: &Path, cause: impl ToString) -> TlsFilesError {
    TlsFilesError::File { path: path.to_owned(), cause: cause.to_string() }
}

/// The validity of a certificate, in seconds since the Unix epoch.
///
/// webpki has no accessor for it, but its error names the bound if it refuses a certificate at a time outside. It checks the time first, so
/// that no authorities are needed.
fn validity(certificate: &CertificateDer<'_>) -> Result<(i64, i64), webpki::Error> {
    let certificate = EndEntityCert::try_from(certificate)?;
    let refusal_at = |seconds| {
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        let verified = certificate.verify_for_usage(&[], &[], &[], time, KeyUsage::server_auth(), None, None);
        verified.err().unwrap_or(webpki::Error::InvalidCertValidity)
    };
    let seconds = |time: UnixTime| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    let not_after = match refusal_at(u64::MAX) {
        webpki::Error::CertExpired { not_after, .. } => seconds(not_after),
        error => return Err(error),
    };
    let not_before = match refusal_at(0) {
        webpki::Error::CertNotValidYet { not_before, .. } => seconds(not_before),
        // Valid at the epoch: no certificate has an earlier time.
        _ => 0,
    };
    Ok((not_before, not_after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_that_the_operating_system_could_not_read_may_be_readable_later() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let of_content = private_key(file.path()).expect_err("it is empty");
        let path = file.path().to_owned();
        drop(file);
        let of_reading = private_key(&path).expect_err("it is gone");
        assert_eq!([of_content, of_reading].map(|error| error.is_of_reading()), [false, true]);
    }

    #[test]
    fn validity_is_that_of_the_certificate_from_the_epoch_to_the_last_year() {
        for (first, last) in [(1970, 2049), (2020, 2050), (2049, 9999)] {
            let (not_before, not_after) =
                (rcgen::date_time_ymd(first, 1, 1), rcgen::date_time_ymd(last, 12, 31));
            let mut params = rcgen::CertificateParams::default();
            (params.not_before, params.not_after) = (not_before, not_after);
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
            let certificate =
                params.self_signed(&rcgen::KeyPair::generate().expect("a key")).expect("signed");
            let expected = (not_before.unix_timestamp(), not_after.unix_timestamp());
            assert_eq!(validity(certificate.der()), Ok(expected), "{first} to {last}");
        }
        assert_eq!(validity(&CertificateDer::from(vec![0x30, 0])), Err(webpki::Error::BadDer));
    }
}
