//! Flags of the shared store.

use crate::cli::{
    Failure,
    arguments::{Choice, choice, interval, store_flags::StoreFlags},
};
use clap::Args;
use std::{sync::Arc, time::Duration};
use tidegate_shared::store::{OnFailure, SharedSettings, SharedStore, StoreAddress};

/// Counters in a Redis or Valkey store that several servers share.
#[derive(Args)]
pub(super) struct SharedFlags {
    /// Store for the counters: redis://host:port, rediss://host:port (TLS), unix:/path, or
    /// redis+sentinel://host:port,host:port/group, or redis+cluster://host:port,host:port, with user:password@ and /database
    /// where needed. By default counters are local, as those of rule files with `counters: local` are in any case.
    #[arg(long, value_name = "URL", hide_env_values = true)]
    counters: Option<String>,
    #[command(flatten)]
    store: StoreFlags,
    /// Time limit of a decision of the store. Envoy waits 20 ms by default.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "10ms", requires = "counters")]
    counters_timeout: Duration,
    /// Accept a store that may evict counters when its memory is full, so that limits are exceeded.
    #[arg(long, requires = "counters")]
    counters_allow_eviction: bool,
    /// Leases: with auto, this server takes credits of counters in high demand and decides by itself until they are spent or
    /// expire. The same for all servers of a store. By default auto; off in a cluster and with --compat reference, where nothing
    /// can be leased.
    #[arg(long, value_name = "MODE", value_parser = choice(LEASE), requires = "counters")]
    lease: Option<bool>,
    /// Length of a lease, 10 ms to 10 s. The same for all servers of a store.
    #[arg(long, value_name = "TIME", value_parser = lease_length, default_value = "200ms", requires = "counters")]
    lease_length: Duration,
    /// Decision while the store does not decide.
    #[arg(long, default_value = "local", value_parser = choice(ON_FAILURE), requires = "counters")]
    on_store_failure: OnFailure,
}

/// Decision while the store does not decide.
const ON_FAILURE: [Choice<OnFailure>; 4] = [
    ("deny", "Deny", OnFailure::Deny),
    ("allow", "Admit without counting", OnFailure::Allow),
    (
        "local",
        "Decide over local counters, by an equal share of each limit for each server that shares the store",
        OnFailure::Local,
    ),
    ("error", "Fail the call (UNAVAILABLE), so that the proxy's failure mode decides", OnFailure::Error),
];

/// The counters that are leased.
const LEASE: [Choice<bool>; 2] =
    [("off", "None: the store makes every decision", false), ("auto", "Those in high demand", true)];

fn lease_length(text: &str) -> Result<Duration, String> {
    let length = interval(text)?;
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

    /// Whether the counters of a store are leased because --lease auto is set.
    pub(super) fn leases_on_demand(&self) -> bool {
        self.is_shared() && self.lease == Some(true)
    }

    /// Whether the counters of a store are leased.
    pub(super) fn leases(&self, is_reference: bool) -> Result<bool, Failure> {
        Ok(self.settings(is_reference)?.is_some_and(|settings| !settings.lease_length.is_zero()))
    }

    /// Connects to the store, if there is one.
    pub(super) fn connect(&self, is_reference: bool) -> Result<Option<Arc<SharedStore>>, Failure> {
        let Some(settings) = self.settings(is_reference)? else { return Ok(None) };
        let runtime = tidegate_threads::runtime();
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
        let (timeout, on_failure) = (self.counters_timeout, self.on_store_failure);
        let allow_eviction = self.counters_allow_eviction;
        let settings = self.store.settings(url)?;
        let can_lease = !is_reference && !matches!(settings.address, StoreAddress::Cluster(_));
        let lease_length = if self.lease.unwrap_or(can_lease) { self.lease_length } else { Duration::ZERO };
        Ok(Some(SharedSettings { timeout, on_failure, lease_length, allow_eviction, ..settings }))
    }
}
