//! Logs, metrics and traces of the server.

mod build;
mod collector;
mod decision_log;
mod exposition;
mod log_filter;
mod logging;
mod metrics;
mod notices;
mod traces;

pub use build::Build;
pub use collector::OtlpVariableError;
pub use decision_log::{
    DecisionLog, DecisionLogError, DecisionLogSettings, ResetRecord, Rotation, RulesText, SampleRate, Target,
};
pub(crate) use decision_log::{
    DescriptorRecord, Record, RecordQueue, cancellation_bytes_max, decode_records, encode_cancellation,
    encode_record, record_bytes_max, sample_hash, sample_hash_of, value_hash,
};
pub use exposition::MetricsFormat;
pub use log_filter::LogFilterError;
pub use logging::{LogFormat, LogLevelChange, LogLevelError, set_log_level, start_logging, switch_log_level};
pub use metrics::{
    LAST_PUSH_TIMEOUT, Metrics, OtlpMetrics, OtlpSettings, Sources, Statsd, StatsdFormat, StatsdSettings,
    StatsdTransport, resident_bytes,
};
pub use notices::{Notice, Notices};
pub use traces::{Traces, TracesError, propagators};
