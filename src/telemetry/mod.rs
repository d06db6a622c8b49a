//! Logs, metrics and traces of the server.

mod decision_log;
mod exposition;
mod metrics;
mod tls_metrics;
mod traces;

pub use decision_log::{DecisionLog, DecisionLogError, DecisionLogSettings, Rotation, SampleRate, Target};
pub use exposition::MetricsFormat;
pub use metrics::{Metrics, Sources};
pub use traces::{Traces, TracesError};

use std::io::IsTerminal;
use tracing_subscriber::{
    filter::{ParseError, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

/// Format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum LogFormat {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Sends logs to standard error. `filter` is a level (`info`) or a list of `target=level`.
pub fn start_logging(format: LogFormat, filter: &str) -> Result<(), ParseError> {
    let filter: Targets = filter.parse()?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            let lines = lines.with_ansi(std::io::stderr().is_terminal()).with_target(false);
            registry.with(lines).init();
        }
        LogFormat::Json => registry.with(lines.json().flatten_event(true).with_current_span(false)).init(),
    }
    Ok(())
}
