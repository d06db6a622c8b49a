//! Metrics of decisions, and the trace context of calls.

#[cfg(feature = "metrics")]
use crate::decision::Decision;
#[cfg(feature = "metrics")]
use std::time::Duration;

/// Updates `tidegate_client_decisions_total` and `tidegate_client_seconds` of the crate `metrics`.
#[cfg(feature = "metrics")]
pub(crate) fn record(decision: &Decision, taken: Duration) {
    let (allowed, reason) = (if decision.allowed { "true" } else { "false" }, decision.reason.as_str());
    let error = decision.error.unwrap_or_default();
    metrics::counter!("tidegate_client_decisions_total", "allowed" => allowed, "reason" => reason, "error" => error)
        .increment(1);
    metrics::histogram!("tidegate_client_seconds", "reason" => reason).record(taken);
}

/// Writes the current OpenTelemetry context into the metadata of a call, in the format of the global propagator.
#[cfg(feature = "opentelemetry")]
pub(crate) fn inject(metadata: &mut tonic::metadata::MetadataMap) {
    struct Carrier<'m>(&'m mut tonic::metadata::MetadataMap);

    impl opentelemetry::propagation::Injector for Carrier<'_> {
        fn set(&mut self, key: &str, value: String) {
            use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
            // A propagator writes ASCII.
            if let (Ok(key), Ok(value)) =
                (AsciiMetadataKey::from_bytes(key.as_bytes()), AsciiMetadataValue::try_from(value))
            {
                self.0.insert(key, value);
            }
        }
    }

    opentelemetry::global::get_text_map_propagator(|propagator| propagator.inject(&mut Carrier(metadata)));
}
