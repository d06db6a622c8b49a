//! `Status`: the server, its rules and its counters.

use super::{
    caller::Admitted,
    convert::timestamp,
    error::{Error, Result, on_thread},
    rules::counts,
};
use crate::api::pb::control as pb;
use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};
use tidegate_core::{limit::SeriesId, rules::RuleSet};
use tidegate_counts::HistogramSums;
use tidegate_operations::{
    config::{LoadResult, RulesStatus},
    control::{DomainHits, HitCounts, Role, domain_hits},
    telemetry::resident_bytes,
};
use tidegate_service::DecisionEvent;
use tidegate_shared::{
    holders::{LeaseCounts, LeaseEvent},
    store::{CallResult, SharedStore, StoreEvent},
};
use tidegate_snapshot::SnapshotFigures;

impl Admitted {
    pub(super) async fn status(&self, _: pb::StatusRequest) -> Result<pb::StatusResponse> {
        let control = Arc::clone(&self.control);
        let sources = control.sources().ok_or_else(Error::starting)?.clone();
        let (control, rules) = (Arc::clone(&self.control), sources.limiter.rules());
        let domains = on_thread("the figures could not be read", move || domains(&rules, &control.hits()));
        let meters = &sources.meters;
        let [admitted, denied] =
            [DecisionEvent::Admitted, DecisionEvent::Denied].map(|event| meters.decisions.sum(event));
        let store = sources.limiter.store();
        let durations = self.control.last_durations();
        Ok(pb::StatusResponse {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: Some(timestamp(self.control.now())),
            started: Some(timestamp(self.control.started)),
            actor: self.caller.actor.clone(),
            role: role(self.caller.role).into(),
            decisions: Some(pb::Counts { admitted, denied, shadow_denied: 0 }),
            domains: domains.await?,
            counters: Some(pb::CountersStatus {
                count: store.counters() as u64,
                count_max: store.counters_max() as u64,
                memory_bytes: resident_bytes().unwrap_or(0),
                memory_bytes_max: sources.memory_max.unwrap_or(0),
            }),
            rules: Some(rules_status(&sources.config.status())),
            latency: durations.as_ref().and_then(|durations| percentiles(&durations.responses)),
            snapshots: sources.snapshots.as_ref().map(|snapshots| {
                let SnapshotFigures { passes, failures, last_at, .. } = snapshots.figures();
                pb::SnapshotStatus { written: passes, failed: failures, last: last_at.map(timestamp) }
            }),
            store: sources
                .shared_store
                .as_deref()
                .map(|store| store_status(store, durations.and_then(|durations| durations.round_trips))),
            quotas_are_learning: self.control.service.quotas().figures().is_learning,
        })
    }

    pub(super) async fn history(&self, request: pb::HistoryRequest) -> Result<pb::HistoryResponse> {
        let domain = Some(request.domain.as_str()).filter(|domain| !domain.is_empty());
        let point = |(at, hits)| pb::HistoryPoint { time: Some(timestamp(at)), counts: Some(counts(hits)) };
        Ok(pb::HistoryResponse { points: self.control.history(domain).into_iter().map(point).collect() })
    }
}

fn role(role: Role) -> pb::Role {
    match role {
        // A holder of credits cannot call it.
        Role::None | Role::Lease => pb::Role::None,
        Role::Read => pb::Role::Read,
        Role::Operate => pb::Role::Operate,
    }
}

fn domains(rules: &RuleSet, hits: &HashMap<SeriesId, HitCounts>) -> Vec<pb::DomainStatus> {
    let status = |(domain, DomainHits { hits, rules }): (&str, DomainHits)| pb::DomainStatus {
        domain: domain.to_owned(),
        hits: Some(counts(hits)),
        rules,
    };
    domain_hits(rules, hits).into_iter().map(status).collect()
}

fn rules_status(status: &RulesStatus) -> pb::RulesStatus {
    let of_last = match status.last.as_ref().map(|attempt| &attempt.result) {
        Some(LoadResult::Failed(errors)) => Some(errors),
        _ => None,
    };
    let all = of_last.into_iter().chain(status.failing.values());
    let mut errors: Vec<String> = Vec::new();
    for error in all.flat_map(|errors| errors.iter()).map(ToString::to_string) {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    pb::RulesStatus {
        generation: status.generation,
        loaded: Some(timestamp(status.loaded_at)),
        sources: status.sources.iter().map(ToString::to_string).collect(),
        rules: status.rules as u32,
        limits: status.limits as u32,
        reloads_failed: status.failed,
        errors,
        is_failing: !status.is_last_load_successful(),
        is_kept: !status.kept.is_empty(),
    }
}

fn store_status(store: &SharedStore, round_trips: Option<HistogramSums>) -> pb::StoreStatus {
    let (health, counts) = (store.health(), &store.counts);
    let decided = counts.calls.sum(CallResult::Decided);
    let leases = store.leases().then(|| {
        let LeaseCounts { events, held } = &store.holders.counts;
        pb::LeaseStatus {
            held: held.load(Ordering::Relaxed),
            admitted: events.sum(LeaseEvent::Admitted),
            denied: events.sum(LeaseEvent::Denied),
            requests: events.sum(LeaseEvent::Request),
            wasted: events.sum(LeaseEvent::Wasted),
        }
    });
    pb::StoreStatus {
        is_reachable: health.is_available,
        servers: health.servers,
        nodes: health.nodes,
        nodes_reachable: health.available_nodes,
        outages: counts.events.sum(StoreEvent::Outage),
        calls: counts.calls.total(),
        calls_failed: counts.calls.total() - decided,
        round_trip: round_trips.as_ref().and_then(percentiles),
        leases,
    }
}

/// The bounds of the buckets in which the percentiles are. Beyond the last bound, that bound.
fn percentiles(HistogramSums { bounds, buckets: counts, .. }: &HistogramSums) -> Option<pb::Latency> {
    let total: u64 = counts.iter().sum();
    let quantile = |share: f64| {
        let rank = (total as f64 * share).ceil() as u64;
        let mut sum = 0;
        let bucket = counts.iter().position(|count| {
            sum += count;
            sum >= rank
        });
        bounds[bucket.unwrap_or(bounds.len()).min(bounds.len() - 1)]
    };
    (total > 0).then(|| pb::Latency {
        p50_seconds: quantile(0.5),
        p95_seconds: quantile(0.95),
        p99_seconds: quantile(0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_bounds_of_their_buckets() {
        let histogram = |buckets: [u64; 4]| HistogramSums {
            bounds: vec![0.1, 0.2, 0.4],
            buckets: buckets.into(),
            sum: 0.0,
        };
        let of = |one, other| {
            percentiles(&histogram(one).plus(&histogram(other)))
                .map(|latency| [latency.p50_seconds, latency.p95_seconds, latency.p99_seconds])
        };
        assert_eq!(of([0; 4], [0; 4]), None);
        assert_eq!(of([1, 0, 0, 0], [0; 4]), Some([0.1; 3]));
        assert_eq!(of([50, 0, 0, 1], [0, 45, 4, 0]), Some([0.1, 0.2, 0.4]));
        assert_eq!(of([0, 0, 0, 9], [0; 4]), Some([0.4; 3]));
    }
}
