//! Logs, metrics and traces of the server.

mod collector;
mod decision_log;
mod exposition;
mod logging;
mod metrics;
mod traces;

pub use collector::OtlpVariableError;
pub use decision_log::{
    DecisionLog, DecisionLogError, DecisionLogSettings, ResetRecord, Rotation, RulesText, SampleRate, Target,
};
pub(crate) use decision_log::{
    DescriptorRecord, Record, RecordQueue, decode_records, encode_record, record_bytes_max, value_hash,
};
pub use exposition::MetricsFormat;
pub use logging::{LogFormat, LogLevelChange, LogLevelError, set_log_level, start_logging, switch_log_level};
pub use metrics::{
    ConnectionSources, Metrics, OtlpMetrics, OtlpSettings, Sources, Statsd, StatsdFormat, StatsdSettings,
    resident_bytes,
};
pub use traces::{Traces, TracesError, propagators};
