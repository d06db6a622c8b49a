//! Threads that push metrics.

use super::{ServeError, Settings};
use std::sync::Arc;
use tidegate_core::clock::Clock;
use tidegate_operations::telemetry::{Metrics, OtlpMetrics, Statsd};

/// The running pushes.
pub(super) struct Pushes {
    statsd: Option<Statsd>,
    otlp: Option<OtlpMetrics>,
}

impl Pushes {
    /// Starts those that the settings name.
    pub(super) fn start(
        settings: &Settings,
        metrics: &Arc<Metrics>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ServeError> {
        let statsd = settings.statsd.clone().map(|settings| Statsd::start(settings, Arc::clone(metrics)));
        let otlp = settings.otlp_metrics.clone();
        let otlp = otlp.map(|settings| OtlpMetrics::start(settings, Arc::clone(metrics), clock));
        Ok(Self { statsd: statsd.transpose()?, otlp: otlp.transpose().map_err(ServeError::push)? })
    }

    /// Pushes once more, and ends the threads.
    pub(super) fn stop(self) {
        if let Some(statsd) = self.statsd {
            statsd.stop();
        }
        if let Some(otlp) = self.otlp {
            otlp.stop();
        }
    }
}
