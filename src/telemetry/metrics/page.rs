//! Writing of samples, family by family.

use prometheus_client::{
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet},
    metrics::MetricType,
};
use std::fmt;

/// The page that is written.
pub(super) struct Page<'e>(pub(super) DescriptorEncoder<'e>);

pub(super) type Label<'l> = (&'l str, &'l str);

impl Page<'_> {
    pub(super) fn gauge(&mut self, name: &str, what: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.0.encode_descriptor(name, what, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub(super) fn gauge_of(
        &mut self,
        name: &str,
        what: &str,
        labels: &[Label<'_>; 1],
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Gauge)?;
        metric.encode_family(labels)?.encode_gauge(&value)
    }

    pub(super) fn counter(&mut self, name: &str, what: &str, value: impl EncodeCounterValue) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    pub(super) fn counters_of(
        &mut self,
        name: &str,
        what: &str,
        values: &[([Label<'_>; 1], u64)],
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Counter)?;
        for (labels, value) in values {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }
}
