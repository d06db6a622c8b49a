//! The way to the store: connections, batches of calls, deadlines, and what follows when it fails.
//!
//! Invariants:
//!
//! - A call ends by its deadline, with the store's verdict or with a failure.
//! - Nothing is sent twice, except where the store has stated that it did not run the first (NOSCRIPT, MOVED, ASK, TRYAGAIN), or
//!   under a token that makes the second harmless (hits that are taken back).
//! - While a node is unavailable, calls to it fail at once, and one thread alone tries to reach it.

mod address;
mod batches;
mod commands;
mod connect;
mod contents;
mod counts;
mod join;
mod keeper;
mod leasing;
mod nodes;
mod parts;
mod releases;
mod reports;
mod resets;
mod settings;
mod slots;
mod tls;
mod transfer;

pub use address::StoreAddress;
pub use contents::Contents;
pub use counts::{BatchSize, CallResult, StoreCounts, StoreEvent};
pub use join::ConnectError;
pub use keeper::Keeper;
pub use leasing::Leasing;
pub use settings::{OnFailure, SharedSettings, StoreTls};
pub use transfer::{Moved, Transfer, TransferError};

use super::{
    holders::Holders,
    script::{EncodedRequest, ReplyError, Verdict},
};
use batches::{Call, Links, Task};
use join::{Digests, Layout};
use nodes::{Node, Nodes};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tidegate_core::{
    clock::SystemClock,
    limit::{Code, Timestamp},
    limiter::{RemoteRequest, SharedResets, WithoutStore},
    store::Seed,
    sync::ArcSwap,
};
use tokio::sync::{Notify, oneshot};

/// A shared store. Clones are the same one.
#[derive(Clone)]
pub struct SharedStore(Arc<Inner>);

struct Inner {
    settings: SharedSettings,
    /// The digests of the scripts, once the store was reached.
    digests: OnceLock<Digests>,
    /// Key and value that hold the layout's version and the secret of keys.
    layout_key: String,
    layout: ArcSwap<Layout>,
    /// Whether the store was reached and checked.
    has_joined: AtomicBool,
    /// Whether it is a cluster, where the keys of a group have a hash tag.
    is_cluster: bool,
    nodes: Nodes,
    /// Measures the time of responses.
    clock: SystemClock,
    /// Wakes the keeper when a node becomes unavailable, or slots have moved.
    failed: Notify,
    /// Servers that share the store, when last known.
    servers: AtomicU32,
    counts: StoreCounts,
    /// Number of releases of slots that are under way.
    releases: AtomicUsize,
    /// Credits and denials of this server; denials alone if nothing is leased.
    holders: Arc<Holders>,
    /// Resets of rules, as of the time at which the store was joined.
    resets: ArcSwap<SharedResets>,
}

/// Calls in a row without a response, after which the store is unavailable.
const WITHOUT_RESPONSE_MAX: u32 = 5;

/// Reason why the store did not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// It was unavailable before the call.
    #[error("the store is unavailable")]
    Unavailable,
    /// No response in time. The store may have charged the request.
    #[error("the store did not respond in time")]
    Timeout,
    /// The call failed.
    #[error("the call to the store failed")]
    Failed,
    /// The store decides nothing until it knows which credits are out.
    #[error("the store learns which credits are out")]
    Learning,
    /// The value of one of its counters is not one.
    #[error("the store has a damaged counter of the request")]
    Damaged,
    /// The request has too many counters for one call.
    #[error("the request has too many counters for the store")]
    TooLarge,
}

/// State of the store, for operators.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Health {
    /// Whether decisions are made there, by all nodes of a cluster.
    pub is_available: bool,
    /// Its nodes, and how many of them decide.
    pub nodes: u32,
    /// See `nodes`.
    pub available_nodes: u32,
    /// Servers that share it, when last known.
    pub servers: u32,
}

impl SharedStore {
    /// The decision on a request, by the deadline of the settings or that of its caller. `now` is the time of this machine.
    pub async fn decide(
        &self,
        request: &RemoteRequest<'_>,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let result = self.call(request, now, wait_max).await;
        self.0.counts.decided(&result);
        result
    }

    async fn call(
        &self,
        request: &RemoteRequest<'_>,
        now: Timestamp,
        wait_max: Duration,
    ) -> Result<Verdict, Failure> {
        let Self(inner) = self;
        let remote = request;
        let request = EncodedRequest::new(remote, now).ok_or(Failure::TooLarge)?;
        let timeout = inner.settings.timeout.min(wait_max);
        // The slots of a request without a response have to be released, as its hits in several groups.
        let Some(group) = request.group().filter(|_| !request.takes_slots()) else {
            return parts::decide(inner, remote, &request, timeout).await;
        };
        let node = inner.nodes.of(group).filter(|node| node.is_available()).ok_or(Failure::Unavailable)?;
        let (reply, verdict) = oneshot::channel();
        Links::send_to(inner, &node, Call::new(group, Task::Decide { request, reply }));
        match tokio::time::timeout(timeout, verdict).await {
            Ok(Ok(result)) => result,
            // The link has ended with its runtime.
            Ok(Err(_)) => Err(Failure::Failed),
            Err(_) => {
                // A caller in a hurry is no sign of a slow store.
                if timeout == inner.settings.timeout {
                    inner.no_response(&node, &format_args!("in {} ms", timeout.as_millis()));
                }
                Err(Failure::Timeout)
            }
        }
    }

    /// Takes back what the store has charged for a request that it admitted and that local counters have denied.
    pub fn take_back(&self, request: &RemoteRequest<'_>, verdict: &Verdict, now: Timestamp) {
        if let (Code::Ok, Some(encoded)) = (verdict.code, EncodedRequest::new(request, now)) {
            parts::take_back(&self.0, request, &encoded, verdict);
        }
    }

    /// The decision while the store does not decide; none if the call fails.
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

    /// Whether calls fail while the store does not decide.
    pub fn fails_calls(&self) -> bool {
        self.0.settings.on_failure == OnFailure::Error
    }

    /// Whether it is a cluster, which needs the groups of counters.
    pub fn is_cluster(&self) -> bool {
        self.0.is_cluster
    }

    /// The secret of the keys in the store. Another one may be adopted later: see [`Keeper::start`].
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

    /// Its state.
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

    /// The credits and denials of this server; denials alone if nothing is leased.
    #[inline]
    pub fn holders(&self) -> &Holders {
        &self.0.holders
    }

    /// The figures of calls.
    pub fn counts(&self) -> &StoreCounts {
        &self.0.counts
    }

    /// A reply from which no decision follows: the store and this server differ in their arithmetic.
    pub fn disagreed(&self, error: &ReplyError) {
        self.0.counts.calls.count(CallResult::Unusable);
        tracing::error!(%error, "a reply of the shared store is not used");
    }
}

impl Inner {
    /// Calls to the node fail at once from now on, until the keeper has reached it again.
    fn fail(&self, node: &Node, reason: &dyn fmt::Display) {
        let is_other_reason = node.fails_for(reason.to_string());
        if node.fail() {
            self.counts.events.count(StoreEvent::Outage);
            tracing::error!(%node, %reason, policy = %self.settings.on_failure, "shared store unavailable");
        } else if is_other_reason {
            tracing::warn!(%node, %reason, "shared store still not available");
        }
        self.failed.notify_one();
    }

    /// Counts a call without a response: it was late, or its connection ended.
    fn no_response(&self, node: &Node, reason: &dyn fmt::Display) {
        if node.no_response() >= WITHOUT_RESPONSE_MAX {
            self.fail(
                node,
                &format_args!("{WITHOUT_RESPONSE_MAX} calls in a row without a response: {reason}"),
            );
        }
    }

    /// Whether counters in high demand are leased.
    fn leases(&self) -> bool {
        !self.settings.lease_length.is_zero()
    }

    fn recovered(&self, node: &Node) {
        if node.recover() {
            tracing::info!(%node, "shared store available");
        }
    }
}

/// Prints neither the secret nor the password.
impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
