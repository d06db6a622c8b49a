//! The report of a run, as text or JSON.

use crate::{hold::HoldFigures, load::Measured};
use serde::{Serialize, Serializer};
use std::{collections::BTreeMap, fmt};

/// Results of a run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Address of the server.
    pub target: String,
    /// Description of the load.
    pub load: String,
    /// Length of the measurement.
    pub seconds: f64,
    /// Measured requests, with or without a verdict.
    pub requests: u64,
    /// Decided requests per second.
    pub per_second: f64,
    /// Admitted requests.
    pub ok: u64,
    /// Denied requests.
    pub over_limit: u64,
    /// Requests without a verdict.
    pub errors: u64,
    /// Whether a limit applied to the requests. Absent if that is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limited: Option<bool>,
    /// Errors by their kind.
    pub errors_by_kind: BTreeMap<String, u64>,
    /// Number of connections that ended and were replaced.
    pub reconnects: u64,
    /// Held requests. Absent without `--hold`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HoldFigures>,
    /// Latencies of the decided requests, by name. A latency is the time from the intended time of the request to its response.
    #[serde(serialize_with = "as_map")]
    pub latency_us: [(&'static str, f64); LATENCIES.len()],
    /// CPU time of the server per request, in microseconds. Null without `--pid`.
    pub server_cpu_us_per_request: Option<f64>,
}

/// The latencies of a report: the mean, and the latencies that so many per cent of the requests did not exceed.
const LATENCIES: [(&str, Option<f64>); 7] = [
    ("mean", None),
    ("p50", Some(50.0)),
    ("p90", Some(90.0)),
    ("p99", Some(99.0)),
    ("p99.9", Some(99.9)),
    ("p99.99", Some(99.99)),
    ("max", Some(100.0)),
];

fn as_map<S: Serializer>(latencies: &[(&str, f64)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(latencies.iter().copied())
}

impl Report {
    /// The report of a run. `limited`: whether a limit applied to the requests, if known.
    pub fn new(target: String, load: String, measured: &Measured, limited: Option<bool>) -> Self {
        let tally = &measured.tally;
        let seconds = measured.nanos as f64 / 1e9;
        let requests = tally.finished();
        Self {
            target,
            load,
            seconds: rounded(seconds),
            requests,
            per_second: if seconds > 0.0 { (tally.decided() as f64 / seconds).round() } else { 0.0 },
            ok: tally.ok,
            over_limit: tally.over_limit,
            errors: tally.failed(),
            limited,
            errors_by_kind: tally.failures.iter().map(|(kind, &count)| (kind.to_string(), count)).collect(),
            reconnects: measured.reconnects,
            held: measured.held,
            latency_us: LATENCIES.map(|(name, percent)| {
                let latency = percent.map_or_else(|| tally.mean_us(), |percent| tally.percentile_us(percent));
                (name, rounded(latency))
            }),
            server_cpu_us_per_request: measured
                .server_cpu_nanos
                .filter(|_| requests > 0)
                .map(|nanos| rounded(nanos as f64 / 1e3 / requests as f64)),
        }
    }
}

/// Rounds to three decimals.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows = Vec::new();
        let mut row = |name: &str, value: String| rows.push((name.to_owned(), value));
        let share = |count: u64| format!("{:.1} %", count as f64 * 100.0 / self.requests.max(1) as f64);
        row("target", self.target.clone());
        row("load", self.load.clone());
        row("measured", format!("{} requests in {:.2} s", grouped(self.requests), self.seconds));
        row("rate", format!("{}/s", grouped(self.per_second as u64)));
        row("OK", format!("{} ({})", grouped(self.ok), share(self.ok)));
        row("OVER_LIMIT", format!("{} ({})", grouped(self.over_limit), share(self.over_limit)));
        row("errors", format!("{} ({})", grouped(self.errors), share(self.errors)));
        for (kind, &count) in &self.errors_by_kind {
            row(&format!("  {kind}"), grouped(count));
        }
        if self.reconnects > 0 {
            row("reconnects", grouped(self.reconnects));
        }
        if let Some(HoldFigures { ended, lost, most }) = self.held {
            row("held at most", grouped(most));
            row("ends", format!("{} ({} lost)", grouped(ended), grouped(lost)));
        }
        if let Some(cpu) = self.server_cpu_us_per_request {
            row("server CPU", format!("{cpu:.2} µs per request"));
        }
        if self.ok + self.over_limit > 0 {
            for (index, (name, value)) in self.latency_us.into_iter().enumerate() {
                row(&format!("{:7} {name}", if index == 0 { "latency" } else { "" }), duration(value));
            }
        }
        let names = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
        rows.iter().try_for_each(|(name, value)| writeln!(f, "{name:names$}  {value}"))
    }
}

/// Formats microseconds with a suitable unit.
pub fn duration(microseconds: f64) -> String {
    match microseconds {
        1e6.. => format!("{:.2} s", microseconds / 1e6),
        1e3.. => format!("{:.2} ms", microseconds / 1e3),
        _ => format!("{microseconds:.1} µs"),
    }
}

/// Formats a number with its digits in groups of three.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outcome::*, tally::Tally};

    fn report() -> Report {
        let mut tally = Tally::new();
        for _ in 0..1_500 {
            tally.record(Outcome::Ok, 250_000);
        }
        for _ in 0..500 {
            tally.record(Outcome::OverLimit, 2_500_000);
        }
        tally.fail(Failure::Status(14), 3);
        let measured = Measured {
            tally,
            nanos: 2_000_000_000,
            reconnects: 0,
            held: None,
            server_cpu_nanos: Some(20_030_000),
            ended_by: None,
        };
        Report::new("127.0.0.1:8081".to_owned(), "4 connections".to_owned(), &measured, Some(true))
    }

    #[test]
    fn the_rate_is_that_of_the_decided_and_errors_are_named() {
        let json = serde_json::to_value(report()).expect("a report is JSON");
        assert_eq!(json["per_second"], 1_000.0);
        assert_eq!(
            (&json["ok"], &json["over_limit"], &json["errors"]),
            (&1_500.into(), &500.into(), &3.into())
        );
        assert_eq!(json["errors_by_kind"]["grpc-status 14 UNAVAILABLE"], 3);
        assert_eq!(json["server_cpu_us_per_request"], 10.0);
        let p99_9 = json["latency_us"]["p99.9"].as_f64().expect("a number");
        assert!((p99_9 / 2_500.0 - 1.0).abs() < 0.001, "{p99_9}");
    }

    #[test]
    fn the_text_has_the_same_figures() {
        let table = report().to_string();
        for line in
            ["2,003 requests in 2.00 s", "1,000/s", "500 (25.0 %)", "UNAVAILABLE", "10.00 µs", "2.50 ms"]
        {
            assert!(table.contains(line), "{line}\n{table}");
        }
    }

    #[test]
    fn numbers_are_grouped_and_durations_read_well() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_000), grouped(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        assert_eq!(
            [duration(12.34), duration(1_500.0), duration(2_000_000.0)],
            ["12.3 µs", "1.50 ms", "2.00 s"]
        );
    }
}
