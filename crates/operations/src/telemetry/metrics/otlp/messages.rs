//! Metrics as messages of OTLP. Counters and histograms are cumulative since the start of the process.

use super::super::{
    family::{Family, Kind},
    sink::{Label, Number, Samples, Sink, Value, WriteSamples},
};
use opentelemetry_proto::tonic::{
    common::v1::{AnyValue, KeyValue, any_value},
    metrics::v1::{
        AggregationTemporality, Gauge, Histogram as HistogramData, HistogramDataPoint, Metric,
        NumberDataPoint, Sum, metric::Data, number_data_point,
    },
};
use std::fmt;
use tidegate_counts::HistogramSums;

/// The most data points in one message, which is then far below the 4 MiB that receivers accept by default.
const POINTS_MAX: usize = 2_000;

/// Start and end of the reported time, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Period {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// Collects metrics, and divides them into messages.
pub(super) struct OtlpSink {
    period: Period,
    points: usize,
    /// The metrics of each message.
    pub(super) messages: Vec<Vec<Metric>>,
}

impl OtlpSink {
    pub(super) fn new(period: Period) -> Self {
        Self { period, points: 0, messages: vec![Vec::new()] }
    }

    fn push(&mut self, metric: Metric, points: usize) {
        if points == 0 {
            return;
        }
        if self.points + points > POINTS_MAX && self.points > 0 {
            self.points = 0;
            self.messages.push(Vec::new());
        }
        self.points += points;
        if let Some(message) = self.messages.last_mut() {
            message.push(metric);
        }
    }
}

impl Sink for OtlpSink {
    fn family(&mut self, family: Family, write: WriteSamples<'_>) -> fmt::Result {
        let mut samples = OtlpSamples { sink: self, family, numbers: Vec::new(), histograms: Vec::new() };
        write(&mut samples)?;
        samples.finish();
        Ok(())
    }
}

struct OtlpSamples<'s> {
    sink: &'s mut OtlpSink,
    family: Family,
    numbers: Vec<NumberDataPoint>,
    histograms: Vec<HistogramDataPoint>,
}

impl OtlpSamples<'_> {
    fn finish(&mut self) {
        let (numbers, histograms) = (std::mem::take(&mut self.numbers), std::mem::take(&mut self.histograms));
        let points = numbers.len() + histograms.len();
        let aggregation_temporality = AggregationTemporality::Cumulative.into();
        let data = match self.family.kind {
            Kind::Counter | Kind::PlainCounter => {
                Data::Sum(Sum { data_points: numbers, aggregation_temporality, is_monotonic: true })
            }
            Kind::Gauge => Data::Gauge(Gauge { data_points: numbers }),
            Kind::Histogram => {
                Data::Histogram(HistogramData { data_points: histograms, aggregation_temporality })
            }
        };
        let Family { name, help, .. } = self.family;
        let (name, description, unit) = (name.to_owned(), help.to_owned(), unit(name).to_owned());
        self.sink.push(Metric { name, description, unit, metadata: Vec::new(), data: Some(data) }, points);
    }

    fn number(&mut self, labels: &[Label<'_>], value: number_data_point::Value) {
        let Period { start, now } = self.sink.period;
        self.numbers.push(NumberDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: if self.family.kind == Kind::Gauge { 0 } else { start },
            time_unix_nano: now,
            value: Some(value),
            ..NumberDataPoint::default()
        });
    }

    fn histogram(&mut self, labels: &[Label<'_>], histogram: &HistogramSums) {
        let Period { start, now } = self.sink.period;
        self.histograms.push(HistogramDataPoint {
            attributes: attributes(labels),
            start_time_unix_nano: start,
            time_unix_nano: now,
            count: histogram.buckets.iter().sum(),
            sum: Some(histogram.sum),
            bucket_counts: histogram.buckets.clone(),
            explicit_bounds: histogram.bounds.clone(),
            ..HistogramDataPoint::default()
        });
    }
}

impl Samples for OtlpSamples<'_> {
    fn sample(&mut self, labels: &[Label<'_>], value: Value<'_>) -> fmt::Result {
        match value {
            Value::Number(Number::Integer(value)) => {
                let value = i64::try_from(value).unwrap_or(i64::MAX);
                self.number(labels, number_data_point::Value::AsInt(value));
            }
            Value::Number(Number::Float(value)) => {
                self.number(labels, number_data_point::Value::AsDouble(value))
            }
            Value::Histogram(histogram) => self.histogram(labels, histogram),
        }
        if self.numbers.len() == POINTS_MAX {
            self.finish();
        }
        Ok(())
    }
}

/// The unit at the end of the name.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

fn attributes(labels: &[Label<'_>]) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| attribute(name, value)).collect()
}

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    let value = AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) };
    KeyValue { key: key.to_owned(), value: Some(value), ..KeyValue::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_series_are_divided_into_messages_and_none_is_lost() {
        let mut sink = OtlpSink::new(Period { start: 1, now: 2 });
        let mut write = |family, count: u64| {
            let mut samples = |samples: &mut dyn Samples| {
                (0..count).try_for_each(|n| samples.sample(&[("n", &n.to_string())], n.into()))
            };
            sink.family(family, &mut samples).expect("the sink does not fail");
        };
        write(Family { name: "t_many", help: "Many", kind: Kind::Counter }, 5_000);
        write(Family { name: "t_size_bytes", help: "Size", kind: Kind::Gauge }, 1);
        let points = |metric: &Metric| match &metric.data {
            Some(Data::Sum(sum)) => sum.data_points.len(),
            Some(Data::Gauge(gauge)) => gauge.data_points.len(),
            _ => 0,
        };
        let found: Vec<Vec<usize>> =
            sink.messages.iter().map(|metrics| metrics.iter().map(points).collect()).collect();
        assert_eq!(found, [vec![2_000], vec![2_000], vec![1_000, 1]]);
        assert_eq!(sink.messages[2][1].unit, "By");
    }
}
