//! The state of a shared store, and its reaction to a failed node.

use super::{
    counts::{CallResult, StoreCounts, StoreEvent},
    layout::Layout,
    nodes::{Node, Nodes},
    settings::{OnFailure, SharedSettings},
    unfinished::Unfinished,
};
use crate::{
    PeerId, PeerIds,
    holders::Holders,
    script::{ReplyError, Script},
};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
};
use tidegate_core::{
    clock::SystemClock,
    limiter::{SharedResets, WithoutStore},
    store::Seed,
    sync::{ArcSwap, Mutex},
};
use tokio::sync::Notify;

/// A shared store.
pub struct SharedStore {
    pub(super) settings: SharedSettings,
    /// The digests of the scripts, as the store returned them when it was joined.
    pub(super) digests: OnceLock<[String; Script::ALL.len()]>,
    /// The version of the layout, and the secret of keys.
    pub(super) layout: ArcSwap<Layout>,
    /// Whether the store was reached and checked.
    pub(super) has_joined: AtomicBool,
    /// Whether it is a cluster, in which counters need their groups and the keys of a group have a hash tag.
    pub is_cluster: bool,
    pub(super) nodes: Nodes,
    /// Clock for the duration of calls.
    pub(super) clock: SystemClock,
    /// Wakes the keeper if a node becomes unavailable or hash slots have moved.
    pub(super) failed: Notify,
    /// Servers that share the store, when last known.
    pub(super) servers: AtomicU32,
    /// Figures of calls.
    pub counts: StoreCounts,
    /// Numbers the peers that cause work.
    pub(super) peers: PeerIds,
    /// Number of releases of slots in progress.
    pub(super) releases: AtomicUsize,
    /// Work that goes on after its caller has given up.
    pub(super) unfinished: Unfinished,
    /// Credits and denials of this server; only denials if nothing is leased.
    pub holders: Arc<Holders>,
    /// Resets of rules that this server knows. None is ever removed.
    pub(super) resets: Mutex<SharedResets>,
}

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

/// A node is unavailable after this many calls in a row without a response, and a connection is made again after as many batches.
pub(super) const WITHOUT_RESPONSE_MAX: u32 = 5;

impl SharedStore {
    /// Completes when no work goes on without its caller, such as a release of slots.
    pub async fn finished(&self) {
        self.unfinished.none().await;
    }

    /// Counts releases and ends in progress as lost, and returns their number. Call it when the process ends.
    pub fn lose_releases(&self) -> u64 {
        let lost = self.releases.load(Ordering::Relaxed) as u64;
        if lost > 0 {
            self.counts.events.add(StoreEvent::LostRelease, lost);
        }
        lost
    }

    /// The number of the peer with this address. The work that the peer causes counts for it.
    pub fn peer_id(&self, address: &str) -> PeerId {
        self.peers.of(address)
    }

    /// The decision if the store does not decide. None if the call fails.
    pub fn without_store(&self) -> Option<WithoutStore> {
        Some(match self.settings.on_failure {
            OnFailure::Deny => WithoutStore::Deny,
            OnFailure::Allow => WithoutStore::Allow,
            OnFailure::Local => WithoutStore::Local { servers: self.servers.load(Ordering::Relaxed).max(1) },
            OnFailure::Error => return None,
        })
    }

    /// Whether calls fail if the store does not decide.
    pub fn fails_calls(&self) -> bool {
        self.settings.on_failure == OnFailure::Error
    }

    /// The secret of the keys in the store. It may change later: see [`start_keeper`].
    pub fn seed(&self) -> Seed {
        self.layout.load().seed.clone()
    }

    /// The state of the store.
    pub fn health(&self) -> Health {
        let topology = self.nodes.now();
        let count = |nodes: usize| u32::try_from(nodes).unwrap_or(u32::MAX);
        let nodes = count(topology.nodes.len());
        let available_nodes = count(topology.nodes.iter().filter(|node| node.is_available()).count());
        Health {
            is_available: available_nodes == nodes && self.has_joined(),
            nodes,
            available_nodes,
            servers: self.servers.load(Ordering::Relaxed),
        }
    }

    /// Notes a reply from which no decision follows: the arithmetic of the store and of this server differ.
    pub fn disagreed(&self, error: &ReplyError) {
        self.counts.calls.count(CallResult::Unusable);
        tracing::error!(%error, "a reply of the shared store is not used");
    }

    /// Marks the node as unavailable: calls to it fail at once until the keeper has reached it again.
    pub(super) fn fail(&self, node: &Node, reason: &dyn fmt::Display) {
        let is_other_reason = node.fails_for(reason.to_string());
        if node.fail() {
            self.counts.events.count(StoreEvent::Outage);
            tracing::error!(%node, %reason, policy = %self.settings.on_failure, "shared store unavailable");
        } else if is_other_reason {
            tracing::warn!(%node, %reason, "shared store still not available");
        }
        self.failed.notify_one();
    }

    /// Counts calls that were sent and had no response: it was late, or the connection ended.
    pub(super) fn no_response(&self, node: &Node, calls: usize, reason: &dyn fmt::Display) {
        if node.no_response(calls) >= WITHOUT_RESPONSE_MAX {
            self.fail(
                node,
                &format_args!("{WITHOUT_RESPONSE_MAX} calls in a row without a response: {reason}"),
            );
        }
    }

    /// Whether counters in high demand are leased.
    pub fn leases(&self) -> bool {
        !self.settings.lease_length.is_zero()
    }

    pub(super) fn recovered(&self, node: &Node) {
        if node.recover() {
            tracing::info!(%node, "shared store available");
        }
    }
}
