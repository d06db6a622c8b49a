//! Writing of metrics, family by family.

use super::{
    family::Family,
    sink::{Label, Samples, Sink, Value, WriteSamples},
};
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

    /// Writes a family with one sample, which has no labels.
    pub(super) fn value<'v>(&mut self, name: &str, value: impl Into<Value<'v>>) -> fmt::Result {
        self.family(name, &[([], value.into())])
    }

    /// Writes a family with a sample for each of these values of a label.
    pub(super) fn counts(&mut self, name: &str, label: &str, counts: &[(&str, u64)]) -> fmt::Result {
        self.samples(name, &mut |samples| {
            counts.iter().try_for_each(|(value, count)| samples.sample(&[(label, value)], (*count).into()))
        })
    }

    /// Writes a family with a sample for each value of a label.
    pub(super) fn counts_by<L: tidegate_counts::Label>(
        &mut self,
        name: &str,
        label: &str,
        counts: &Counts<L>,
    ) -> fmt::Result {
        self.samples(name, &mut |samples| write_counts(samples, label, counts))
    }

    /// Writes a family with these samples.
    pub(super) fn family<const LABELS: usize>(
        &mut self,
        name: &str,
        values: &[([Label<'_>; LABELS], Value<'_>)],
    ) -> fmt::Result {
        self.samples(name, &mut |samples: &mut dyn Samples| {
            values.iter().try_for_each(|(labels, value)| samples.sample(labels, *value))
        })
    }

    /// Writes a family with the samples that `write` writes.
    pub(super) fn samples(&mut self, name: &str, write: WriteSamples<'_>) -> fmt::Result {
        self.sink.family(Family::named(&format!("{}{name}", self.prefix)), write)
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
