//! Certificates for tests: authorities, and the certificates that they sign.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A certificate authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate.
    pub pem: String,
}

/// A certificate and its key, as PEM.
pub struct Pair {
    pub cert: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A certificate with these names: DNS names, IP addresses, or URIs.
    pub fn issue(&self, names: &[&str]) -> Pair {
        self.issue_until(names, 2100)
    }

    /// The same, valid until a year begins.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Pair {
        let (uris, others): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| name.contains("://"));
        let others: Vec<String> = others.into_iter().map(str::to_owned).collect();
        let mut params = CertificateParams::new(others).expect("DNS names and IP addresses");
        let uris = uris.into_iter().map(|uri| SanType::URI(uri.try_into().expect("ASCII")));
        params.subject_alt_names.extend(uris);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let cert = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Pair { cert, key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes `NAME.crt` and `NAME.key`, each replaced at once; returns their paths.
    pub fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        let cert = replace(&folder.join(format!("{name}.crt")), &self.cert);
        (cert, replace(&folder.join(format!("{name}.key")), &self.key))
    }
}

/// Replaces a file by rename; returns its path.
pub fn replace(path: &Path, text: &str) -> PathBuf {
    let new = path.with_extension("new");
    fs::write(&new, text).expect("the file is written");
    fs::rename(&new, path).expect("the file is renamed");
    path.to_owned()
}
