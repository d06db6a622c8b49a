//! Reads the files that a start needs, without starting: certificates and tokens.

use super::{ServeError, TlsSettings, token_file};
use std::{path::Path, sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
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
