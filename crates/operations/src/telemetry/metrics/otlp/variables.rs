//! The environment variables of OpenTelemetry that configure the push of metrics.

use crate::telemetry::collector::{Environment, Export, OtlpVariableError, Protocol, Signal};
use std::time::Duration;

/// Settings of a push by OTLP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OtlpSettings {
    pub(super) export: Export,
    /// The endpoint, with the path of metrics if the protocol is HTTP.
    pub(super) url: String,
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
        Ok(Some(Self {
            export,
            url,
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
    fn intervals_are_those_of_the_environment() {
        let own = [COLLECTOR, ("OTEL_METRIC_EXPORT_INTERVAL", "500"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "7")];
        let found = read(&own).expect("valid").expect("on");
        assert_eq!((found.interval, found.timeout), (Duration::from_millis(500), Duration::from_millis(7)));
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
    }
}
