//! Metrics of limits that clients enforce by themselves (RLQS).

use super::page::Page;
use std::fmt;
use tidegate_service::{BlanketCounts, QuotaFigures};

impl Page<'_> {
    pub(super) fn quotas(&mut self, figures: QuotaFigures) -> fmt::Result {
        let QuotaFigures { streams, buckets, in_force, reports, counts, blanket, admitted, denied, .. } =
            figures;
        self.value("quota_streams", streams)?;
        self.value("quota_buckets", buckets)?;
        self.value("quota_memory_bytes", figures.memory)?;
        self.value("quota_memory_max_bytes", figures.memory_max)?;
        self.value("quota_learning", u64::from(figures.is_learning))?;
        self.value("quota_assigned_rate", in_force.rate as f64 / 1_000.0)?;
        self.value("quota_assigned_tokens", in_force.burst)?;
        let requests = [("ok", admitted), ("over_limit", denied)];
        self.counts("quota_requests", "code", &requests)?;
        self.value("quota_reports", reports)?;
        let requests = [("sent", figures.part_requests), ("granted", figures.part_grants)];
        self.counts("quota_part_requests", "result", &requests)?;
        let BlanketCounts { allowed: all_allowed, denied: all_denied, abandoned } = blanket;
        let assignments = [
            ("tokens", counts.assigned),
            ("allow_all", all_allowed),
            ("deny_all", counts.denied + all_denied),
            ("abandon", counts.abandoned + abandoned),
        ];
        self.counts("quota_assignments", "kind", &assignments)?;
        let reasons = [
            ("buckets", figures.refused),
            ("counters", figures.refused_counters),
            ("memory", figures.refused_memory),
        ];
        self.counts("quota_refused_reports", "reason", &reasons)
    }
}
