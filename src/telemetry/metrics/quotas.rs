//! Metrics of limits that clients enforce by themselves (RLQS).

use super::page::Page;
use crate::service::QuotaFigures;
use std::fmt;

impl Page<'_> {
    pub(super) fn quotas(&mut self, figures: QuotaFigures) -> fmt::Result {
        let QuotaFigures { streams, buckets, counts, refused, admitted, denied } = figures;
        self.gauge("quota_streams", "Clients that enforce limits by themselves: open streams", streams)?;
        self.gauge("quota_buckets", "Buckets that these clients report, over all streams", buckets)?;
        let help = "Requests that these clients decided, as they reported, by code";
        let requests = [([("code", "ok")], admitted), ([("code", "over_limit")], denied)];
        self.counters_of("quota_requests", help, &requests)?;
        let help = "Assignments sent, by kind, beside those of all or nothing";
        let assignments = [
            ([("kind", "tokens")], counts.assigned),
            ([("kind", "deny_all")], counts.denied),
            ([("kind", "abandon")], counts.abandoned),
        ];
        self.counters_of("quota_assignments", help, &assignments)?;
        let help = "Reports of buckets that got no assignment, since there are too many buckets or counters";
        self.counter("quota_refused_reports", help, refused)
    }
}
