//! Figures under the names and labels that Limitador has in Prometheus.

use super::{page::Page, sink::Kind};
use crate::service::{LimitadorCounts, LimitadorLabels};
use std::fmt;

const NAMESPACE: &str = "limitador_namespace";

impl Page<'_> {
    /// The metrics of Limitador. `is_partitioned` is whether the shared store does not decide.
    pub(super) fn limitador(&mut self, counts: &LimitadorCounts, is_partitioned: bool) -> fmt::Result {
        let sums = counts.sums();
        let calls: Vec<_> = sums
            .iter()
            .map(|(domain, calls)| ([(NAMESPACE, &**domain)], calls.authorized_calls.into()))
            .collect();
        self.family("authorized_calls", "Authorized calls", Kind::PlainCounter, &calls)?;
        let hits: Vec<_> = sums
            .iter()
            .map(|(domain, calls)| ([(NAMESPACE, &**domain)], calls.authorized_hits.into()))
            .collect();
        self.family("authorized_hits", "Authorized hits", Kind::PlainCounter, &hits)?;
        let limited = sums.iter().flat_map(|(domain, calls)| {
            calls.limited_calls.iter().map(move |(name, calls)| (&**domain, &**name, *calls))
        });
        self.samples("limited_calls", "Limited calls", Kind::PlainCounter, &mut |samples| {
            limited.clone().try_for_each(|(domain, name, calls)| match counts.labels() {
                LimitadorLabels::Namespace => samples.sample(&[(NAMESPACE, domain)], calls.into()),
                LimitadorLabels::LimitName => {
                    samples.sample(&[(NAMESPACE, domain), ("limit_name", name)], calls.into())
                }
            })
        })?;
        self.family("limitador_up", "Limitador is running", Kind::Gauge, &[([], 1.into())])?;
        let help = "Limitador is partitioned from backing datastore";
        self.family("datastore_partitioned", help, Kind::Gauge, &[([], u64::from(is_partitioned).into())])
    }
}
