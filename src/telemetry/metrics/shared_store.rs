//! Metrics of a shared store.

use super::{page::Page, sink::Kind};
use crate::service::Histogram;
use std::fmt;
use tidegate_shared::{
    holders::HolderCountsNow,
    store::{BATCH_BOUNDS, CountsNow, Health, ROUND_TRIP_BOUNDS, SharedStore},
};

impl Page<'_> {
    pub(super) fn shared_store(&mut self, store: &SharedStore) -> fmt::Result {
        let (Health { is_available, servers, nodes, available_nodes }, counts) =
            (store.health(), store.counts().now());
        let CountsNow {
            verdicts,
            unavailable,
            timeouts,
            failed,
            disagreements,
            outages,
            round_trips,
            repeated,
            redirected,
            undone,
            not_undone,
            batches,
            round_trip_buckets,
            round_trip_nanos,
            replicas,
            replication_lag_bytes,
            clock_offset,
        } = counts;
        self.gauge("shared_store_up", "Whether the shared store decides: 1 or 0", u64::from(is_available))?;
        self.gauge(
            "shared_store_nodes",
            "Nodes that decide: 1, or the primaries of a cluster",
            u64::from(nodes),
        )?;
        let help = "Nodes to which calls are sent; to the others they fail at once";
        self.gauge("shared_store_nodes_available", help, u64::from(available_nodes))?;
        self.gauge(
            "shared_store_servers",
            "Servers that share the store, when last known",
            u64::from(servers),
        )?;
        self.counter("shared_store_outages", "Times that the shared store became unavailable", outages)?;
        self.counters_of(
            "shared_decisions",
            "Calls for a decision of the shared store, by result",
            &[
                ([("result", "decided")], verdicts),
                ([("result", "unavailable")], unavailable),
                ([("result", "timeout")], timeouts),
                ([("result", "failed")], failed),
                ([("result", "unusable")], disagreements),
            ],
        )?;
        self.counter("shared_store_round_trips", "Calls of the script in the shared store", round_trips)?;
        let help = "Calls of the script that were repeated with its text, which the store did not have";
        self.counter("shared_store_script_loads", help, repeated)?;
        let help = "Calls that a node of a cluster redirected, because a slot has moved";
        self.counter("shared_store_redirections", help, redirected)?;
        self.counters_of(
            "shared_store_undone",
            "Charges that were taken back: denied by another node, or decided without the store; by result",
            &[([("result", "done")], undone), ([("result", "failed")], not_undone)],
        )?;
        let round_trips = Histogram {
            bounds: ROUND_TRIP_BOUNDS.map(|micros| micros as f64 / 1e6).to_vec(),
            buckets: round_trip_buckets.to_vec(),
            sum: round_trip_nanos as f64 / 1e9,
        };
        let help = "Time from a call of the scripts to the response of the store";
        let value = [([], (&round_trips).into())];
        self.family("shared_store_round_trip_duration_seconds", help, Kind::Histogram, &value)?;
        self.gauge("shared_store_replicas", "Replicas of the store, when last known", replicas)?;
        let help = "Bytes that the replica furthest behind has not received, when last known";
        self.gauge("shared_store_replication_lag_bytes", help, replication_lag_bytes)?;
        let help = "Seconds by which the store's clock is ahead of this server's, when last known";
        self.gauge("shared_store_clock_offset_seconds", help, clock_offset)?;
        if store.leases() {
            self.leases(store.holders().counts().now())?;
        }
        let help = "Calls of the script by number of decisions, up to `decisions`";
        let bounds = BATCH_BOUNDS.map(|bound| bound.to_string());
        self.samples("shared_store_batches", help, Kind::Counter, &mut |samples| {
            let labels = bounds.iter().map(String::as_str).chain(["more"]);
            labels
                .zip(batches)
                .try_for_each(|(bound, count)| samples.sample(&[("decisions", bound)], count.into()))
        })
    }

    fn leases(&mut self, counts: HolderCountsNow) -> fmt::Result {
        let HolderCountsNow { admitted, denied, requests, held, wasted } = counts;
        self.gauge("leases", "Leases with credits", held)?;
        self.counters_of(
            "lease_decisions",
            "Requests decided by leases and denials that are kept, by result",
            &[([("result", "admitted")], admitted), ([("result", "denied")], denied)],
        )?;
        self.counter("lease_requests", "Requests for credits", requests)?;
        self.counter("lease_wasted_hits", "Credits that expired unspent", wasted)
    }
}
