//! Flags of metrics.

use crate::service::LimitCountSettings;
use clap::Args;

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
}

impl MetricsFlags {
    pub(super) fn limit_counts(&self) -> LimitCountSettings {
        LimitCountSettings {
            series_max: self.metrics_series_max,
            near_limit_percent: self.near_limit_percent,
        }
    }
}
