//! Wiring: listeners, worker threads, background work, drain. Decisions are made by the modules below.
//!
//! One thread accepts connections and dispatches each to the worker with the fewest. A worker is a thread with a runtime
//! of its own, so that a decision never crosses threads. Workers share state through the sharded store alone.

mod admin;
mod clock_follower;
mod connection;
mod connections;
mod handshakes;
mod memory;
mod service_manager;
mod sweeper;
mod tls;
mod workers;

pub use crate::transport::{ListenAddress, ListenAddressError, TlsFiles, TlsFilesError};
pub use connections::ConnectionBounds;
pub use memory::available as available_memory;
pub use tls::TlsSettings;

use crate::{
    api::{
        self, GrpcPort, Health, LongLivedBounds, RouteSettings, TestClock,
        http::{self, Admin},
    },
    clock::Clock,
    config::{Config, Feed, ReloadRequests, RuleFiles, watch::WatchSettings},
    http2::Http2Settings,
    limit::RequestLimits,
    limiter::Limiter,
    rules::{LoadOptions, Source},
    service::{DecisionReader, LimitCountSettings, RateLimitService, ResponseOptions},
    snapshot::{DiskError, SnapshotTask, Writer},
    telemetry::{DecisionLog, Sources, Traces, TracesError},
    transport::{self, Accepted, BindError, InheritedSockets, Listener},
};
use clock_follower::ClockFollower;
use handshakes::Ready;
use service_manager::{ServiceManager, State};
use std::{io, num::NonZeroUsize, path::PathBuf, pin::pin, sync::Arc, time::Duration};
use sweeper::Sweeper;
use tls::{PortCounts, PortTls, Tls, TlsOnPlaintext};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
};
use workers::Workers;

/// Settings of the server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Addresses of the gRPC port; at least one.
    pub listen: Vec<ListenAddress>,
    /// The service that sets the clock; in tests only.
    pub test_clock: Option<TestClock>,
    /// Address of the admin port (metrics and probes over HTTP), if any.
    pub http_listen: Option<ListenAddress>,
    /// TLS of both ports.
    pub tls: TlsSettings,
    /// The rules of the limiter at the start, and the sources of later ones.
    pub rules: RuleSettings,
    /// The decision log, if any.
    pub decision_log: Option<DecisionLog>,
    /// Worker threads.
    pub threads: NonZeroUsize,
    /// Bounds of a request message.
    pub request_limits: RequestLimits,
    /// Optional content of responses besides the code and the statuses.
    pub response_options: ResponseOptions,
    /// Counts of each limit.
    pub limit_counts: LimitCountSettings,
    /// Bytes of one gRPC message before it is decoded.
    pub message_bytes_max: usize,
    /// Bounds on the number of connections.
    pub connections: ConnectionBounds,
    /// Calls that stay open (Health/Watch, reflection).
    pub long_lived_calls: LongLivedBounds,
    /// Bounds of each connection.
    pub http2: Http2Settings,
    /// Time between health turning NOT_SERVING and GOAWAY.
    pub drain_delay: Duration,
    /// Time that connections have to end after GOAWAY.
    pub drain_timeout: Duration,
    /// Interval between snapshots, where there is a writer.
    pub snapshot_interval: Duration,
}

/// The rules of the limiter at the start, and the sources of later ones.
#[derive(Clone, Debug, Default)]
pub struct RuleSettings {
    /// Options for reading rule files.
    pub options: LoadOptions,
    /// The documents that the limiter's rules were built from.
    pub sources: Vec<Source>,
    /// The files and directories to read again when they change; none if the rules are not from files.
    pub files: Vec<PathBuf>,
    /// Detection of changes.
    pub watch: WatchSettings,
    /// Requests to read the files again.
    pub reload: ReloadRequests,
}

/// Time that the export of the last spans may take at a stop.
const TRACES_TIMEOUT: Duration = Duration::from_secs(5);

/// Errors that keep the server from starting, or from stopping well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {source}{}", bind_remedy(source))]
    Listen {
        /// The address.
        address: ListenAddress,
        /// The operating system's error.
        source: io::Error,
    },
    /// The certificate of a port cannot be used.
    #[error("TLS of the {port} port: {source}{}", Self::tls_cause(source))]
    Tls {
        /// The port.
        port: &'static str,
        /// The cause.
        source: TlsFilesError,
    },
    /// A thread or a runtime cannot be created.
    #[error("cannot start {what}: {source}")]
    Start {
        /// The part that failed.
        what: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// The environment configures traces in a way that is not supported.
    #[error(transparent)]
    Traces(#[from] TracesError),
    /// The drain succeeded, but changes since the last snapshot are lost.
    #[error("the last snapshot could not be written: {0}")]
    LastSnapshot(DiskError),
}

impl From<BindError> for ServeError {
    fn from(BindError { address, source }: BindError) -> Self {
        Self::Listen { address, source }
    }
}

/// Returns the remedy for an address that cannot be bound, as the end of an error message.
fn bind_remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AlreadyExists => "; choose another path with --listen, or remove the file",
        io::ErrorKind::AddrInUse => "; something listens there already: choose another with --listen",
        io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023 or a directory you may write to, with --listen"
        }
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address: choose another with --listen",
        _ => "",
    }
}

/// The counters that the server starts with.
pub enum Start<E> {
    /// No counters, and no snapshots.
    Fresh(Box<Limiter>),
    /// Counters restored from a snapshot. While that lasts the server listens, health is NOT_SERVING, and requests
    /// are refused with UNAVAILABLE.
    Restored(Restore<E>),
}

/// Restores the counters; called on a thread of its own.
pub type Restore<E> = Box<dyn FnOnce() -> Result<(Limiter, Writer), E> + Send>;

/// Serves until the future returned by `stop` completes, then drains: health is NOT_SERVING, connections get GOAWAY,
/// requests in flight are finished, a last snapshot is written. `stop` is called before anything listens, so that no
/// signal is missed.
pub fn serve<S: Future<Output = ()>, E: From<ServeError> + Send + 'static>(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    start: Start<E>,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), E> {
    // Before any thread starts: it changes the environment.
    let inherited = InheritedSockets::from_env();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ServeError::Start { what: "the accepting runtime", source })?;
    runtime.block_on(async {
        let stop = stop().map_err(|source| ServeError::Start { what: "listening for signals", source })?;
        let mut stop = pin!(stop);
        let service_manager = ServiceManager::from_env();
        let listening = Listening::start(settings, clock, inherited).await?;
        service_manager.notify(State::Restoring);
        let limiter = tokio::select! {
            limiter = make_limiter(start) => limiter?,
            () = stop.as_mut() => {
                tracing::info!("stopped before the counters were restored; the snapshot is unchanged");
                return Ok(());
            }
        };
        let background = Background::start(settings, clock, limiter)?;
        listening.serve(&background).await;
        service_manager.notify(State::Serving);
        tokio::select! {
            () = stop => {}
            never = service_manager.ping_watchdog(async || listening.workers.all_respond().await) => match never {},
        }
        service_manager.notify(State::Draining);
        // Queued requests do not delay the stop: those due after its end are denied now.
        let end = settings.drain_delay.saturating_add(settings.drain_timeout);
        background.limiter.end_queues_at(clock.now().saturating_add(end));
        listening.drain(settings).await;
        background.finish()?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Returns the limiter, and the writer of its snapshots if there is one.
async fn make_limiter<E: From<ServeError> + Send + 'static>(
    start: Start<E>,
) -> Result<(Limiter, Option<Writer>), E> {
    let restore = match start {
        Start::Fresh(limiter) => return Ok((*limiter, None)),
        Start::Restored(restore) => restore,
    };
    let (restored, is_restored) = oneshot::channel();
    let thread = std::thread::Builder::new().name("restore".into()).spawn(move || {
        // The receiver is gone if the server was stopped meanwhile.
        let _ = restored.send(restore());
    });
    let thread = thread.map_err(|source| ServeError::Start { what: "the restoring thread", source })?;
    match is_restored.await {
        Ok(result) => result.map(|(limiter, writer)| (limiter, Some(writer))),
        // Only a panic drops the sender without a result.
        Err(_) => match thread.join() {
            Ok(()) => unreachable!("the thread ends by sending"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// The background threads, and the limiter they work on.
struct Background {
    limiter: Arc<Limiter>,
    config: Arc<Config>,
    rule_files: Option<RuleFiles>,
    clock_follower: ClockFollower,
    sweeper: Sweeper,
    snapshots: Option<SnapshotTask>,
    decision_log: Option<DecisionLog>,
}

impl Background {
    fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        (limiter, writer): (Limiter, Option<Writer>),
    ) -> Result<Self, ServeError> {
        let limiter = Arc::new(limiter);
        let RuleSettings { options, sources, files, watch, reload } = settings.rules.clone();
        let config = Config::new(Arc::clone(&limiter), options, Feed::Files, sources, clock.now());
        let config = Arc::new(config);
        let start_files = || RuleFiles::start(&config, files.clone(), watch, clock, &reload);
        let rule_files = (!files.is_empty()).then(start_files).transpose();
        let rule_files =
            rule_files.map_err(|source| ServeError::Start { what: "the rules thread", source })?;
        let decision_log = settings.decision_log.clone();
        if let Some(log) = &decision_log {
            log.set_limiter(&limiter);
        }
        let sweeper = Sweeper::start(&limiter, clock)?;
        let clock_follower = ClockFollower::start(clock)?;
        let snapshots = writer
            .map(|writer| SnapshotTask::start(writer, &limiter, clock, settings.snapshot_interval))
            .transpose()
            .map_err(|source| ServeError::Start { what: "the snapshots", source })?;
        Ok(Self { limiter, config, rule_files, clock_follower, sweeper, snapshots, decision_log })
    }

    fn sources(&self, service: &RateLimitService, tls: &PortCounts) -> Sources {
        let snapshots = self.snapshots.as_ref().map(|snapshots| Arc::clone(snapshots.counts()));
        let (limiter, config) = (Arc::clone(&self.limiter), Arc::clone(&self.config));
        let (tally, limit_counts) = (Arc::clone(service.tally()), Arc::clone(service.limit_counts()));
        let tls = vec![("grpc", Arc::clone(&tls.grpc)), ("http", Arc::clone(&tls.http))];
        let decision_log = self.decision_log.clone();
        Sources { tally, limit_counts, limiter, config, snapshots, tls, decision_log }
    }

    /// Stops the threads and writes the last snapshot; called after the last decision.
    fn finish(self) -> Result<(), ServeError> {
        if let Some(rule_files) = self.rule_files {
            rule_files.stop();
        }
        if let Some(log) = self.decision_log {
            log.finish();
        }
        self.sweeper.stop();
        self.clock_follower.stop();
        self.snapshots.map_or(Ok(()), SnapshotTask::finish).map_err(ServeError::LastSnapshot)
    }
}

/// Admin connections that wait to be served.
const ADMIN_WAITING_MAX: usize = 64;

/// The bound ports and the services behind them.
struct Listening {
    service: RateLimitService,
    health: Health,
    admin: Admin,
    workers: Workers,
    tls: Tls,
    accepting: JoinSet<()>,
    has_http: bool,
    drain: watch::Sender<bool>,
    traces: Option<Traces>,
}

impl Listening {
    /// Listens on all ports, or on none. Requests are refused with UNAVAILABLE until [`Self::serve`].
    async fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        mut inherited: InheritedSockets,
    ) -> Result<Self, ServeError> {
        let tls = Tls::start(&settings.tls, clock)?;
        let listeners = transport::bind(&settings.listen, &mut inherited)?;
        let admin_listeners = transport::bind(settings.http_listen.as_slice(), &mut inherited)?;
        for name in inherited.left() {
            tracing::warn!(
                "the socket `{name}` of systemd is not used; name it with --listen systemd:{name}"
            );
        }
        let service = RateLimitService::restoring(Arc::clone(clock), settings.request_limits)
            .with_response_options(settings.response_options.clone())
            .with_limit_counts(settings.limit_counts);
        let traces = Traces::start()?;
        let mut readers: Vec<Arc<dyn DecisionReader>> = Vec::new();
        readers.extend(traces.clone().map(|traces| Arc::new(traces) as Arc<dyn DecisionReader>));
        readers.extend(settings.decision_log.clone().map(|log| Arc::new(log) as Arc<dyn DecisionReader>));
        let service = service.with_readers(readers);
        let routes = RouteSettings { message_bytes_max: settings.message_bytes_max };
        let (mut routes, health) = api::routes(service.clone(), routes).await;
        if let Some(clock) = &settings.test_clock {
            routes = routes.add_service(clock.clone().service()).prepare();
        }
        let port = Arc::new(GrpcPort::new(
            service.clone(),
            routes,
            settings.message_bytes_max,
            settings.long_lived_calls,
        ));
        let (drain, draining) = watch::channel(false);
        let tls_on_plaintext =
            TlsOnPlaintext { counts: Arc::clone(&tls.counts().grpc), clock: Arc::clone(clock) };
        let workers = Workers::start(settings, clock, &port, &draining, &tls_on_plaintext)?;
        let (mut accepting, admin) = (JoinSet::new(), Admin::default());
        let has_http = !admin_listeners.is_empty();
        for listener in listeners {
            let tls = tls.grpc(&listener);
            tracing::info!(address = %listener.address(), tls = tls.is_some(), "listening");
            let dispatcher = workers.dispatcher();
            let ready: Ready = Arc::new(move |accepted| dispatcher.dispatch(accepted));
            accepting.spawn(accept(listener, tls, ready));
        }
        for listener in admin_listeners {
            let tls = tls.http(&listener);
            tracing::info!(address = %listener.address(), tls = tls.is_some(), "admin port listening");
            let (ready, connections) = mpsc::channel::<Accepted>(ADMIN_WAITING_MAX);
            // One too many is closed.
            let ready: Ready = Arc::new(move |accepted| _ = ready.try_send(accepted));
            accepting.spawn(accept(listener, tls, ready));
            accepting.spawn(admin::serve(connections, http::router(admin.clone())));
        }
        Ok(Self { service, health, admin, workers, tls, accepting, has_http, drain, traces })
    }

    /// Starts deciding requests.
    async fn serve(&self, background: &Background) {
        // Without a port, nothing reads the metrics, and limits are not counted.
        if self.has_http {
            self.admin.metrics().start(background.sources(&self.service, self.tls.counts()));
        }
        self.admin.set_config(Arc::clone(&background.config));
        self.service.set_ready(Arc::clone(&background.limiter));
        self.admin.set_serving(true);
        self.health.set_serving(true).await;
        tracing::info!("serving");
    }

    /// New connections are accepted during the drain delay: health checkers need them.
    async fn drain(mut self, settings: &Settings) {
        tracing::info!("draining: health is NOT_SERVING, finishing requests in flight");
        self.admin.set_serving(false);
        self.health.set_serving(false).await;
        tokio::time::sleep(settings.drain_delay).await;
        self.accepting.shutdown().await;
        self.health.end_watches().await;
        self.drain.send_replace(true);
        self.tls.stop();
        if tokio::time::timeout(settings.drain_timeout, self.workers.finished()).await.is_err() {
            tracing::warn!(timeout = ?settings.drain_timeout, "drain timeout reached; closing the remaining connections");
        }
        if let Some(traces) = self.traces {
            traces.finish(TRACES_TIMEOUT).await;
        }
    }
}

/// Accepts connections for as long as it is polled, and hands them over when they are ready.
async fn accept(listener: Listener, tls: Option<PortTls>, ready: Ready) {
    loop {
        match (listener.accept().await, &tls) {
            (Ok(accepted), None) => ready(accepted),
            (Ok(accepted), Some(tls)) => tls.begin(accepted, &ready).await,
            (Err(error), _) => {
                // Out of file descriptors, most likely; open connections are not affected.
                tracing::warn!(%error, "cannot accept a connection; retrying");
                tokio::time::sleep(admin::ACCEPT_RETRY).await;
            }
        }
    }
}
