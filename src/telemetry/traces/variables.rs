//! The environment variables of OpenTelemetry that are read here. Its crates read the others: of the exporter (endpoint, headers,
//! timeout), of batches (`OTEL_BSP_…`) and of the resource.

use super::sampler::{Sampler, SamplerError};
use crate::{
    service::{Propagators, UnknownPropagator},
    transport::TlsClient,
};
use std::{error::Error, fmt, path::PathBuf};

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
    /// `OTEL_PROPAGATORS` names a format that is not known.
    #[error("OTEL_PROPAGATORS: {0}")]
    Propagators(#[from] UnknownPropagator),
    /// A file of certificates or keys cannot be used.
    #[error("cannot export traces to {endpoint}: {source}")]
    Tls {
        /// The collector.
        endpoint: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The exporter cannot be built.
    #[error("cannot export traces: {0}")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
}

/// The formats of trace contexts that the environment selects.
pub(super) fn propagators(variable: impl Fn(&str) -> Option<String>) -> Result<Propagators, TracesError> {
    match variable("OTEL_PROPAGATORS").filter(|names| !names.is_empty()) {
        None => Ok(Propagators::default()),
        Some(names) => Ok(names.parse()?),
    }
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
#[derive(PartialEq, Debug)]
pub(super) struct Variables {
    pub(super) protocol: Protocol,
    pub(super) endpoint: String,
    /// Certificates of a connection with TLS, which an endpoint with `https` has.
    pub(super) tls: Option<TlsClient>,
    pub(super) sampler: Sampler,
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
        let Some((_, endpoint)) = endpoint.filter(|_| !is_disabled) else { return Ok(None) };
        match set("OTEL_TRACES_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                let (name, remedy) = ("OTEL_TRACES_EXPORTER", "write otlp or none");
                return Err(TracesError::Unsupported { name, value: other.to_owned(), remedy });
            }
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
        let file = |traces, all| of_traces(traces, all).map(|(_, path)| PathBuf::from(path));
        let tls = endpoint.starts_with("https:").then(|| TlsClient {
            ca: file("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
            cert_and_key: file(
                "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            )
            .zip(file("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")),
            ..TlsClient::default()
        });
        let sampler = Self::sampler(set("OTEL_TRACES_SAMPLER"), set("OTEL_TRACES_SAMPLER_ARG"))?;
        Ok(Some(Self { protocol, endpoint, tls, sampler, has_service_name }))
    }

    fn sampler(name: Option<String>, argument: Option<String>) -> Result<Sampler, TracesError> {
        let Some(name) = name else { return Ok(Sampler::default()) };
        Sampler::new(&name, argument.as_deref()).map_err(|error| match error {
            SamplerError::Name => TracesError::Unsupported {
                name: "OTEL_TRACES_SAMPLER",
                value: name,
                remedy: "write always_on, always_off or traceidratio, or one of them after parentbased_",
            },
            SamplerError::Share => TracesError::Unsupported {
                name: "OTEL_TRACES_SAMPLER_ARG",
                value: argument.unwrap_or_default(),
                remedy: "write a share from 0 to 1",
            },
        })
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
            let (endpoint, sampler) = (endpoint.to_owned(), Sampler::default());
            Ok(Some(Variables { protocol, endpoint, tls: None, sampler, has_service_name }))
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
            ("OTEL_TRACES_SAMPLER", "jaeger_remote"),
        ] {
            let error = read(&[ENDPOINT, (name, value)]).expect_err(value);
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
        }
    }

    #[test]
    fn an_https_endpoint_has_the_certificates_of_the_environment() {
        let own = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4318"),
            ("OTEL_EXPORTER_OTLP_CERTIFICATE", "all.crt"),
            ("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", "traces.crt"),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "own.crt"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "own.key"),
        ];
        let tls = read(&own).expect("valid").expect("an endpoint").tls.expect("TLS");
        assert_eq!(tls.ca, Some("traces.crt".into()));
        assert_eq!(tls.cert_and_key, Some(("own.crt".into(), "own.key".into())));
    }

    #[test]
    fn an_argument_of_the_sampler_is_a_share() {
        let with = |argument| {
            read(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", argument)])
        };
        assert!(with("0.25").is_ok());
        let error = with("25 %").expect_err("no share");
        assert!(error.starts_with("OTEL_TRACES_SAMPLER_ARG=25 %: "), "{error}");
    }

    #[test]
    fn unknown_propagators_are_errors() {
        let read = |names: &str| propagators(|_| Some(names.to_owned()));
        assert_eq!(read("").ok(), Some(Propagators::default()));
        assert!(read("b3multi,b3").is_ok());
        let error = read("xray").expect_err("unknown").to_string();
        assert!(error.starts_with("OTEL_PROPAGATORS: `xray`"), "{error}");
    }
}
