//! The variables of traces, as those of OpenTelemetry.

use crate::cli::{Failure, serve::settings::Environment};
use std::collections::BTreeMap;

impl Environment<'_> {
    /// Variables of OpenTelemetry that follow from them, less those already set.
    pub(super) fn open_telemetry(&self) -> Result<BTreeMap<&'static str, String>, Failure> {
        let mut derived = BTreeMap::new();
        if self.text("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
            return Ok(derived);
        }
        // The endpoint serves traces; metrics are read over HTTP, or pushed to statsd.
        derived.insert("OTEL_METRICS_EXPORTER", "none".to_owned());
        if self.is_on("TRACING_ENABLED")? {
            let name = self.text("TRACING_SERVICE_NAME").unwrap_or("RateLimit");
            derived.insert("OTEL_SERVICE_NAME", name.to_owned());
            let attributes = [
                ("service.namespace", self.text("TRACING_SERVICE_NAMESPACE")),
                ("service.instance.id", self.text("TRACING_SERVICE_INSTANCE_ID")),
            ];
            let attributes =
                attributes.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
            let attributes: Vec<String> = attributes.collect();
            if !attributes.is_empty() {
                derived.insert("OTEL_RESOURCE_ATTRIBUTES", attributes.join(","));
            }
            let protocol = match self.text("TRACING_EXPORTER_PROTOCOL").unwrap_or("http") {
                "http" => "http/protobuf",
                "grpc" => "grpc",
                _ => return Err(self.wrong("TRACING_EXPORTER_PROTOCOL", "http or grpc")),
            };
            derived.insert("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned());
            let rate = self.text("TRACING_SAMPLING_RATE").unwrap_or("1");
            let rate = rate.parse::<f64>().ok().filter(|rate| rate.is_finite());
            let rate = rate.ok_or_else(|| self.wrong("TRACING_SAMPLING_RATE", "a number from 0 to 1"))?;
            // Envoy sends B3 headers where it traces to Zipkin. The last valid format applies.
            derived.insert("OTEL_PROPAGATORS", "b3,b3multi,tracecontext".to_owned());
            derived.insert("OTEL_TRACES_SAMPLER", "parentbased_traceidratio".to_owned());
            derived.insert("OTEL_TRACES_SAMPLER_ARG", rate.clamp(0.0, 1.0).to_string());
        } else {
            derived.insert("OTEL_TRACES_EXPORTER", "none".to_owned());
        }
        derived.retain(|name, _| self.text(name).is_none());
        Ok(derived)
    }
}
