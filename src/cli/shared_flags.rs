//! Flags of the shared store.

use super::Failure;
use clap::{Args, ValueEnum};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use tidegate_core::rules::read_regular;
use tidegate_shared::store::{OnFailure, SharedSettings, SharedStore, StoreAddress, StoreTls};

/// The longest file with a password or certificates.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Counters in a Redis or Valkey store that several servers share.
#[derive(Args)]
pub(super) struct SharedFlags {
    /// Store for the counters: redis://host:port, rediss://host:port (TLS), unix:/path, or
    /// redis+sentinel://host:port,host:port/group, or redis+cluster://host:port,host:port, with user:password@ and /database
    /// where needed. By default counters are local, as those of rule files with `counters: local` are in any case.
    #[arg(long, env = "TIDEGATE_COUNTERS", value_name = "URL", hide_env_values = true)]
    counters: Option<String>,
    #[command(flatten)]
    store: StoreFlags,
    /// Time limit of a decision of the store. Envoy waits 20 ms by default.
    #[arg(
        long, env = "TIDEGATE_COUNTERS_TIMEOUT", value_name = "TIME", value_parser = super::interval, default_value = "10ms",
        requires = "counters"
    )]
    counters_timeout: Duration,
    /// Accept a store that may evict counters when its memory is full, so that limits are exceeded.
    #[arg(long, env = "TIDEGATE_COUNTERS_ALLOW_EVICTION", requires = "counters")]
    counters_allow_eviction: bool,
    /// Leases: with auto, this server takes credits of counters in high demand and decides by itself until they are spent or
    /// expire. The same for all servers of a store. By default auto; off in a cluster and with --compat reference, where nothing
    /// can be leased.
    #[arg(long, env = "TIDEGATE_LEASE", value_name = "MODE", requires = "counters")]
    lease: Option<LeaseChoice>,
    /// Length of a lease, 10 ms to 10 s. The same for all servers of a store.
    #[arg(
        long, env = "TIDEGATE_LEASE_LENGTH", value_name = "TIME", value_parser = lease_length, default_value = "200ms",
        requires = "counters"
    )]
    lease_length: Duration,
    /// Decision while the store does not decide.
    #[arg(long, env = "TIDEGATE_ON_STORE_FAILURE", default_value = "local", requires = "counters")]
    on_store_failure: OnFailureChoice,
}

/// Flags of every command that connects to a store.
#[derive(Args)]
pub(super) struct StoreFlags {
    /// Beginning of all keys in the store. Servers with the same one share counters.
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
    /// Accept a certificate of the store without its host name; its authority is verified all the same.
    #[arg(long, env = "TIDEGATE_COUNTERS_ANY_NAME", requires = "counters")]
    counters_any_name: bool,
}

/// Decision while the store does not decide.
#[derive(Clone, Copy, ValueEnum)]
enum OnFailureChoice {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, by an equal share of each limit for each server that shares the store.
    Local,
    /// Fail the call (UNAVAILABLE), so that the proxy's failure mode decides.
    Error,
}

/// Which counters are leased.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LeaseChoice {
    /// None: the store makes every decision.
    Off,
    /// Those in high demand.
    Auto,
}

fn lease_length(text: &str) -> Result<Duration, String> {
    let length = super::interval(text)?;
    let (shortest, longest) = (Duration::from_millis(10), Duration::from_secs(10));
    match (shortest..=longest).contains(&length) && length.subsec_nanos() % 1_000_000 == 0 {
        true => Ok(length),
        false => Err("not whole milliseconds from 10ms to 10s".to_owned()),
    }
}

impl SharedFlags {
    /// Whether counters are in a store.
    pub(super) fn is_shared(&self) -> bool {
        self.counters.is_some()
    }

    /// Connects to the store, if there is one.
    pub(super) fn connect(&self, is_reference: bool) -> Result<Option<SharedStore>, Failure> {
        let Some(settings) = self.settings(is_reference)? else { return Ok(None) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure(format!("cannot start the runtime: {error}")))?;
        let (address, prefix) = (settings.address.to_string(), settings.prefix.clone());
        let store = runtime.block_on(SharedStore::connect(settings));
        let store = store.map_err(|error| Failure(format!("--counters: {error}")))?;
        let leases = if store.leases() { "auto" } else { "off" };
        tracing::info!(address, prefix, leases, "counters are in the shared store");
        Ok(Some(store))
    }

    /// The settings, if counters are in a store.
    pub(super) fn settings(&self, is_reference: bool) -> Result<Option<SharedSettings>, Failure> {
        let Some(url) = &self.counters else { return Ok(None) };
        let on_failure = match self.on_store_failure {
            OnFailureChoice::Deny => OnFailure::Deny,
            OnFailureChoice::Allow => OnFailure::Allow,
            OnFailureChoice::Local => OnFailure::Local,
            OnFailureChoice::Error => OnFailure::Error,
        };
        let (timeout, allow_eviction) = (self.counters_timeout, self.counters_allow_eviction);
        let settings = self.store.settings(url)?;
        let can_lease = !is_reference && !matches!(settings.address, StoreAddress::Cluster(_));
        let lease_length = match self.lease {
            Some(LeaseChoice::Auto) => self.lease_length,
            None if can_lease => self.lease_length,
            Some(LeaseChoice::Off) | None => Duration::ZERO,
        };
        Ok(Some(SharedSettings { timeout, on_failure, lease_length, allow_eviction, ..settings }))
    }
}

impl StoreFlags {
    /// The settings for a store, with defaults for decisions.
    pub(super) fn settings(&self, url: &str) -> Result<SharedSettings, Failure> {
        let mut address: StoreAddress =
            url.parse().map_err(|error| Failure(format!("--counters: {error}")))?;
        if let Some(path) = &self.counters_password_file {
            let password = String::from_utf8(read(path)?)
                .map_err(|_| Failure(format!("{}: the password is not UTF-8", path.display())))?;
            address = address.with_password(password.trim_end_matches(['\r', '\n']));
        }
        let authorities = self.counters_ca.as_deref().map(read).transpose()?;
        let identity = match (&self.counters_cert, &self.counters_key) {
            (Some(certificate), Some(key)) => Some((read(certificate)?, read(key)?)),
            _ => None,
        };
        Ok(SharedSettings {
            address,
            tls: StoreTls { authorities, identity, any_name: self.counters_any_name },
            prefix: self.counters_prefix.clone(),
            timeout: Duration::from_millis(10),
            on_failure: OnFailure::Local,
            lease_length: Duration::ZERO,
            allow_eviction: false,
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    read_regular(path, FILE_BYTES_MAX).map_err(|error| Failure(format!("{}: {error}", path.display())))
}
