//! Metrics as text, in the format of Prometheus or OpenMetrics. A page has tens of thousands of lines. It is written in pieces, and without
//! an allocation for each line.

use super::{
    family::{Family, Kind},
    sink::{Label, LimitLabels, Number, Samples, Sink, Value, WriteSamples},
};
use crate::telemetry::MetricsFormat;
use std::fmt::{self, Write};
use tidegate_counts::HistogramSums;

/// The last line of an OpenMetrics page.
const OPENMETRICS_END: &str = "# EOF\n";

/// A piece of a page is sent once it has this length.
pub(super) const PIECE_BYTES: usize = 64 << 10;

/// Room for the line after which a piece is long enough.
const LINE_BYTES: usize = 1 << 10;

/// Receives the pieces of a page. An error ends the page.
pub(super) type SendPiece<'p> = &'p mut dyn FnMut(String) -> fmt::Result;

/// Writes metrics as lines of text.
pub(super) struct TextSink<'p> {
    /// The next piece.
    text: String,
    send: SendPiece<'p>,
    format: MetricsFormat,
}

impl<'p> TextSink<'p> {
    /// An empty page.
    pub(super) fn new(format: MetricsFormat, send: SendPiece<'p>) -> Self {
        Self { text: String::new(), send, format }
    }

    /// Sends the last piece.
    pub(super) fn finish(mut self) -> fmt::Result {
        if self.format == MetricsFormat::OpenMetrics {
            self.text.push_str(OPENMETRICS_END);
        }
        (self.send)(self.text)
    }
}

impl Sink for TextSink<'_> {
    fn family(&mut self, Family { name, help, kind }: Family, write: WriteSamples<'_>) -> fmt::Result {
        let (kind_name, suffix) = match kind {
            Kind::Counter => ("counter", "_total"),
            Kind::PlainCounter => match self.format {
                MetricsFormat::Prometheus => ("counter", ""),
                // In OpenMetrics, the samples of a counter have a suffix.
                MetricsFormat::OpenMetrics => ("unknown", ""),
            },
            Kind::Gauge => ("gauge", ""),
            Kind::Histogram => ("histogram", ""),
        };
        // Only in the format of Prometheus does a counter's family have the suffix of its samples.
        let (family_suffix, escapes_quotes) = match self.format {
            MetricsFormat::Prometheus => (suffix, false),
            MetricsFormat::OpenMetrics => ("", true),
        };
        let Self { text, send, .. } = self;
        push_all(text, &["# HELP ", name, family_suffix, " "]);
        push_escaped(text, help, escapes_quotes);
        push_all(text, &["\n# TYPE ", name, family_suffix, " ", kind_name, "\n"]);
        write(&mut TextSamples { text, send: &mut **send, name, suffix })
    }
}

struct TextSamples<'s> {
    text: &'s mut String,
    send: SendPiece<'s>,
    /// Name of the family, without a suffix.
    name: &'s str,
    /// Suffix of its samples, unless it is a histogram.
    suffix: &'static str,
}

impl Samples for TextSamples<'_> {
    fn sample(&mut self, labels: &[Label<'_>], value: Value<'_>) -> fmt::Result {
        match value {
            Value::Number(value) => {
                self.start(self.suffix, None, labels);
                self.end(value)
            }
            Value::Histogram(histogram) => self.histogram(labels, histogram),
        }
    }

    fn sample_of_limit(
        &mut self,
        limit: LimitLabels<'_>,
        beside: &[Label<'_>],
        value: Number,
    ) -> fmt::Result {
        push_all(self.text, &[self.name, self.suffix, "{", limit.text]);
        for (name, value) in beside {
            push_label(self.text, ",", name, value);
        }
        self.text.push_str("} ");
        self.end(value)
    }
}

/// The labels of a limit, in the form of samples on a page.
pub(super) fn push_limit_labels(text: &mut String, domain: &str, limit: &str) {
    push_label(text, "", "domain", domain);
    push_label(text, ",", "limit", limit);
}

impl TextSamples<'_> {
    /// Writes a sample up to its value. `bound` is the bound of a histogram's bucket.
    fn start(&mut self, suffix: &str, bound: Option<&str>, labels: &[Label<'_>]) {
        push_all(self.text, &[self.name, suffix]);
        let bound = bound.map(|bound| ("le", bound));
        let mut separator = "{";
        for (name, value) in bound.iter().chain(labels) {
            push_label(self.text, separator, name, value);
            separator = ",";
        }
        self.text.push_str(if separator == "{" { " " } else { "} " });
    }

    /// Writes the value of a sample.
    fn end(&mut self, value: Number) -> fmt::Result {
        match value {
            Number::Integer(value) => push_integer(self.text, value),
            Number::Float(value) => push_float(self.text, value)?,
        }
        self.text.push('\n');
        if self.text.len() >= PIECE_BYTES {
            let next = String::with_capacity(PIECE_BYTES + LINE_BYTES);
            (self.send)(std::mem::replace(self.text, next))?;
        }
        Ok(())
    }

    fn histogram(&mut self, labels: &[Label<'_>], histogram: &HistogramSums) -> fmt::Result {
        self.start("_sum", None, labels);
        push_float(self.text, histogram.sum)?;
        self.text.push('\n');
        let mut count = 0;
        let mut bound_text = String::new();
        for (index, in_bucket) in histogram.buckets.iter().enumerate() {
            bound_text.clear();
            match histogram.bounds.get(index) {
                Some(bound) => push_float(&mut bound_text, *bound)?,
                None => bound_text.push_str("+Inf"),
            }
            count += in_bucket;
            self.start("_bucket", Some(&bound_text), labels);
            push_integer(self.text, count);
            self.text.push('\n');
        }
        self.start("_count", None, labels);
        push_integer(self.text, count);
        self.text.push('\n');
        Ok(())
    }
}

#[inline]
fn push_label(text: &mut String, separator: &str, name: &str, value: &str) {
    push_all(text, &[separator, name, "=\""]);
    push_escaped(text, value, true);
    text.push('"');
}

#[inline]
fn push_all(text: &mut String, parts: &[&str]) {
    parts.iter().for_each(|part| text.push_str(part));
}

/// Appends a text with escaped backslashes and line feeds. Quotes are also escaped if `escapes_quotes`.
#[inline]
fn push_escaped(text: &mut String, value: &str, escapes_quotes: bool) {
    // There are no branches and no early end, so that the compiler can process several bytes at once.
    let is_special = value.bytes().fold(false, |found, byte| found | matches!(byte, b'\\' | b'\n' | b'"'));
    if !is_special {
        text.push_str(value);
        return;
    }
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '"' if escapes_quotes => text.push_str("\\\""),
            other => text.push(other),
        }
    }
}

#[inline]
fn push_integer(text: &mut String, value: u64) {
    text.push_str(itoa::Buffer::new().format(value));
}

/// Appends a number with a decimal point, as OpenMetrics requires of the bounds of buckets.
fn push_float(text: &mut String, value: f64) -> fmt::Result {
    /// Every whole number below this is a double.
    const EXACT_MAX: f64 = (1_u64 << 53) as f64;
    if value.fract() == 0.0 && (0.0..EXACT_MAX).contains(&value) {
        push_integer(text, value as u64);
        text.push_str(".0");
        return Ok(());
    }
    write!(text, "{value}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(format: MetricsFormat) -> String {
        let mut text = String::new();
        let mut collect = |piece: String| text.write_str(&piece);
        let mut sink = TextSink::new(format, &mut collect);
        let histogram = HistogramSums { bounds: vec![0.000_01, 1.0], buckets: vec![2, 0, 3], sum: 7.25 };
        let families: [(_, _, _, &[Label<'_>], Option<Value<'_>>); 5] = [
            ("t_requests", "With code=\"x\"", Kind::Counter, &[("code", "a\"b\\c\nd é")], Some(6.into())),
            ("t_size", "Size", Kind::Gauge, &[], Some(u64::MAX.into())),
            ("t_age", "Line\nfeed", Kind::Gauge, &[], Some(1_700_000_000.5.into())),
            ("t_none", "None", Kind::Gauge, &[], None),
            ("t_took", "Took", Kind::Histogram, &[("k", "v")], Some((&histogram).into())),
        ];
        for (name, help, kind, labels, value) in families {
            let written = sink.family(Family { name, help, kind }, &mut |samples| {
                value.map_or(Ok(()), |value| samples.sample(labels, value))
            });
            written.expect("a text takes everything");
        }
        sink.finish().expect("a string takes all");
        text
    }

    const SAMPLES: [&str; 3] = [
        "t_requests_total{code=\"a\\\"b\\\\c\\nd é\"} 6\n",
        "t_size 18446744073709551615\n",
        "t_age 1700000000.5\n",
    ];
    const HISTOGRAM: &str = "# HELP t_took Took\n# TYPE t_took histogram\nt_took_sum{k=\"v\"} 7.25\n\
                             t_took_bucket{le=\"0.00001\",k=\"v\"} 2\nt_took_bucket{le=\"1.0\",k=\"v\"} 2\n\
                             t_took_bucket{le=\"+Inf\",k=\"v\"} 5\nt_took_count{k=\"v\"} 5\n";

    #[test]
    fn counters_keep_the_names_of_their_samples_in_the_format_of_prometheus() {
        let [requests, size, age] = SAMPLES;
        let expected = format!(
            "# HELP t_requests_total With code=\"x\"\n# TYPE t_requests_total counter\n{requests}\
             # HELP t_size Size\n# TYPE t_size gauge\n{size}# HELP t_age Line\\nfeed\n# TYPE t_age gauge\n{age}\
             # HELP t_none None\n# TYPE t_none gauge\n{HISTOGRAM}"
        );
        assert_eq!(page(MetricsFormat::Prometheus), expected);
    }

    /// Quotes in help texts were not escaped.
    #[test]
    fn openmetrics_has_families_without_suffix_escaped_help_and_an_end() {
        let [requests, size, age] = SAMPLES;
        let expected = format!(
            "# HELP t_requests With code=\\\"x\\\"\n# TYPE t_requests counter\n{requests}\
             # HELP t_size Size\n# TYPE t_size gauge\n{size}# HELP t_age Line\\nfeed\n# TYPE t_age gauge\n{age}\
             # HELP t_none None\n# TYPE t_none gauge\n{HISTOGRAM}# EOF\n"
        );
        assert_eq!(page(MetricsFormat::OpenMetrics), expected);
    }

    #[test]
    fn numbers_are_written_as_they_are_read() {
        for value in [0, 9, 10, 99, 100, 12_345_678_901, u64::MAX] {
            let mut text = String::new();
            push_integer(&mut text, value);
            assert_eq!(text, value.to_string());
        }
        for (value, expected) in
            [(0.0, "0.0"), (600.0, "600.0"), (1e-6, "0.000001"), (-1.5, "-1.5"), (f64::INFINITY, "inf")]
        {
            let mut text = String::new();
            push_float(&mut text, value).expect("a text takes everything");
            assert_eq!(text, expected);
        }
    }
}
