//! The environment variables of OpenTelemetry that are read here. Its crates read the others: of the exporter (endpoint, headers,
//! timeout, certificate), of batches (`OTEL_BSP_…`) and of the resource.

use std::fmt;

/// The environment configures traces in a way that is not supported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A value that is not supported.
    #[error("{name}={value}: {remedy}")]
    Unsupported {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The supported values.
        remedy: &'static str,
    },
    /// The exporter cannot be built.
    #[error("cannot export traces: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// A transport of OTLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        })
    }
}

/// Settings of an export that is on.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Variables {
    pub(super) protocol: Protocol,
    pub(super) endpoint: String,
    /// Whether the environment names the service.
    pub(super) has_service_name: bool,
}

impl Variables {
    /// Reads the settings; none if traces are off. An empty variable is one that is not set.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TracesError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let of_traces = |traces: &'static str, all: &'static str| {
            set(traces).map(|value| (traces, value)).or_else(|| set(all).map(|value| (all, value)))
        };
        let endpoint = of_traces("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let is_disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some((name, endpoint)) = endpoint.filter(|_| !is_disabled) else { return Ok(None) };
        match set("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let (name, remedy) = ("OTEL_TRACES_EXPORTER", "write otlp or none");
                return Err(TracesError::Unsupported { name, value: other.to_owned(), remedy });
            }
        }
        if endpoint.starts_with("https:") {
            let remedy =
                "TLS to the collector is not supported; run a collector on this machine, and write http://";
            return Err(TracesError::Unsupported { name, value: endpoint, remedy });
        }
        let protocol = match of_traces("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") {
            None => Protocol::Http,
            Some((_, value)) if value == "http/protobuf" => Protocol::Http,
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            Some((name, value)) => {
                return Err(TracesError::Unsupported { name, value, remedy: "write grpc or http/protobuf" });
            }
        };
        let has_service_name = set("OTEL_SERVICE_NAME").is_some()
            || set("OTEL_RESOURCE_ATTRIBUTES")
                .is_some_and(|text| text.split(',').any(|pair| pair.trim().starts_with("service.name=")));
        Ok(Some(Self { protocol, endpoint, has_service_name }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<Variables>, String> {
        let value =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Variables::read(value).map_err(|error| error.to_string())
    }

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");

    #[test]
    fn without_an_endpoint_there_are_no_traces() {
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        assert_eq!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")]), Ok(None));
        assert_eq!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
    }

    #[test]
    fn variables_of_traces_precede_those_of_all_signals() {
        let expected = |protocol, endpoint: &str, has_service_name| {
            Ok(Some(Variables { protocol, endpoint: endpoint.to_owned(), has_service_name }))
        };
        assert_eq!(read(&[ENDPOINT]), expected(Protocol::Http, ENDPOINT.1, false));
        let own = [
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
            ("OTEL_RESOURCE_ATTRIBUTES", "zone=b, service.name=limits"),
        ];
        assert_eq!(read(&own), expected(Protocol::Grpc, "http://traces:4317", true));
    }

    #[test]
    fn values_that_are_not_supported_are_errors() {
        for (name, value) in [
            ("OTEL_TRACES_EXPORTER", "zipkin"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector:4317"),
        ] {
            let error = read(&[ENDPOINT, (name, value)]).expect_err(value);
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
        }
    }
}
