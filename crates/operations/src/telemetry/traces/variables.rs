//! The environment variables of OpenTelemetry that configure traces. OpenTelemetry's crates read the others: those of the exporter
//! (endpoint, headers, timeout) and of batches (`OTEL_BSP_…`).

use super::sampler::{ARGUMENT, NAME, Sampler};
use crate::telemetry::collector::{Environment, Export, OtlpVariableError, Signal};
use std::error::Error;
use tidegate_service::{Propagators, UnknownPropagator};

/// The environment configures traces in a way that is not supported.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// A value that is not supported.
    #[error(transparent)]
    Variable(#[from] OtlpVariableError),
    /// `OTEL_PROPAGATORS` contains an unknown format.
    #[error("OTEL_PROPAGATORS: {0}")]
    Propagators(#[from] UnknownPropagator),
    /// A file of certificates or keys cannot be used.
    #[error("cannot export traces to {endpoint}: {source}")]
    Tls {
        /// The collector, without user and password.
        endpoint: String,
        /// The cause.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The exporter cannot be built.
    #[error("cannot export traces: {0}")]
    Exporter(String),
}

/// The formats of trace contexts that the environment selects.
pub(super) fn propagators(variable: impl Fn(&str) -> Option<String>) -> Result<Propagators, TracesError> {
    match variable("OTEL_PROPAGATORS").filter(|names| !names.is_empty()) {
        None => Ok(Propagators::default()),
        Some(names) => Ok(names.parse()?),
    }
}

/// Settings of an export that is on.
#[derive(PartialEq, Debug)]
pub(super) struct Variables {
    pub(super) export: Export,
    pub(super) sampler: Sampler,
}

impl Variables {
    /// Reads the settings; none if traces are off.
    pub(super) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, TracesError> {
        let environment = Environment::new(Signal::Traces, variable);
        let Some(export) = environment.export()? else { return Ok(None) };
        let [name, argument] = [NAME, ARGUMENT].map(|name| environment.value(name));
        let sampler = name.map(|name| Sampler::new(&name, argument.as_deref()));
        Ok(Some(Self { export, sampler: sampler.transpose()?.unwrap_or_default() }))
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
    fn an_unknown_sampler_is_an_error() {
        let error = read(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "jaeger_remote")]).expect_err("unknown");
        assert!(error.starts_with("OTEL_TRACES_SAMPLER=jaeger_remote: "), "{error}");
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
