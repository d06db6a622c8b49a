//! Metrics of a shared store.

use super::{page::Page, sink::Kind};
use std::{fmt, sync::atomic::Ordering};
use tidegate_counts::{Attempt, Label};
use tidegate_shared::{
    holders::{LeaseCounts, LeaseEvent},
    store::{Health, SharedStore, StoreEvent},
};

impl Page<'_> {
    pub(super) fn shared_store(&mut self, store: &SharedStore) -> fmt::Result {
        let Health { is_available, servers, nodes, available_nodes } = store.health();
        let counts = store.counts();
        self.gauge("shared_store_up", "Whether the shared store decides: 1 or 0", u64::from(is_available))?;
        let help = "Nodes that decide: 1, or the primaries of a cluster";
        self.gauge("shared_store_nodes", help, u64::from(nodes))?;
        let help = "Nodes to which calls are sent; to the others they fail at once";
        self.gauge("shared_store_nodes_available", help, u64::from(available_nodes))?;
        let help = "Servers that share the store, when last known";
        self.gauge("shared_store_servers", help, u64::from(servers))?;
        let help = "Times that the shared store became unavailable";
        self.counter("shared_store_outages", help, counts.events.sum(StoreEvent::Outage))?;
        let help = "Calls for a decision of the shared store, by result";
        self.counters_by("shared_decisions", help, "result", &counts.calls)?;
        let help = "Calls of the script in the shared store";
        self.counter("shared_store_round_trips", help, counts.batches.total())?;
        let help = "Calls of the script that were repeated with its text, which the store did not have";
        self.counter("shared_store_script_loads", help, counts.events.sum(StoreEvent::ScriptLoad))?;
        let help = "Calls that a node of a cluster redirected, because a slot has moved";
        self.counter("shared_store_redirections", help, counts.events.sum(StoreEvent::Redirection))?;
        let [done, failed] = [Attempt::Succeeded, Attempt::Failed].map(|result| counts.undone.sum(result));
        let help =
            "Charges that were taken back: denied by another node, or decided without the store; by result";
        self.counters_of("shared_store_undone", help, "result", &[("done", done), ("failed", failed)])?;
        let help = "Ends of requests that did not reach the store: slots and reservations end after max_hold";
        self.counter("shared_store_lost_releases", help, counts.events.sum(StoreEvent::LostRelease))?;
        let help = "Time from a call of the scripts to the response of the store";
        let (name, sums) = ("shared_store_round_trip_duration_seconds", counts.round_trips.sums());
        self.family(name, help, Kind::Histogram, &[([], (&sums).into())])?;
        let [replicas, lag] =
            [&counts.replicas, &counts.replication_lag_bytes].map(|count| count.load(Ordering::Relaxed));
        self.gauge("shared_store_replicas", "Replicas of the store, when last known", replicas)?;
        let help = "Bytes that the replica furthest behind has not received, when last known";
        self.gauge("shared_store_replication_lag_bytes", help, lag)?;
        let help = "Seconds by which the store's clock is ahead of this server's, when last known";
        let offset = counts.clock_offset_micros.load(Ordering::Relaxed) as f64 / 1e6;
        self.gauge("shared_store_clock_offset_seconds", help, offset)?;
        if store.leases() {
            self.leases(store.holders().counts())?;
        }
        let help = "Calls of the script by number of decisions, up to `decisions`";
        self.counters_by("shared_store_batches", help, "decisions", &counts.batches)
    }

    fn leases(&mut self, counts: &LeaseCounts) -> fmt::Result {
        let sum = |event| counts.events.sum(event);
        self.gauge("leases", "Leases with credits", counts.held.load(Ordering::Relaxed))?;
        let of = |event: LeaseEvent| (event.name(), sum(event));
        let decided = [LeaseEvent::Admitted, LeaseEvent::Denied].map(of);
        let help = "Requests decided by leases and denials that are kept, by result";
        self.counters_of("lease_decisions", help, "result", &decided)?;
        self.counter("lease_requests", "Requests for credits", sum(LeaseEvent::Request))?;
        self.counter("lease_wasted_hits", "Credits that expired unspent", sum(LeaseEvent::Wasted))
    }
}
