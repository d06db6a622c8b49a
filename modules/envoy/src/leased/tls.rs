//! TLS to the server. Files are read at every connection, so that certificates can be renewed.

use crate::settings::Tls;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use std::{fmt::Display, fs, path::Path, sync::Arc};
use tokio_rustls::TlsConnector;

/// Makes a connector; the error names a file.
pub(super) fn connector(tls: &Tls) -> Result<TlsConnector, String> {
    let mut roots = RootCertStore::empty();
    for authority in certificates(&tls.ca)? {
        roots.add(authority).map_err(|error| named(&tls.ca, &error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots);
    let mut config = match &tls.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let chain = certificates(certificate)?;
            let own = PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|error| named(key, &error))?;
            config.with_client_auth_cert(chain, own).map_err(|error| named(certificate, &error))?
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The name that the certificate of a host is verified for.
pub(super) fn name(tls: &Tls, host: &str) -> Result<ServerName<'static>, String> {
    let name = tls.server_name.as_deref().unwrap_or(host);
    ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    match read {
        Ok(read) if read.is_empty() => Err(named(path, &"no certificate in PEM form")),
        Ok(read) => Ok(read),
        Err(error) => Err(named(path, &error)),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &dyn Display) -> String {
    format!("{}: {error}", path.display())
}
