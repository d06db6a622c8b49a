//! Settings of a shared store.

use super::address::StoreAddress;
use rustls::ClientConfig;
use std::{fmt, sync::Arc, time::Duration};

/// Settings of a shared store.
#[derive(Clone)]
pub struct SharedSettings {
    /// Address, user, password and database.
    pub address: StoreAddress,
    /// The configuration of TLS, if the address is one with TLS.
    pub tls: Option<Arc<ClientConfig>>,
    /// The beginning of all keys.
    pub prefix: String,
    /// Time limit of a call.
    pub timeout: Duration,
    /// The decision if the store does not decide.
    pub on_failure: OnFailure,
    /// Length of leases; zero if nothing is leased.
    pub lease_length: Duration,
    /// Accept a store that may evict counters when its memory is full.
    pub allow_eviction: bool,
}

#[cfg(test)]
impl SharedSettings {
    /// Settings of a store that is not a real one.
    pub(super) fn of_tests(url: &str, lease_length: Duration) -> Self {
        Self {
            address: url.parse().expect("an address"),
            tls: None,
            prefix: "tidegate:".to_owned(),
            timeout: Duration::from_millis(10),
            on_failure: OnFailure::Deny,
            lease_length,
            allow_eviction: false,
        }
    }
}

/// The decision if the store does not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Deny.
    Deny,
    /// Admit without counting.
    Allow,
    /// Decide over local counters, by an equal share of each limit.
    Local,
    /// Fail the call, so that its caller decides.
    Error,
}

impl fmt::Display for OnFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "deny",
            Self::Allow => "allow",
            Self::Local => "local",
            Self::Error => "error",
        })
    }
}
