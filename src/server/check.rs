//! Reads what a start needs, without starting: certificates, tokens, and the variables of OpenTelemetry with the files that they name.

use super::{ServeError, TlsSettings, token_file};
use std::{path::Path, sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
use tidegate_operations::telemetry::{self, OtlpMetrics, Traces};
use tidegate_threads::runtime;
use tidegate_transport::{TlsCounts, TlsPort};

/// The errors of the ports' certificates, and of the file of tokens.
pub fn check_files(tls: &TlsSettings, tokens: Option<&Path>, clock: &dyn Clock) -> Vec<ServeError> {
    let now = Duration::from_nanos(clock.now().as_nanos());
    let ports = [("grpc", &tls.grpc), ("http", &tls.http)];
    let ports = ports.into_iter().filter_map(|(port, files)| Some((port, files.clone()?)));
    let errors = ports.filter_map(|(port, files)| {
        let loaded = TlsPort::load(port, files, &[], &Arc::<TlsCounts>::default(), now);
        loaded.err().map(|source| ServeError::Tls { port, source })
    });
    let tokens = tokens.and_then(|path| token_file::read(path).err().map(ServeError::Tokens));
    errors.chain(tokens).collect()
}

/// The errors of the exports of traces and metrics, and of the formats of trace contexts. Errors in the variables of the metrics are those of
/// [`OtlpSettings::from_env`](telemetry::OtlpSettings::from_env).
pub fn check_exports() -> Vec<ServeError> {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(source) => return vec![ServeError::Start { what: "a runtime", source }],
    };
    // Clients are made on it. They do not connect yet.
    let _entered = runtime.enter();
    let errors = [Traces::check().err(), telemetry::propagators().err()];
    let errors = errors.into_iter().flatten().map(ServeError::from);
    let metrics = OtlpMetrics::check().map_err(ServeError::push);
    errors.chain(metrics.err()).collect()
}
