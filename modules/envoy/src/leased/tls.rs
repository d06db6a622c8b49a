//! TLS to the server. Files are read at every connection, so that certificates can be renewed.

use crate::settings::Tls;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use std::{fmt::Display, fs, path::Path, sync::Arc};
use tokio_rustls::TlsConnector;

/// Makes a connector, and the name to be verified; the error names a file.
pub(super) fn connector(tls: &Tls) -> Result<(TlsConnector, ServerName<'static>), String> {
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
    let name = ServerName::try_from(tls.server_name.clone()).map_err(|error| error.to_string())?;
    Ok((TlsConnector::from(Arc::new(config)), name))
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
