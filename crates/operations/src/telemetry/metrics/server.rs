//! Figures of the server as a whole.

use super::{page::Page, sink::Kind};
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
        self.counters_of("requests", "Requests decided, by code", "code", &decided)?;
        let help = "Descriptors that no rule decides on, by domain and keys: of an unknown domain, or matched by no rule";
        self.by_path("descriptors_without_limit", help, &meters.unlimited)?;
        let help = "Descriptors whose entry for the day of their calendar windows is no day, by domain and keys; the windows begin with the first day";
        self.by_path("descriptors_without_day", help, &meters.unknown_days)?;
        let [admitted, denied] = [Code::Ok, Code::OverLimit].map(|code| meters.responses(code).sums());
        self.family(
            "decision_duration_seconds",
            "Time from a request's last bytes read to its response written, by code",
            Kind::Histogram,
            &[([("code", "ok")], (&admitted).into()), ([("code", "over_limit")], (&denied).into())],
        )?;
        let help = "Time that queued requests waited until they were released";
        self.family("queue_wait_seconds", help, Kind::Histogram, &[([], (&meters.queue_waits.sums()).into())])
    }

    fn by_path(&mut self, name: &str, help: &str, counts: &KeyPathCounts) -> fmt::Result {
        let (paths, others) = counts.counted();
        self.samples(name, help, Kind::Counter, &mut |samples| {
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
            let help = "Memory that the process may use: the machine's, or the cgroup's limit";
            self.gauge("memory_max_bytes", help, bytes)?;
        }
        let of_counter = COUNTER_BYTES.saturating_add(limiter.rules().heap_bytes().most);
        let bytes = (store.counters_max() as u64).saturating_mul(of_counter);
        self.gauge("counters_memory_max_bytes", "Memory of the maximum number of counters", bytes)?;
        self.counter("counters_expired", "Counters dropped after they expired", store.expired() as u64)?;
        self.gauge("counters", "Counters in memory", store.counters() as u64)?;
        self.gauge("counters_max", "Maximum number of counters in memory", store.counters_max() as u64)?;
        let outcome = match store.on_full() {
            OnFull::Deny => "denied",
            OnFull::Allow => "admitted",
        };
        let help = "Requests that are queued: in leaky buckets, or for slots";
        self.gauge("queued", help, limiter.queued() as u64)?;
        let slots = limiter.ticket_counts(HeldKind::Slot);
        let events = [
            ("taken", slots.taken),
            ("released", slots.released),
            ("unknown_release", slots.unknown),
            ("renewed", slots.renewed),
            ("unknown_renewal", slots.unknown_renewals),
            ("expired", slots.expired),
        ];
        self.counters_of("slots", "Slots of requests in flight, by event", "event", &events)?;
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
        self.counters_of(
            "reservations",
            "Estimates of costs that are known at the end, by event",
            "event",
            &events,
        )?;
        let help = "Requests that needed a new counter when there was no room, by outcome";
        self.counters_of("no_room", help, "outcome", &[(outcome, store.no_room() as u64)])
    }

    pub(super) fn rules(&mut self, status: &RulesStatus) -> fmt::Result {
        self.gauge("rules_generation", "Rule sets put in force since the start", status.generation)?;
        self.gauge("rules", "Rules in force", status.rules as u64)?;
        self.gauge("rules_limits", "Limits in force", status.limits as u64)?;
        self.gauge("rules_domains", "Domains in force", status.domains as u64)?;
        let help = "Whether the rules in force are those of all sources: 0 from a failed load to the next successful one";
        self.gauge("rules_last_load_successful", help, u64::from(status.is_last_load_successful()))?;
        let seconds = status.loaded_at.as_nanos() as f64 / 1e9;
        self.gauge("rules_last_success_timestamp_seconds", "Unix time of the last successful load", seconds)?;
        let results =
            [("succeeded", status.succeeded), ("unchanged", status.unchanged), ("failed", status.failed)];
        self.counters_of("rules_reloads", "Attempts to change the rules, by result", "result", &results)
    }

    pub(super) fn control_plane(&mut self, counts: &ControlPlaneCounts) -> fmt::Result {
        let help = "Whether the control plane is connected";
        self.gauge("xds_connected", help, u64::from(counts.is_connected.load(Ordering::Relaxed)))?;
        let help = "Attempts to connect to the control plane, by result";
        self.counters_by("xds_connects", help, "result", &counts.connects)?;
        let help = "Responses of the control plane, by result";
        self.counters_by("xds_updates", help, "result", &counts.updates)?;
        let help = "Unix time of the last accepted response of the control plane; 0 before the first";
        let seconds = counts.accepted_at().as_nanos() as f64 / 1e9;
        self.gauge("xds_last_success_timestamp_seconds", help, seconds)
    }

    pub(super) fn decision_log(&mut self, log: &DecisionLog) -> fmt::Result {
        let results = [("written", log.written()), ("dropped", log.dropped()), ("failed", log.failed())];
        self.counters_of("decision_log_lines", "Lines of the decision log, by result", "result", &results)
    }

    pub(super) fn snapshots(&mut self, snapshots: &SnapshotCounts) -> fmt::Result {
        let SnapshotFigures { passes, failures, bytes, last_at, last_took, restore } = snapshots.figures();
        let RestoreFigures { counters, took, age } = restore;
        self.gauge("restored_counters", "Counters restored at the start", counters)?;
        self.gauge("restore_duration_seconds", "Duration of the restore at the start", took.as_secs_f64())?;
        let help = "Age of the snapshot that was restored";
        let age = age.map(|age| ([], age.as_secs_f64().into()));
        self.family("restored_snapshot_age_seconds", help, Kind::Gauge, age.as_slice())?;
        let results = [("written", passes), ("failed", failures)];
        self.counters_of("snapshots", "Snapshots, by result", "result", &results)?;
        self.counter("snapshot_bytes", "Bytes of all snapshots written", bytes)?;
        let seconds = last_at.unwrap_or_default().as_nanos() as f64 / 1e9;
        let help = "Unix time of the last snapshot; 0 before the first";
        self.gauge("snapshot_last_timestamp_seconds", help, seconds)?;
        let help = "Duration of the last snapshot";
        self.gauge("snapshot_last_duration_seconds", help, last_took.as_secs_f64())
    }
}
