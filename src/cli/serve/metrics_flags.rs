//! Flags of metrics.

use crate::cli::{Failure, arguments::interval};
use clap::Args;
use std::time::Duration;
use tidegate_counts::DurationBounds;
use tidegate_operations::telemetry::{StatsdFormat, StatsdSettings, StatsdTransport};
use tidegate_service::{LimitCountSettings, LimitadorSettings, MeterSettings};

/// The figures counted, and their detail.
#[derive(Args)]
pub(super) struct MetricsFlags {
    /// Maximum number of limits, and of descriptor values, with series of their own; further ones share `other`.
    #[arg(long, value_name = "N", default_value_t = LimitCountSettings::default().series_max)]
    pub(super) metrics_series_max: usize,
    /// Percentage of a limit from which on admitted hits count as near_limit.
    #[arg(
        long, value_name = "PERCENT", default_value_t = LimitCountSettings::default().near_limit_percent,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    near_limit_percent: u8,
    /// Upper bounds of the buckets of tidegate_decision_duration_seconds, separated by commas; at most 31.
    #[arg(
        long, value_name = "DURATIONS", value_delimiter = ',',
        default_value = "10us,25us,50us,100us,250us,500us,1ms,2500us,5ms,10ms,25ms,50ms,100ms",
        value_parser = humantime::parse_duration
    )]
    metrics_duration_buckets: Vec<Duration>,
    /// Report hits under the metric names and labels of the reference server too; needs --compat reference.
    #[arg(long)]
    reference_metrics: bool,
    /// Statsd server to push metrics to; by default there is none.
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    statsd: Option<String>,
    /// Transport of statsd.
    #[arg(long, default_value = "udp", requires = "statsd")]
    statsd_transport: StatsdTransport,
    /// Dialect of statsd.
    #[arg(long, default_value = "statsd", requires = "statsd")]
    statsd_format: StatsdFormat,
    /// Time between pushes to statsd.
    #[arg(long, default_value = "10s", value_parser = interval, requires = "statsd")]
    statsd_interval: Duration,
    /// First part of the names in statsd, instead of `tidegate_`.
    #[arg(long, default_value = "tidegate", value_name = "TEXT", requires = "statsd")]
    statsd_prefix: String,
    /// Tags of every metric, key:value, separated by commas. In the dialect statsd they are at the end of names, as `.__key=value`.
    #[arg(long, value_name = "TAGS", value_delimiter = ',', value_parser = tag, requires = "statsd")]
    statsd_tags: Vec<(String, String)>,
}

fn host_and_port(text: &str) -> Result<String, String> {
    let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !host.contains('@') && is_port(port) => Ok(text.to_owned()),
        _ => Err("write host:port, for example 127.0.0.1:8125".to_owned()),
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    let is_text = |text: &str| !text.is_empty() && !text.contains(['|', '#', '@']);
    match text.split_once(':') {
        Some((key, value)) if is_text(key) && is_text(value) => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write key:value, for example env:prod".to_owned()),
    }
}

impl MetricsFlags {
    pub(super) fn statsd(&self) -> Option<StatsdSettings> {
        let address = self.statsd.clone()?;
        Some(StatsdSettings {
            address,
            format: self.statsd_format,
            interval: self.statsd_interval,
            prefix: self.statsd_prefix.clone(),
            tags: self.statsd_tags.clone(),
            transport: self.statsd_transport,
        })
    }

    pub(super) fn meters(
        &self,
        is_reference: bool,
        limitador: Option<LimitadorSettings>,
    ) -> Result<MeterSettings, Failure> {
        if self.reference_metrics && !is_reference {
            let message =
                "--reference-metrics needs --compat reference; add it, or remove --reference-metrics";
            return Err(Failure(message.to_owned()));
        }
        let bounds = DurationBounds::new(&*self.metrics_duration_buckets);
        Ok(MeterSettings {
            limits: LimitCountSettings {
                series_max: self.metrics_series_max,
                near_limit_percent: self.near_limit_percent,
            },
            bounds: bounds.map_err(|error| Failure(format!("--metrics-duration-buckets: {error}")))?,
            reference: self.reference_metrics,
            limitador,
        })
    }
}
