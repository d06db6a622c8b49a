//! The environment variables of OpenTelemetry that configure the push of metrics. Its crates read those of the resource.

use crate::transport::TlsClient;
use std::{fmt, path::PathBuf, time::Duration};

/// The environment configures metrics in a way that is not supported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}={value}: {remedy}")]
pub struct OtlpVariableError {
    /// The variable.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// The supported values.
    pub remedy: &'static str,
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

/// Settings of a push by OTLP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpSettings {
    pub(super) protocol: Protocol,
    /// The URL, with the path of metrics where the protocol is HTTP.
    pub(super) endpoint: String,
    /// Certificates of a connection with TLS, which an endpoint with `https` has.
    pub(super) tls: Option<TlsClient>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    /// Whether the environment names the service.
    pub(super) has_service_name: bool,
}

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const METRICS_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
const INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

impl OtlpSettings {
    /// Reads the process's environment; none if it configures no push of metrics.
    pub fn from_env() -> Result<Option<Self>, OtlpVariableError> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads the settings. An empty variable is one that is not set.
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpVariableError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let either = |own: &'static str, all: &'static str| {
            set(own).map(|value| (own, value)).or_else(|| set(all).map(|value| (all, value)))
        };
        let unsupported = |name, value, remedy| Err(OtlpVariableError { name, value, remedy });
        let is_disabled = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some((name, endpoint)) = either(METRICS_ENDPOINT, ENDPOINT).filter(|_| !is_disabled) else {
            return Ok(None);
        };
        match set("OTEL_METRICS_EXPORTER").as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => {
                return unsupported("OTEL_METRICS_EXPORTER", other.to_owned(), "write otlp or none");
            }
        }
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            return unsupported(name, endpoint, "write http://host:port or https://host:port");
        }
        let protocol = match either("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL") {
            None => Protocol::Http,
            Some((_, value)) if value == "http/protobuf" => Protocol::Http,
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            Some((name, value)) => return unsupported(name, value, "write grpc or http/protobuf"),
        };
        let temporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE";
        if let Some(value) = set(temporality).filter(|value| !value.eq_ignore_ascii_case("cumulative")) {
            return unsupported(temporality, value, "write cumulative");
        }
        let millis = |(name, value): (&'static str, String)| match value.parse() {
            Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
            _ => Err(OtlpVariableError { name, value, remedy: "write a number of milliseconds above zero" }),
        };
        let interval = "OTEL_METRIC_EXPORT_INTERVAL";
        let interval = set(interval).map(|value| millis((interval, value))).transpose()?;
        let timeout = either("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT");
        let headers = either("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS");
        let has_service_name = set("OTEL_SERVICE_NAME").is_some()
            || set("OTEL_RESOURCE_ATTRIBUTES")
                .is_some_and(|text| text.split(',').any(|pair| pair.trim().starts_with("service.name=")));
        let file = |own, all| either(own, all).map(|(_, path)| PathBuf::from(path));
        let tls = endpoint.starts_with("https:").then(|| TlsClient {
            ca: file("OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE", "OTEL_EXPORTER_OTLP_CERTIFICATE"),
            cert_and_key: file(
                "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE",
                "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            )
            .zip(file("OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY", "OTEL_EXPORTER_OTLP_CLIENT_KEY")),
            ..TlsClient::default()
        });
        let has_path = name == METRICS_ENDPOINT || protocol == Protocol::Grpc;
        Ok(Some(Self {
            protocol,
            endpoint: match has_path {
                true => endpoint,
                false => format!("{}/v1/metrics", endpoint.trim_end_matches('/')),
            },
            tls,
            headers: headers.map(self::headers).transpose()?.unwrap_or_default(),
            interval: interval.unwrap_or(INTERVAL_DEFAULT),
            timeout: timeout.map(millis).transpose()?.unwrap_or(TIMEOUT_DEFAULT),
            has_service_name,
        }))
    }
}

/// `name=value` pairs, separated by commas.
fn headers((name, text): (&'static str, String)) -> Result<Vec<(String, String)>, OtlpVariableError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pair = |pair: &str| {
        let (header, value) = pair.split_once('=')?;
        let (header, value) = (header.trim().to_ascii_lowercase(), value.trim());
        let is_valid =
            http::HeaderName::try_from(&header).is_ok() && http::HeaderValue::try_from(value).is_ok();
        (is_valid && !value.contains('%')).then(|| (header, value.to_owned()))
    };
    let pairs: Option<Vec<_>> = pairs.map(pair).collect();
    pairs.ok_or_else(|| OtlpVariableError {
        name,
        // It may have secrets.
        value: "…".to_owned(),
        remedy: "write name=value pairs of HTTP headers, separated by commas and not percent-encoded",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(set: &[(&str, &str)]) -> Result<Option<OtlpSettings>, String> {
        let value =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        OtlpSettings::read(value).map_err(|error| error.to_string())
    }

    const COLLECTOR: (&str, &str) = (ENDPOINT, "http://localhost:4318/");

    #[test]
    fn without_an_endpoint_nothing_is_pushed() {
        for set in [
            &[][..],
            &[(ENDPOINT, "")],
            &[COLLECTOR, ("OTEL_SDK_DISABLED", "true")],
            &[COLLECTOR, ("OTEL_METRICS_EXPORTER", "none")],
        ] {
            assert_eq!(read(set), Ok(None), "{set:?}");
        }
    }

    #[test]
    fn variables_of_metrics_precede_those_of_all_signals() {
        let found = read(&[COLLECTOR]).expect("valid").expect("on");
        assert_eq!((found.protocol, &*found.endpoint), (Protocol::Http, "http://localhost:4318/v1/metrics"));
        assert_eq!((found.interval, found.timeout), (INTERVAL_DEFAULT, TIMEOUT_DEFAULT));
        let own = [
            COLLECTOR,
            (METRICS_ENDPOINT, "http://metrics:4317"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "grpc"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer x, tenant=a"),
            ("OTEL_SERVICE_NAME", "limits"),
        ];
        let expected = OtlpSettings {
            protocol: Protocol::Grpc,
            endpoint: "http://metrics:4317".into(),
            tls: None,
            headers: vec![("authorization".into(), "Bearer x".into()), ("tenant".into(), "a".into())],
            interval: Duration::from_millis(500),
            timeout: Duration::from_millis(7),
            has_service_name: true,
        };
        assert_eq!(read(&own), Ok(Some(expected)));
    }

    #[test]
    fn values_that_are_not_supported_are_errors() {
        for (name, value) in [
            ("OTEL_METRICS_EXPORTER", "prometheus"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            (METRICS_ENDPOINT, "collector:4317"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta"),
        ] {
            let error = read(&[COLLECTOR, (name, value)]).expect_err(value);
            assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
        }
        let error = read(&[COLLECTOR, ("OTEL_EXPORTER_OTLP_HEADERS", "secret")]).expect_err("no pair");
        assert!(!error.contains("secret"), "{error}");
    }
}
