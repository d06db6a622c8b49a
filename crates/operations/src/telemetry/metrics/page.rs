//! Writing of metrics, family by family.

use super::sink::{Family, Kind, Label, Samples, Sink, Value, WriteSamples};
use std::fmt;
use tidegate_counts::Counts;

/// Writes metrics to a sink.
pub(super) struct Page<'s> {
    sink: &'s mut dyn Sink,
    /// Prefix of every name.
    prefix: &'static str,
}

impl<'s> Page<'s> {
    /// Metrics whose names start with `prefix`.
    pub(super) fn new(sink: &'s mut dyn Sink, prefix: &'static str) -> Self {
        Self { sink, prefix }
    }

    pub(super) fn gauge<'v>(&mut self, name: &str, help: &str, value: impl Into<Value<'v>>) -> fmt::Result {
        self.family(name, help, Kind::Gauge, &[([], value.into())])
    }

    pub(super) fn counter<'v>(&mut self, name: &str, help: &str, value: impl Into<Value<'v>>) -> fmt::Result {
        self.family(name, help, Kind::Counter, &[([], value.into())])
    }

    /// Writes a counter with a sample for each of these values of a label.
    pub(super) fn counters_of(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: &[(&str, u64)],
    ) -> fmt::Result {
        self.samples(name, help, Kind::Counter, &mut |samples| {
            counts.iter().try_for_each(|(value, count)| samples.sample(&[(label, value)], (*count).into()))
        })
    }

    /// Writes a counter with a sample for each value of a label.
    pub(super) fn counters_by<L: tidegate_counts::Label>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: &Counts<L>,
    ) -> fmt::Result {
        self.samples(name, help, Kind::Counter, &mut |samples| write_counts(samples, label, counts))
    }

    /// Writes a family with these samples.
    pub(super) fn family<const LABELS: usize>(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        values: &[([Label<'_>; LABELS], Value<'_>)],
    ) -> fmt::Result {
        self.samples(name, help, kind, &mut |samples: &mut dyn Samples| {
            values.iter().try_for_each(|(labels, value)| samples.sample(labels, *value))
        })
    }

    /// Writes a family with the samples that `write` writes.
    pub(super) fn samples(
        &mut self,
        name: &str,
        help: &str,
        kind: Kind,
        write: WriteSamples<'_>,
    ) -> fmt::Result {
        let name = format!("{}{name}", self.prefix);
        self.sink.family(Family { name: &name, help, kind }, write)
    }
}

/// Writes a sample for each value of a label.
pub(super) fn write_counts<L: tidegate_counts::Label>(
    samples: &mut dyn Samples,
    label: &str,
    counts: &Counts<L>,
) -> fmt::Result {
    L::ALL.iter().try_for_each(|value| samples.sample(&[(label, value.name())], counts.sum(*value).into()))
}
