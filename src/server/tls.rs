//! TLS of the ports: certificates that are read again when their files change or on request, and the thread of handshakes.

use super::{
    ServeError,
    handshakes::{HandshakeBounds, Handshakes, Ready},
};
use std::{sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
use tidegate_counts::Label;
use tidegate_operations::config::{
    ReloadRequests,
    watch::{LastError, Wake, Watch, WatchSettings, WatchThread},
};
use tidegate_transport::{
    Accepted, H2, HTTP_1_1, HandshakeResult, Listener, Peer, TlsCounts, TlsFiles, TlsFilesError, TlsPort,
};

/// TLS of the ports.
#[derive(Clone, Debug)]
pub struct TlsSettings {
    /// The gRPC port's, if it has TLS.
    pub grpc: Option<TlsFiles>,
    /// The HTTP port's, if it has TLS.
    pub http: Option<TlsFiles>,
    /// Time from the start of a connection to the end of its handshake.
    pub handshake_timeout: Duration,
    /// Handshakes at once; beyond it the oldest is ended.
    pub handshakes_max: usize,
    /// Settings of the watch for changes of the files.
    pub watch: WatchSettings,
}

impl Default for TlsSettings {
    /// No TLS.
    fn default() -> Self {
        let (handshake_timeout, handshakes_max) = (Duration::from_secs(10), 1_000);
        Self { grpc: None, http: None, handshake_timeout, handshakes_max, watch: WatchSettings::default() }
    }
}

/// Counts of the ports.
#[derive(Clone, Debug, Default)]
pub(super) struct PortCounts {
    pub(super) grpc: Arc<TlsCounts>,
    pub(super) http: Arc<TlsCounts>,
}

/// Running TLS.
pub(super) struct Tls {
    pub(super) counts: PortCounts,
    pub(super) grpc: Option<PortTls>,
    pub(super) http: Option<PortTls>,
    certificates: Vec<WatchThread>,
}

/// TLS of one port.
#[derive(Clone)]
pub(super) struct PortTls {
    port: Arc<TlsPort>,
    handshakes: Handshakes,
}

impl Tls {
    pub(super) fn start(
        settings: &TlsSettings,
        clock: &Arc<dyn Clock>,
        requests: &ReloadRequests,
    ) -> Result<Self, ServeError> {
        let counts = PortCounts::default();
        let mut tls = Self { counts: counts.clone(), grpc: None, http: None, certificates: Vec::new() };
        if settings.grpc.is_none() && settings.http.is_none() {
            return Ok(tls);
        }
        let bounds = HandshakeBounds { timeout: settings.handshake_timeout, max: settings.handshakes_max };
        let handshakes = Handshakes::start(bounds, clock)?;
        let mut load = |name, files: &Option<TlsFiles>, protocols, counts| {
            let Some(files) = files else { return Ok(None) };
            // Before the files are read, so that no change between the two is missed.
            let watch = Watch::new(files.paths().into(), settings.watch);
            let port = TlsPort::load(name, files.clone(), protocols, counts, now(&**clock));
            let port = Arc::new(port.map_err(|source| ServeError::Tls { port: name, source })?);
            let (of_thread, clock) = (Arc::clone(&port), Arc::clone(clock));
            let mut last_error = LastError::default();
            let read_again = move |wake| {
                let now = now(&*clock);
                if wake == Wake::Idle && !of_thread.is_reload_due(now) {
                    return true;
                }
                let result = of_thread.reload(now);
                report(&of_thread, &result, last_error.is_to_log(wake, &result));
                !result.is_err_and(|error| error.is_of_reading())
            };
            let thread = WatchThread::start("certificates", watch, requests, read_again)?;
            tls.certificates.push(thread);
            Ok::<_, ServeError>(Some(PortTls { port, handshakes: handshakes.clone() }))
        };
        tls.grpc = load("grpc", &settings.grpc, &[H2], &counts.grpc)?;
        tls.http = load("http", &settings.http, &[HTTP_1_1], &counts.http)?;
        Ok(tls)
    }

    /// Reports TLS clients of a port, `grpc` or `http`, that has no TLS.
    pub(super) fn on_plaintext(&self, port: &'static str, clock: &Arc<dyn Clock>) -> TlsOnPlaintext {
        let counts = if port == "http" { &self.counts.http } else { &self.counts.grpc };
        TlsOnPlaintext { port, counts: Arc::clone(counts), clock: Arc::clone(clock) }
    }

    pub(super) fn stop(self) {
        self.certificates.into_iter().for_each(WatchThread::stop);
    }
}

impl PortTls {
    /// TLS of a listener of the port; none on a Unix socket, which other machines cannot reach.
    pub(super) fn of(port: Option<&Self>, listener: &Listener) -> Option<Self> {
        port.filter(|_| listener.is_tcp()).cloned()
    }

    /// Starts the handshake of a connection, which is given to `ready` when it is complete.
    pub(super) async fn begin(&self, accepted: Accepted, ready: &Ready) {
        self.handshakes.begin(accepted, &self.port, ready).await;
    }
}

/// Logs the result of a reload, an error only if it `is_to_log`.
fn report(port: &TlsPort, result: &Result<(), TlsFilesError>, is_to_log: bool) {
    let name = port.name();
    match result {
        Ok(()) => {
            let not_after = port.counts().not_after();
            tracing::info!(port = name, not_after, "certificate reloaded; open connections stay");
        }
        Err(error) if is_to_log => {
            tracing::error!(port = name, %error, "certificate not reloaded; the one in force stays");
        }
        Err(_) => {}
    }
}

/// Counts and logs clients that send TLS to a port although it has none.
#[derive(Clone)]
pub(super) struct TlsOnPlaintext {
    port: &'static str,
    counts: Arc<TlsCounts>,
    clock: Arc<dyn Clock>,
}

impl TlsOnPlaintext {
    pub(super) fn report(&self, peer: Peer) {
        let result = HandshakeResult::TlsOnPlaintextPort;
        if let Some(count) = self.counts.count(result, now(&*self.clock)) {
            let (result, remedy) = (result.name(), result.remedy());
            tracing::warn!(port = self.port, %peer, result, count, "connection refused: {remedy}");
        }
    }
}

impl ServeError {
    pub(super) fn tls_cause(error: &TlsFilesError) -> &'static str {
        match error {
            TlsFilesError::Mismatch { .. } => "; give the key that the certificate was issued for",
            _ => "",
        }
    }
}

fn now(clock: &dyn Clock) -> Duration {
    Duration::from_nanos(clock.now().as_nanos())
}
