//! Flags of every command that connects to a shared store.

use crate::cli::Failure;
use clap::Args;
use std::{path::PathBuf, sync::Arc, time::Duration};
use tidegate_core::rules::read_regular;
use tidegate_shared::store::{OnFailure, SharedSettings, StoreAddress};
use tidegate_transport::TlsClient;

/// The longest file with a password.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// How to reach a shared store.
#[derive(Args)]
pub(in crate::cli) struct StoreFlags {
    /// Beginning of all keys in the store. Servers with the same prefix share counters.
    #[arg(
        long,
        env = "TIDEGATE_COUNTERS_PREFIX",
        value_name = "TEXT",
        default_value = "tidegate:",
        requires = "counters"
    )]
    counters_prefix: String,
    /// File with the password for the store.
    #[arg(long, env = "TIDEGATE_COUNTERS_PASSWORD_FILE", value_name = "FILE", requires = "counters")]
    counters_password_file: Option<PathBuf>,
    /// Authorities of the store's certificate, as PEM; by default those of the system.
    #[arg(long, env = "TIDEGATE_COUNTERS_CA", value_name = "FILE", requires = "counters")]
    counters_ca: Option<PathBuf>,
    /// Certificate chain of this server for the store, as PEM.
    #[arg(long, env = "TIDEGATE_COUNTERS_CERT", value_name = "FILE", requires = "counters_key")]
    counters_cert: Option<PathBuf>,
    /// Private key of --counters-cert, as PEM.
    #[arg(long, env = "TIDEGATE_COUNTERS_KEY", value_name = "FILE", requires = "counters_cert")]
    counters_key: Option<PathBuf>,
    /// Accept a certificate of the store without its host name. Its authority is still verified.
    #[arg(long, env = "TIDEGATE_COUNTERS_ANY_NAME", requires = "counters")]
    counters_any_name: bool,
}

impl StoreFlags {
    /// The settings for a store, with defaults for decisions.
    pub(in crate::cli) fn settings(&self, url: &str) -> Result<SharedSettings, Failure> {
        let mut address: StoreAddress =
            url.parse().map_err(|error| Failure(format!("--counters: {error}")))?;
        if let Some(path) = &self.counters_password_file {
            let password = read_regular(path, FILE_BYTES_MAX).map_err(Failure::at(path))?;
            let password = String::from_utf8(password)
                .map_err(|_| Failure(format!("{}: the password is not UTF-8", path.display())))?;
            address = address.with_password(password.trim_end_matches(['\r', '\n']));
        }
        let cert_and_key = self.counters_cert.clone().zip(self.counters_key.clone());
        let tls = TlsClient { ca: self.counters_ca.clone(), cert_and_key, ..TlsClient::default() };
        let tls = url.starts_with("rediss").then(|| tls.config_with_anchors(self.counters_any_name));
        Ok(SharedSettings {
            address,
            tls: tls.transpose()?.map(Arc::new),
            prefix: self.counters_prefix.clone(),
            timeout: Duration::from_millis(10),
            on_failure: OnFailure::Local,
            lease_length: Duration::ZERO,
            allow_eviction: false,
        })
    }
}
