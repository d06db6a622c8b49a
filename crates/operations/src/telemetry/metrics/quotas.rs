//! Metrics of limits that clients enforce by themselves (RLQS).

use super::page::Page;
use std::fmt;
use tidegate_service::{BlanketCounts, QuotaFigures};

impl Page<'_> {
    pub(super) fn quotas(&mut self, figures: QuotaFigures) -> fmt::Result {
        let QuotaFigures { streams, buckets, in_force, reports, counts, blanket, admitted, denied, .. } =
            figures;
        self.gauge("quota_streams", "Clients that enforce limits by themselves: open streams", streams)?;
        self.gauge("quota_buckets", "Buckets that these clients report, over all streams", buckets)?;
        let help = "Bytes that buckets of quotas and their clients take, also after their streams have ended";
        self.gauge("quota_memory_bytes", help, figures.memory)?;
        self.gauge("quota_memory_max_bytes", "The most that they may take", figures.memory_max)?;
        let help = "Whether assignments of a former process may be in force that are not known, so that a part of limits counts as assigned";
        self.gauge("quota_learning", help, u64::from(figures.is_learning))?;
        let help = "Requests per second that these clients may admit, by all assignments in force";
        self.gauge("quota_assigned_rate", help, in_force.rate as f64 / 1_000.0)?;
        let help = "Requests that they may admit at once beyond that, and unspent requests of slices";
        self.gauge("quota_assigned_tokens", help, in_force.burst)?;
        let help = "Requests that these clients decided, as they reported, by code";
        let requests = [("ok", admitted), ("over_limit", denied)];
        self.counters_of("quota_requests", help, "code", &requests)?;
        self.counter("quota_reports", "Reports of buckets", reports)?;
        let help = "Requests to the shared store for parts of its limits, and its responses";
        let requests = [("sent", figures.part_requests), ("granted", figures.part_grants)];
        self.counters_of("quota_part_requests", help, "result", &requests)?;
        let BlanketCounts { allowed: all_allowed, denied: all_denied, abandoned } = blanket;
        let assignments = [
            ("tokens", counts.assigned),
            ("allow_all", all_allowed),
            ("deny_all", counts.denied + all_denied),
            ("abandon", counts.abandoned + abandoned),
        ];
        self.counters_of(
            "quota_assignments",
            "Assignments and their renewals, by kind",
            "kind",
            &assignments,
        )?;
        let help = "Reports of buckets that got no assignment, by what there are too many of";
        let reasons = [
            ("buckets", figures.refused),
            ("counters", figures.refused_counters),
            ("memory", figures.refused_memory),
        ];
        self.counters_of("quota_refused_reports", help, "reason", &reasons)
    }
}
