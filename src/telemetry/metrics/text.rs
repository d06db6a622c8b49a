//! Metrics as text, by prometheus-client.

use super::sink::{Family, Kind, Label, Samples, Sink, Value, WriteSamples};
use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
};
use std::fmt;

/// Writes metrics to an encoder of prometheus-client.
pub(super) struct TextSink<'e>(pub(super) DescriptorEncoder<'e>);

impl Sink for TextSink<'_> {
    fn family(&mut self, Family { name, help, kind }: Family<'_>, write: WriteSamples<'_>) -> fmt::Result {
        let metric_type = match kind {
            Kind::Counter => MetricType::Counter,
            Kind::Gauge => MetricType::Gauge,
            Kind::Histogram => MetricType::Histogram,
        };
        let metric = self.0.encode_descriptor(name, help, None, metric_type)?;
        write(&mut TextSamples { metric, kind })
    }
}

struct TextSamples<'e> {
    metric: MetricEncoder<'e>,
    kind: Kind,
}

impl Samples for TextSamples<'_> {
    fn sample(&mut self, labels: &[Label<'_>], value: Value<'_>) -> fmt::Result {
        match labels {
            [] => encode(&mut self.metric, self.kind, value),
            _ => encode(&mut self.metric.encode_family(&labels)?, self.kind, value),
        }
    }
}

fn encode(metric: &mut MetricEncoder<'_>, kind: Kind, value: Value<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Gauge, Value::Integer(value)) => metric.encode_gauge(&value),
        (Kind::Gauge, Value::Float(value)) => metric.encode_gauge(&value),
        (_, Value::Integer(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (_, Value::Float(value)) => metric.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (_, Value::Histogram(histogram)) => {
            let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(histogram.buckets.iter().copied()).collect();
            let count = histogram.buckets.iter().sum();
            metric.encode_histogram::<NoLabelSet>(histogram.sum, count, &buckets, None)
        }
    }
}
