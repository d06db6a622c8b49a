//! Figures under Limitador's Prometheus names and labels.

use super::{page::Page, sink::Label};
use smallvec::SmallVec;
use std::fmt;
use tidegate_service::{LimitadorCalls, LimitadorCounts, LimitadorLabels, LimitadorSeries};

type Figure = fn(&LimitadorCalls) -> u64;

impl Page<'_> {
    /// The metrics of Limitador. `is_partitioned`: the shared store does not decide.
    pub(super) fn limitador(&mut self, counts: &LimitadorCounts, is_partitioned: bool) -> fmt::Result {
        let sums = counts.sums();
        let families: [(_, Figure); 2] = [
            ("authorized_calls", |calls| calls.authorized_calls),
            ("authorized_hits", |calls| calls.authorized_hits),
        ];
        for (name, value) in families {
            self.samples(name, &mut |samples| {
                sums.iter()
                    .try_for_each(|(series, calls)| samples.sample(&labels(series), value(calls).into()))
            })?;
        }
        self.samples("limited_calls", &mut |samples| {
            let limited = sums.iter().flat_map(|(series, calls)| {
                calls.limited_calls.iter().map(move |(name, calls)| (series, &**name, *calls))
            });
            for (series, name, calls) in limited {
                let mut labels = labels(series);
                if counts.labels() == LimitadorLabels::LimitName {
                    labels.push(("limit_name", name));
                }
                samples.sample(&labels, calls.into())?;
            }
            Ok(())
        })?;
        self.family("limitador_up", &[([], 1.into())])?;
        self.family("datastore_partitioned", &[([], u64::from(is_partitioned).into())])
    }
}

fn labels(series: &LimitadorSeries) -> SmallVec<[Label<'_>; 4]> {
    let further = series.labels.iter().map(|(name, value)| (&**name, &**value));
    [("limitador_namespace", &*series.domain)].into_iter().chain(further).collect()
}
