//! Traces: a span for each decision on a sampled call, exported by OTLP.
//!
//! By default the caller's trace context decides: a call that is not sampled, or not traced, has no span. Spans are put in a bounded queue,
//! and a thread exports them in batches. A full queue drops spans and delays no decision. The settings are the standard environment
//! variables of OpenTelemetry.

mod exporter;
mod sampler;
mod variables;

pub use variables::TracesError;

use crate::telemetry::collector::resource;
use exporter::Reported;
use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId,
    trace::{SpanContext, SpanKind, Status as SpanStatus, TraceState},
};
use opentelemetry_sdk::trace::{
    BatchConfig, BatchSpanProcessor, IdGenerator as _, RandomIdGenerator, SpanData, SpanProcessor as _,
};
use sampler::Sampler;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tidegate_core::limit::{Code, Decision, Status, Timestamp};
use tidegate_service::{DecisionReader, Event, Propagators, TraceContext};
use tidegate_shared::without_userinfo;
use variables::Variables;

/// The name of a span: the method, as the conventions for gRPC require.
const SPAN_NAME: &str = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Exports a span for each decision on a sampled call.
#[derive(Clone)]
pub struct Traces(Arc<Inner>);

struct Inner {
    processor: BatchSpanProcessor,
    ids: RandomIdGenerator,
    sampler: Sampler,
    scope: InstrumentationScope,
}

impl Traces {
    /// Starts the export that the environment configures. None without an endpoint. Requires a tokio runtime that runs until
    /// [`Self::finish`] has completed.
    pub fn start() -> Result<Option<Self>, TracesError> {
        let Some(variables) = Variables::read(|name| std::env::var(name).ok())? else { return Ok(None) };
        let Variables { export, sampler } = variables;
        let exporter = Reported::new(&export)?;
        let mut processor = BatchSpanProcessor::new(exporter, BatchConfig::default());
        processor.set_resource(&resource(&export));
        tracing::info!(endpoint = without_userinfo(&export.endpoint), protocol = %export.protocol, "exporting traces");
        let scope = InstrumentationScope::builder("tidegate").with_version(env!("CARGO_PKG_VERSION")).build();
        let ids = RandomIdGenerator::default();
        Ok(Some(Self(Arc::new(Inner { processor, ids, sampler, scope }))))
    }

    /// Returns the error that would keep an export from starting. Requires a tokio runtime, as a start does.
    pub fn check() -> Result<(), TracesError> {
        match Variables::read(|name| std::env::var(name).ok())? {
            None => Ok(()),
            Some(Variables { export, .. }) => Reported::new(&export).map(drop),
        }
    }

    /// Exports the queued spans, for at most `timeout`.
    pub async fn finish(self, timeout: Duration) {
        // Waits for a thread that needs the runtime itself.
        let shutdown = tokio::task::spawn_blocking(move || self.0.processor.shutdown_with_timeout(timeout));
        match shutdown.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not exported"),
            Err(error) => tracing::warn!(%error, "the last spans were not exported"),
        }
    }
}

/// The formats of trace contexts that the environment selects, for traces and for the decision log.
pub fn propagators() -> Result<Propagators, TracesError> {
    variables::propagators(|name| std::env::var(name).ok())
}

impl DecisionReader for Traces {
    fn read(&self, event: &Event<'_, '_, '_>) {
        let Inner { processor, ids, sampler, scope } = &*self.0;
        let parent = event.origin.trace;
        if let Some(trace) = sampler.trace(parent.as_ref(), || ids.new_trace_id()) {
            let end = event.received.saturating_add(event.elapsed());
            processor.on_end(SpanData {
                instrumentation_scope: scope.clone(),
                ..span(trace, parent, ids.new_span_id(), (event.received, end), event)
            });
        }
    }
}

fn span(
    trace: TraceId,
    parent: Option<TraceContext>,
    id: SpanId,
    (start, end): (Timestamp, Timestamp),
    event: &Event<'_, '_, '_>,
) -> SpanData {
    SpanData {
        span_context: SpanContext::new(trace, id, TraceFlags::SAMPLED, false, TraceState::NONE),
        parent_span_id: parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.span_id)),
        parent_span_is_remote: parent.is_some(),
        span_kind: SpanKind::Server,
        name: SPAN_NAME.into(),
        start_time: system_time(start),
        end_time: system_time(end),
        attributes: attributes(event.request.domain(), event.decision),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: SpanStatus::Unset,
        instrumentation_scope: InstrumentationScope::default(),
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(time.as_nanos())
}

fn attributes(domain: &str, decision: &Decision<'_>) -> Vec<KeyValue> {
    let code = match decision.code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    };
    let mut attributes = vec![
        KeyValue::new("rpc.system", "grpc"),
        KeyValue::new("rpc.service", "envoy.service.ratelimit.v3.RateLimitService"),
        KeyValue::new("rpc.method", "ShouldRateLimit"),
        KeyValue::new("rpc.grpc.status_code", 0),
        KeyValue::new("tidegate.domain", domain.to_owned()),
        KeyValue::new("tidegate.code", code),
    ];
    if let Some((status, limit)) = decisive(decision) {
        attributes.push(KeyValue::new("tidegate.limit", limit));
        attributes.push(KeyValue::new("tidegate.remaining", i64::from(status.remaining)));
    }
    attributes
}

/// The status that decided, with the name of its limit: the first status over its limit, or else the status with the least remaining. None
/// if no limit applied.
fn decisive<'d, 'r>(decision: &'d Decision<'r>) -> Option<(&'d Status<'r>, String)> {
    let limited = || decision.statuses.iter().filter(|status| status.limit.is_some());
    let over = limited().find(|status| status.code == Code::OverLimit);
    let status = over.or_else(|| limited().min_by_key(|status| status.remaining))?;
    let name = status.limit.map_or("", |limit| limit.name);
    let path = status.rule.map_or("", |rule| &rule.path);
    Some((status, if name.is_empty() { path } else { name }.to_owned()))
}
