//! The interface between the metrics and their sinks: a text page, statsd, OTLP.

use super::family::Family;
use smallvec::SmallVec;
use std::fmt;
use tidegate_counts::HistogramSums;

/// A label's name and value.
pub(super) type Label<'l> = (&'l str, &'l str);

/// A number as a value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Number {
    Integer(u64),
    Float(f64),
}

/// Value of one sample: its kind is that of its family.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'v> {
    Number(Number),
    Histogram(&'v HistogramSums),
}

impl From<u64> for Value<'_> {
    fn from(value: u64) -> Self {
        Self::Number(Number::Integer(value))
    }
}

impl From<f64> for Value<'_> {
    fn from(value: f64) -> Self {
        Self::Number(Number::Float(value))
    }
}

impl<'v> From<&'v HistogramSums> for Value<'v> {
    fn from(value: &'v HistogramSums) -> Self {
        Self::Histogram(value)
    }
}

/// Writes the samples of one family.
pub(super) type WriteSamples<'w> = &'w mut dyn FnMut(&mut dyn Samples) -> fmt::Result;

/// Receives metrics, family by family.
pub(super) trait Sink {
    /// Receives a family: calls `write` once.
    fn family(&mut self, family: Family, write: WriteSamples<'_>) -> fmt::Result;
}

/// The labels `domain` and `limit` of a limit's samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitLabels<'l> {
    pub(super) domain: &'l str,
    pub(super) limit: &'l str,
    /// Both labels in the form of a page: escaped, without braces.
    pub(super) text: &'l str,
}

/// Receives the samples of one family.
pub(super) trait Samples {
    /// Receives a sample.
    fn sample(&mut self, labels: &[Label<'_>], value: Value<'_>) -> fmt::Result;

    /// Receives a sample of a limit, with labels in addition to the limit's own.
    fn sample_of_limit(
        &mut self,
        LimitLabels { domain, limit, .. }: LimitLabels<'_>,
        beside: &[Label<'_>],
        value: Number,
    ) -> fmt::Result {
        let labels: SmallVec<[Label<'_>; 4]> =
            [("domain", domain), ("limit", limit)].into_iter().chain(beside.iter().copied()).collect();
        self.sample(&labels, Value::Number(value))
    }
}
