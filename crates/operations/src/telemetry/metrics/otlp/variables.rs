//! The environment variables of OpenTelemetry that configure the push of metrics.

use crate::telemetry::collector::{Environment, Export, OtlpVariableError, Protocol, Signal};
use percent_encoding::percent_decode_str;
use std::time::Duration;

/// Settings of a push by OTLP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpSettings {
    pub(super) export: Export,
    /// The endpoint, with the path of metrics if the protocol is HTTP.
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
}

const INTERVAL_DEFAULT: Duration = Duration::from_secs(60);
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

impl OtlpSettings {
    /// Reads the process's environment. None if it configures no push of metrics.
    pub fn from_env() -> Result<Option<Self>, OtlpVariableError> {
        Self::read(|name| std::env::var(name).ok())
    }

    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, OtlpVariableError> {
        let environment = Environment::new(Signal::Metrics, variable);
        let Some(export) = environment.export()? else { return Ok(None) };
        let temporality = environment
            .of_exporter("TEMPORALITY_PREFERENCE")
            .filter(|(_, value)| !value.eq_ignore_ascii_case("cumulative"));
        if let Some((name, value)) = temporality {
            return Err(OtlpVariableError::new(name, value, "write cumulative"));
        }
        let url = match export.is_own_endpoint || export.protocol == Protocol::Grpc {
            true => export.endpoint.clone(),
            false => format!("{}/v1/metrics", export.endpoint.trim_end_matches('/')),
        };
        let interval = "OTEL_METRIC_EXPORT_INTERVAL";
        let interval = environment.value(interval).map(|value| (interval.to_owned(), value));
        let timeout = environment.of_exporter("TIMEOUT");
        let headers = environment.of_exporter("HEADERS");
        Ok(Some(Self {
            export,
            url,
            headers: headers.map(self::headers).transpose()?.unwrap_or_default(),
            interval: interval.map(millis).transpose()?.unwrap_or(INTERVAL_DEFAULT),
            timeout: timeout.map(millis).transpose()?.unwrap_or(TIMEOUT_DEFAULT),
        }))
    }
}

fn millis((name, value): (String, String)) -> Result<Duration, OtlpVariableError> {
    match value.parse() {
        Ok(millis @ 1..) => Ok(Duration::from_millis(millis)),
        _ => Err(OtlpVariableError::new(name, value, "write a number of milliseconds above zero")),
    }
}

/// `name=value` pairs, separated by commas, with percent-encoded values as in W3C Baggage. A `%` without two digits after it stays.
fn headers((name, text): (String, String)) -> Result<Vec<(String, String)>, OtlpVariableError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pair = |pair: &str| {
        let (header, value) = pair.split_once('=')?;
        let (header, value) = (header.trim().to_ascii_lowercase(), percent_decode_str(value.trim()));
        let value = value.decode_utf8().ok()?.into_owned();
        let is_valid =
            http::HeaderName::try_from(&header).is_ok() && http::HeaderValue::try_from(&value).is_ok();
        is_valid.then_some((header, value))
    };
    let pairs: Option<Vec<_>> = pairs.map(pair).collect();
    pairs.ok_or_else(|| {
        let remedy = "write name=value pairs of HTTP headers, percent-encoded and separated by commas";
        // The value may contain secrets.
        OtlpVariableError::new(name, "…", remedy)
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

    const COLLECTOR: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318/");

    #[test]
    fn the_endpoint_of_all_signals_lacks_the_path_of_metrics() {
        let found = read(&[COLLECTOR]).expect("valid").expect("on");
        assert_eq!(found.url, "http://localhost:4318/v1/metrics");
        assert_eq!((found.interval, found.timeout), (INTERVAL_DEFAULT, TIMEOUT_DEFAULT));
        let own = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:4318/own");
        assert_eq!(read(&[COLLECTOR, own]).expect("valid").expect("on").url, own.1);
        let grpc = ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
        assert_eq!(read(&[COLLECTOR, grpc]).expect("valid").expect("on").url, COLLECTOR.1);
    }

    #[test]
    fn intervals_and_headers_are_those_of_the_environment() {
        let own = [
            COLLECTOR,
            ("OTEL_METRIC_EXPORT_INTERVAL", "500"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "7"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer x, tenant=a"),
        ];
        let found = read(&own).expect("valid").expect("on");
        assert_eq!((found.interval, found.timeout), (Duration::from_millis(500), Duration::from_millis(7)));
        let headers = [("authorization", "Bearer x"), ("tenant", "a")];
        assert_eq!(found.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    /// Headers in the form of the specification were refused.
    #[test]
    fn headers_are_percent_decoded() {
        let of = |text| read(&[COLLECTOR, ("OTEL_EXPORTER_OTLP_HEADERS", text)]);
        for (text, value) in [
            ("authorization=Bearer%20X", "Bearer X"),
            ("authorization=Basic%20YTpi%3D%3d%2C", "Basic YTpi==,"),
            ("authorization=100%", "100%"),
            ("authorization=a%zzb%2", "a%zzb%2"),
            ("authorization=%25%32%30", "%20"),
        ] {
            let found = of(text).expect("valid").expect("on").headers;
            assert_eq!(found, [("authorization".to_owned(), value.to_owned())], "{text}");
        }
        for refused in ["authorization=a%0Ab", "authorization=a%ff"] {
            let error = of(refused).expect_err(refused);
            assert!(error.contains("percent-encoded") && !error.contains("a%"), "{error}");
        }
    }

    #[test]
    fn values_that_are_not_supported_are_errors() {
        for (name, value) in [
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
