//! Figures of the server as a whole.

use super::page::Page;
use crate::{
    config::{ControlPlaneCounts, RulesStatus},
    telemetry::DecisionLog,
};
use std::{fmt, sync::atomic::Ordering};
use tidegate_core::{
    limit::Code,
    limiter::{HeldKind, Limiter},
    store::{COUNTER_BYTES, OnFull},
};
use tidegate_counts::Label;
use tidegate_service::{DecisionEvent, KeyPathCounts, Meters};
use tidegate_snapshot::{RestoreFigures, SnapshotCounts, SnapshotFigures};

impl Page<'_> {
    pub(super) fn decisions(&mut self, meters: &Meters) -> fmt::Result {
        let of = |event: DecisionEvent| (event.name(), meters.decisions.sum(event));
        let decided = [DecisionEvent::Admitted, DecisionEvent::Denied].map(of);
        self.counts("requests", "code", &decided)?;
        self.by_path("descriptors_without_limit", &meters.unlimited)?;
        self.by_path("descriptors_without_day", &meters.unknown_days)?;
        let [admitted, denied] = [Code::Ok, Code::OverLimit].map(|code| meters.responses(code).sums());
        self.family(
            "decision_duration_seconds",
            &[([("code", "ok")], (&admitted).into()), ([("code", "over_limit")], (&denied).into())],
        )?;
        self.value("queue_wait_seconds", &meters.queue_waits.sums())
    }

    fn by_path(&mut self, name: &str, counts: &KeyPathCounts) -> fmt::Result {
        let (paths, others) = counts.counted();
        self.samples(name, &mut |samples| {
            for path in &paths {
                let labels = [("domain", &*path.domain), ("keys", &*path.path())];
                samples.sample(&labels, path.count.into())?;
            }
            // From the start, so that there is a series whose first increase alerts can detect.
            samples.sample(&[("domain", ""), ("keys", "other")], others.into())
        })
    }

    /// `lost_in_store` is the number of reservations in a shared store that passed their deadlines.
    pub(super) fn counters(
        &mut self,
        limiter: &Limiter,
        memory_max: Option<u64>,
        lost_in_store: u64,
    ) -> fmt::Result {
        let store = limiter.store();
        if let Some(bytes) = memory_max {
            self.value("memory_max_bytes", bytes)?;
        }
        let of_counter = COUNTER_BYTES.saturating_add(limiter.rules().heap_bytes().most);
        let bytes = (store.counters_max() as u64).saturating_mul(of_counter);
        self.value("counters_memory_max_bytes", bytes)?;
        self.value("counters_expired", store.expired() as u64)?;
        self.value("counters", store.counters() as u64)?;
        self.value("counters_max", store.counters_max() as u64)?;
        let outcome = match store.on_full() {
            OnFull::Deny => "denied",
            OnFull::Allow => "admitted",
        };
        self.value("queued", limiter.queued() as u64)?;
        let slots = limiter.ticket_counts(HeldKind::Slot);
        let events = [
            ("taken", slots.taken),
            ("released", slots.released),
            ("unknown_release", slots.unknown),
            ("renewed", slots.renewed),
            ("unknown_renewal", slots.unknown_renewals),
            ("expired", slots.expired),
        ];
        self.counts("slots", "event", &events)?;
        let reservations = limiter.ticket_counts(HeldKind::Reservation);
        let events = [
            ("started", reservations.taken),
            ("ended", reservations.released),
            ("unknown_end", reservations.unknown),
            ("renewed", reservations.renewed),
            ("unknown_renewal", reservations.unknown_renewals),
            ("lost", reservations.expired + lost_in_store),
            ("uncorrected", reservations.uncorrected),
        ];
        self.counts("reservations", "event", &events)?;
        self.counts("no_room", "outcome", &[(outcome, store.no_room() as u64)])
    }

    pub(super) fn rules(&mut self, status: &RulesStatus) -> fmt::Result {
        self.value("rules_generation", status.generation)?;
        self.value("rules", status.rules as u64)?;
        self.value("rules_limits", status.limits as u64)?;
        self.value("rules_domains", status.domains as u64)?;
        self.value("rules_last_load_successful", u64::from(status.is_last_load_successful()))?;
        let seconds = status.loaded_at.as_nanos() as f64 / 1e9;
        self.value("rules_last_success_timestamp_seconds", seconds)?;
        let results =
            [("succeeded", status.succeeded), ("unchanged", status.unchanged), ("failed", status.failed)];
        self.counts("rules_reloads", "result", &results)
    }

    pub(super) fn control_plane(&mut self, counts: &ControlPlaneCounts) -> fmt::Result {
        self.value("xds_connected", u64::from(counts.is_connected.load(Ordering::Relaxed)))?;
        self.counts_by("xds_connects", "result", &counts.connects)?;
        self.counts_by("xds_updates", "result", &counts.updates)?;
        let seconds = counts.accepted_at().as_nanos() as f64 / 1e9;
        self.value("xds_last_success_timestamp_seconds", seconds)
    }

    pub(super) fn decision_log(&mut self, log: &DecisionLog) -> fmt::Result {
        let results = [("written", log.written()), ("dropped", log.dropped()), ("failed", log.failed())];
        self.counts("decision_log_lines", "result", &results)
    }

    pub(super) fn snapshots(&mut self, snapshots: &SnapshotCounts) -> fmt::Result {
        let SnapshotFigures { passes, failures, bytes, last_at, last_took, restore } = snapshots.figures();
        let RestoreFigures { counters, took, age } = restore;
        self.value("restored_counters", counters)?;
        self.value("restore_duration_seconds", took.as_secs_f64())?;
        let age = age.map(|age| ([], age.as_secs_f64().into()));
        self.family("restored_snapshot_age_seconds", age.as_slice())?;
        let results = [("written", passes), ("failed", failures)];
        self.counts("snapshots", "result", &results)?;
        self.value("snapshot_bytes", bytes)?;
        let seconds = last_at.unwrap_or_default().as_nanos() as f64 / 1e9;
        self.value("snapshot_last_timestamp_seconds", seconds)?;
        self.value("snapshot_last_duration_seconds", last_took.as_secs_f64())
    }
}
