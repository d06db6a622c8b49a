//! Flags of metrics.

use super::Failure;
use crate::service::{DurationBounds, LimitCountSettings, MeterSettings};
use clap::Args;
use std::time::Duration;

/// What is counted, and how much of it.
#[derive(Args)]
pub(super) struct MetricsFlags {
    /// Maximum number of limits, and of descriptor values, with series of their own; further ones share `other`.
    #[arg(
        long,
        env = "TIDEGATE_METRICS_SERIES_MAX",
        value_name = "N",
        default_value_t = LimitCountSettings::default().series_max
    )]
    pub(super) metrics_series_max: usize,
    /// Percentage of a limit from which on admitted hits count as near_limit.
    #[arg(
        long,
        env = "TIDEGATE_NEAR_LIMIT_PERCENT",
        value_name = "PERCENT",
        default_value_t = LimitCountSettings::default().near_limit_percent,
        value_parser = clap::value_parser!(u8).range(0..=100)
    )]
    near_limit_percent: u8,
    /// Upper bounds of the buckets of tidegate_decision_duration_seconds, separated by commas; at most 31.
    #[arg(
        long,
        env = "TIDEGATE_METRICS_DURATION_BUCKETS",
        value_name = "DURATIONS",
        value_delimiter = ',',
        default_value = "10us,25us,50us,100us,250us,500us,1ms,2500us,5ms,10ms,25ms,50ms,100ms",
        value_parser = humantime::parse_duration
    )]
    metrics_duration_buckets: Vec<Duration>,
}

impl MetricsFlags {
    pub(super) fn meters(&self) -> Result<MeterSettings, Failure> {
        let bounds = DurationBounds::new(&*self.metrics_duration_buckets);
        Ok(MeterSettings {
            limits: LimitCountSettings {
                series_max: self.metrics_series_max,
                near_limit_percent: self.near_limit_percent,
            },
            bounds: bounds.map_err(|error| Failure(format!("--metrics-duration-buckets: {error}")))?,
        })
    }
}
