//! The client of the store: connections, batches of calls, deadlines, and what follows when it fails.
//!
//! Invariants:
//!
//! - A call ends by its deadline, with the store's verdict or with a failure.
//! - Nothing is sent twice, unless the store has stated that it did not run the first (NOSCRIPT, MOVED, ASK, TRYAGAIN), or a token makes
//!   the second harmless (hits that are taken back).
//! - While a node is unavailable, calls to it fail at once, and only one thread tries to reach it.

mod address;
mod batches;
mod commands;
mod connect;
mod connect_error;
mod connection;
mod contents;
mod counts;
mod failure;
mod hash_slots;
mod inner;
mod join;
mod keeper;
mod layout;
mod leasing;
mod nodes;
mod parts;
mod quotas;
mod releases;
mod renewals;
mod reports;
mod resets;
mod settings;
mod side_connection;
mod tls;
mod transfer;
mod unfinished;

pub use address::StoreAddress;
pub use connect_error::ConnectError;
pub use contents::Contents;
pub use counts::{BatchSize, CallResult, StoreCounts, StoreEvent};
pub use failure::Failure;
pub use keeper::start_keeper;
pub use leasing::start_leasing;
pub use quotas::{PartCalls, PartThread};
pub use releases::Closed;
pub use settings::{OnFailure, SharedSettings, StoreTls};
pub use transfer::{Moved, Transfer, TransferError};

use super::{
    PeerId,
    holders::Holders,
    script::{EncodedRequest, ReplyError, Verdict},
};
use batches::{Call, Links, Task};
use inner::Inner;
use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{
    limit::{Code, Timestamp},
    limiter::{RemoteRequest, WithoutStore},
    store::Seed,
};
use tokio::sync::oneshot;

/// A shared store. Clones share it.
#[derive(Clone)]
pub struct SharedStore(Arc<Inner>);

/// State of the store, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Whether decisions are made in it; in a cluster, by all nodes.
    pub is_available: bool,
    /// Its nodes, and how many of them decide.
    pub nodes: u32,
    /// See `nodes`.
    pub available_nodes: u32,
    /// Servers that share it, when last known.
    pub servers: u32,
}

impl SharedStore {
    /// The decision on a request of a peer, by the deadline of the settings or the caller's. `now` is the time of this machine.
    pub async fn decide(
        &self,
        request: &RemoteRequest<'_>,
        peer: PeerId,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let result = self.call(request, peer, now, wait_max).await;
        self.0.counts.count_call(&result);
        result
    }

    async fn call(
        &self,
        request: &RemoteRequest<'_>,
        peer: PeerId,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let Self(inner) = self;
        let remote = request;
        let request = EncodedRequest::new(remote, now).ok_or(Failure::TooLarge)?;
        let timeout = inner.settings.timeout.min(wait_max);
        // If there is no response, slots of the request have to be released and its reservations ended, as hits in several groups have to
        // be taken back.
        let Some(group) = request.group().filter(|_| !request.takes_tickets()) else {
            return parts::decide(inner, remote, &request, (peer, timeout)).await;
        };
        let node = inner.nodes.of(group).filter(|node| node.is_available()).ok_or(Failure::Unavailable)?;
        let (reply, verdict) = oneshot::channel();
        Links::send_to(inner, &node, Call::new(group, Task::Decide { request, peer, reply }));
        match tokio::time::timeout(timeout, verdict).await {
            Ok(Ok(result)) => result,
            // The link has ended with its runtime.
            Ok(Err(_)) => Err(Failure::Failed),
            Err(_) => {
                // A short deadline of the caller is no sign of a slow store.
                if timeout == inner.settings.timeout {
                    inner.no_response(&node, &format_args!("in {} ms", timeout.as_millis()));
                }
                Err(Failure::Timeout)
            }
        }
    }

    /// Completes when no work goes on without its caller, such as a release of slots.
    pub async fn finished(&self) {
        self.0.unfinished.none().await;
    }

    /// Counts releases and ends in progress as lost, and returns their number. Call it when the process ends.
    pub fn lose_releases(&self) -> u64 {
        let lost = self.0.releases.load(Ordering::Relaxed) as u64;
        if lost > 0 {
            self.0.counts.events.add(StoreEvent::LostRelease, lost);
        }
        lost
    }

    /// The number of the peer with this address. The work that the peer causes counts for it.
    pub fn peer_id(&self, address: &str) -> PeerId {
        self.0.peers.of(address)
    }

    /// Takes back what the store has charged for a request of a peer, if the store admitted it and local counters have denied it.
    pub fn take_back(&self, request: &RemoteRequest<'_>, peer: PeerId, verdict: &Verdict, now: Timestamp) {
        if let (Code::Ok, Some(encoded)) = (verdict.code, EncodedRequest::new(request, now)) {
            parts::take_back(&self.0, request, &encoded, peer, verdict);
        }
    }

    /// The decision if the store does not decide. None if the call fails.
    pub fn without_store(&self) -> Option<WithoutStore> {
        Some(match self.0.settings.on_failure {
            OnFailure::Deny => WithoutStore::Deny,
            OnFailure::Allow => WithoutStore::Allow,
            OnFailure::Local => {
                WithoutStore::Local { servers: self.0.servers.load(Ordering::Relaxed).max(1) }
            }
            OnFailure::Error => return None,
        })
    }

    /// Whether calls fail if the store does not decide.
    pub fn fails_calls(&self) -> bool {
        self.0.settings.on_failure == OnFailure::Error
    }

    /// Whether it is a cluster, in which counters need their groups.
    pub fn is_cluster(&self) -> bool {
        self.0.is_cluster
    }

    /// The secret of the keys in the store. It may change later: see [`start_keeper`].
    pub fn seed(&self) -> Seed {
        self.0.layout.load().seed.clone()
    }

    /// Whether counters in high demand are leased.
    pub fn leases(&self) -> bool {
        self.0.leases()
    }

    /// Whether the store was reached since the start.
    pub fn has_joined(&self) -> bool {
        self.0.has_joined()
    }

    /// The state of the store.
    pub fn health(&self) -> Health {
        let Self(inner) = self;
        let topology = inner.nodes.now();
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let nodes = count(topology.nodes.len());
        let available_nodes = count(topology.nodes.iter().filter(|node| node.is_available()).count());
        Health {
            is_available: available_nodes == nodes && inner.has_joined(),
            nodes,
            available_nodes,
            servers: inner.servers.load(Ordering::Relaxed),
        }
    }

    /// The credits and denials of this server; only denials if nothing is leased.
    #[inline]
    pub fn holders(&self) -> &Holders {
        &self.0.holders
    }

    /// The figures of calls.
    pub fn counts(&self) -> &StoreCounts {
        &self.0.counts
    }

    /// Notes a reply from which no decision follows: the arithmetic of the store and of this server differ.
    pub fn disagreed(&self, error: &ReplyError) {
        self.0.counts.calls.count(CallResult::Unusable);
        tracing::error!(%error, "a reply of the shared store is not used");
    }
}

/// Prints neither the secret nor the password.
impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
