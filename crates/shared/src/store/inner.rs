//! The state of a shared store, and its reaction to a failed node.

use super::{
    counts::{StoreCounts, StoreEvent},
    layout::Layout,
    nodes::{Node, Nodes},
    settings::SharedSettings,
    unfinished::Unfinished,
};
use crate::{PeerIds, holders::Holders, script::Script};
use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, AtomicUsize},
    },
};
use tidegate_core::{clock::SystemClock, limiter::SharedResets, sync::ArcSwap};
use tokio::sync::Notify;

pub(super) struct Inner {
    pub(super) settings: SharedSettings,
    /// The digests of the scripts, as the store returned them when it was joined.
    pub(super) digests: OnceLock<[String; Script::ALL.len()]>,
    /// Key and value that hold the layout's version and the secret of keys.
    pub(super) layout_key: String,
    pub(super) layout: ArcSwap<Layout>,
    /// Whether the store was reached and checked.
    pub(super) has_joined: AtomicBool,
    /// Whether it is a cluster, in which the keys of a group have a hash tag.
    pub(super) is_cluster: bool,
    pub(super) nodes: Nodes,
    /// Clock for the duration of calls.
    pub(super) clock: SystemClock,
    /// Wakes the keeper if a node becomes unavailable or hash slots have moved.
    pub(super) failed: Notify,
    /// Servers that share the store, when last known.
    pub(super) servers: AtomicU32,
    pub(super) counts: StoreCounts,
    /// Numbers the peers that cause work.
    pub(super) peers: PeerIds,
    /// Number of releases of slots in progress.
    pub(super) releases: AtomicUsize,
    /// Work that goes on after its caller has given up.
    pub(super) unfinished: Unfinished,
    /// Credits and denials of this server; only denials if nothing is leased.
    pub(super) holders: Arc<Holders>,
    /// Resets of rules, as of the time at which the store was joined.
    pub(super) resets: ArcSwap<SharedResets>,
}

/// The store is unavailable after this many calls in a row without a response.
const WITHOUT_RESPONSE_MAX: u32 = 5;

impl Inner {
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

    /// Counts a call without a response: it was late, or its connection ended.
    pub(super) fn no_response(&self, node: &Node, reason: &dyn fmt::Display) {
        if node.no_response() >= WITHOUT_RESPONSE_MAX {
            self.fail(
                node,
                &format_args!("{WITHOUT_RESPONSE_MAX} calls in a row without a response: {reason}"),
            );
        }
    }

    /// Whether counters in high demand are leased.
    pub(super) fn leases(&self) -> bool {
        !self.settings.lease_length.is_zero()
    }

    pub(super) fn recovered(&self, node: &Node) {
        if node.recover() {
            tracing::info!(%node, "shared store available");
        }
    }
}
