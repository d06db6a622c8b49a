//! Samplers decide which calls have a span.

use crate::telemetry::collector::OtlpVariableError;
use opentelemetry::{TraceId, trace::SpanKind};
use opentelemetry_sdk::trace::{Sampler as SdkSampler, SamplingDecision, ShouldSample as _};
use tidegate_service::TraceContext;

/// Decides whether a call has a span.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Sampler {
    /// Whether the caller's decision applies if the call has a trace context.
    is_parent_based: bool,
    otherwise: Otherwise,
}

#[derive(Clone, PartialEq, Debug)]
enum Otherwise {
    Always,
    Never,
    /// This share of all traces, chosen by their id.
    Share(f64),
}

/// The variables of a sampler.
pub(super) const NAME: &str = "OTEL_TRACES_SAMPLER";
pub(super) const ARGUMENT: &str = "OTEL_TRACES_SAMPLER_ARG";

impl Default for Sampler {
    /// The caller decides; calls without a trace context have no span.
    fn default() -> Self {
        Self { is_parent_based: true, otherwise: Otherwise::Never }
    }
}

impl Sampler {
    /// The sampler with this OpenTelemetry name.
    pub(super) fn new(name: &str, argument: Option<&str>) -> Result<Self, OtlpVariableError> {
        let (is_parent_based, otherwise) = match name.strip_prefix("parentbased_") {
            Some(otherwise) => (true, otherwise),
            None => (false, name),
        };
        let otherwise = match otherwise {
            "always_on" => Otherwise::Always,
            "always_off" => Otherwise::Never,
            "traceidratio" => {
                let argument = argument.unwrap_or("1");
                let share = argument.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                let wrong = || OtlpVariableError::new(ARGUMENT, argument, "write a share from 0 to 1");
                Otherwise::Share(share.ok_or_else(wrong)?)
            }
            _ => {
                let remedy = "write always_on, always_off or traceidratio, or one of them after parentbased_";
                return Err(OtlpVariableError::new(NAME, name, remedy));
            }
        };
        Ok(Self { is_parent_based, otherwise })
    }

    /// The trace of the span of a call with this context. None if the call has no span. A call without context starts a trace with the id
    /// that `new_id` returns.
    pub(super) fn trace(
        &self,
        context: Option<&TraceContext>,
        new_id: impl FnOnce() -> TraceId,
    ) -> Option<TraceId> {
        let id = || context.map_or_else(new_id, |context| TraceId::from_bytes(context.trace_id));
        if let Some(context) = context.filter(|_| self.is_parent_based) {
            return context.is_sampled.then(id);
        }
        match self.otherwise {
            Otherwise::Always => Some(id()),
            Otherwise::Never => None,
            Otherwise::Share(share) => Some(id()).filter(|id| is_in_share(share, *id)),
        }
    }
}

/// Whether a trace is in the share, by the arithmetic that all SDKs share.
fn is_in_share(share: f64, id: TraceId) -> bool {
    let sampler = SdkSampler::TraceIdRatioBased(share);
    let result = sampler.should_sample(None, id, "", &SpanKind::Server, &[], &[]);
    result.decision == SamplingDecision::RecordAndSample
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether calls without a context, unsampled calls and sampled calls have spans.
    fn spans(name: &str, argument: Option<&str>) -> [bool; 3] {
        let sampler = Sampler::new(name, argument).expect("a known sampler");
        let context = |is_sampled| TraceContext { trace_id: [0xee; 16], span_id: [1; 8], is_sampled };
        let new = TraceId::from_bytes([0x11; 16]);
        let trace = |context: Option<TraceContext>| {
            let id = sampler.trace(context.as_ref(), || new);
            assert!(id.is_none_or(|id| id == context.map_or(new, |context| TraceId::from_bytes(context.trace_id))));
            id.is_some()
        };
        [trace(None), trace(Some(context(false))), trace(Some(context(true)))]
    }

    #[test]
    fn samplers_decide_as_their_names_say() {
        assert_eq!(spans("always_on", None), [true; 3]);
        assert_eq!(spans("always_off", None), [false; 3]);
        assert_eq!(spans("traceidratio", None), [true; 3], "all is the default");
        // 0x1111… is 1/15 of the range of ids, 0xeeee… is 14/15.
        assert_eq!(spans("traceidratio", Some("0.5")), [true, false, false]);
        assert_eq!(spans("parentbased_always_on", None), [true, false, true]);
        assert_eq!(spans("parentbased_always_off", None), [false, false, true]);
        assert_eq!(spans("parentbased_traceidratio", Some("0.5")), [true, false, true]);
        assert_eq!(spans("parentbased_traceidratio", Some("0.05")), [false, false, true]);
        assert_eq!(Sampler::new("parentbased_always_off", None), Ok(Sampler::default()));
    }

    #[test]
    fn settings_that_are_not_supported_are_errors() {
        let wrong = |name, argument| Sampler::new(name, argument).err().map(|error| error.name);
        for name in ["", "always", "parentbased_", "jaeger_remote", "xray"] {
            assert_eq!(wrong(name, None), Some(NAME.to_owned()), "{name}");
        }
        for share in ["", "x", "-0.1", "1.1", "NaN"] {
            assert_eq!(wrong("traceidratio", Some(share)), Some(ARGUMENT.to_owned()), "{share}");
        }
    }
}
