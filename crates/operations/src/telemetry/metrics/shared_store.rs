//! Metrics of a shared store.

use super::page::Page;
use std::{fmt, sync::atomic::Ordering};
use tidegate_counts::{Attempt, Label};
use tidegate_shared::{
    holders::{LeaseCounts, LeaseEvent},
    store::{Health, SharedStore, StoreEvent},
};

impl Page<'_> {
    pub(super) fn shared_store(&mut self, store: &SharedStore) -> fmt::Result {
        let Health { is_available, servers, nodes, available_nodes } = store.health();
        let counts = &store.counts;
        self.value("shared_store_up", u64::from(is_available))?;
        self.value("shared_store_nodes", u64::from(nodes))?;
        self.value("shared_store_nodes_available", u64::from(available_nodes))?;
        self.value("shared_store_servers", u64::from(servers))?;
        self.value("shared_store_outages", counts.events.sum(StoreEvent::Outage))?;
        self.counts_by("shared_decisions", "result", &counts.calls)?;
        self.value("shared_store_round_trips", counts.batches.total())?;
        self.value("shared_store_script_loads", counts.events.sum(StoreEvent::ScriptLoad))?;
        self.value("shared_store_redirections", counts.events.sum(StoreEvent::Redirection))?;
        let [done, failed] = [Attempt::Succeeded, Attempt::Failed].map(|result| counts.undone.sum(result));
        self.counts("shared_store_undone", "result", &[("done", done), ("failed", failed)])?;
        self.value("shared_store_lost_releases", counts.events.sum(StoreEvent::LostRelease))?;
        self.value("shared_store_round_trip_duration_seconds", &counts.round_trips.sums())?;
        let [replicas, lag] =
            [&counts.replicas, &counts.replication_lag_bytes].map(|count| count.load(Ordering::Relaxed));
        self.value("shared_store_replicas", replicas)?;
        self.value("shared_store_replication_lag_bytes", lag)?;
        let offset = counts.clock_offset_micros.load(Ordering::Relaxed) as f64 / 1e6;
        self.value("shared_store_clock_offset_seconds", offset)?;
        if store.leases() {
            self.leases(&store.holders.counts)?;
        }
        self.counts_by("shared_store_batches", "decisions", &counts.batches)
    }

    fn leases(&mut self, counts: &LeaseCounts) -> fmt::Result {
        let sum = |event| counts.events.sum(event);
        self.value("leases", counts.held.load(Ordering::Relaxed))?;
        let of = |event: LeaseEvent| (event.name(), sum(event));
        let decided = [LeaseEvent::Admitted, LeaseEvent::Denied].map(of);
        self.counts("lease_decisions", "result", &decided)?;
        self.value("lease_requests", sum(LeaseEvent::Request))?;
        self.value("lease_wasted_hits", sum(LeaseEvent::Wasted))
    }
}
