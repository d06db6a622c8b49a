//! The bound ports and the services behind them, from bind to drain.

use super::{
    ServeError, Settings,
    handshakes::Ready,
    http_port::{self, HttpPort},
    pushes::Pushes,
    tls::{PortTls, Tls, TlsOnPlaintext},
    token_file::TokenFile,
    workers::Workers,
};
use crate::api::{self, ControlApi, GrpcPort, Health, LeasesApi, RouteSettings, http::HttpState};
use std::{sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
use tidegate_operations::{
    control::{Control, ControlTask, Live},
    telemetry::{self, Sources, Traces},
};
use tidegate_service::{DecisionReader, Grants, RateLimitService};
use tidegate_threads::{BackgroundThread, Priority, Yields};
use tidegate_transport::{InheritedSockets, Listener};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

/// Connections that are accepted before other tasks of the thread run, and yield to other threads for a bounded time together.
const ACCEPTS_MAX: u32 = 8;

/// The bound ports and the services behind them.
pub(super) struct Listening {
    /// The service that every protocol calls.
    pub(super) service: RateLimitService,
    control: Option<Arc<Control>>,
    control_task: Option<ControlTask>,
    health: Health,
    pub(super) http: Http,
    pub(super) workers: Workers,
    pub(super) tls: Tls,
    accepting: JoinSet<()>,
    drain: watch::Sender<bool>,
    traces: Option<Traces>,
    pushes: Pushes,
}

/// The state of the HTTP port, and the port if there is one.
pub(super) struct Http {
    state: HttpState,
    port: Option<HttpPort>,
    pub(super) tokens: Option<TokenFile>,
}

impl Http {
    fn start(
        settings: &Settings,
        service: &RateLimitService,
        control: Option<ControlApi>,
        tokens: Option<TokenFile>,
        tls: TlsOnPlaintext,
    ) -> Result<Self, ServeError> {
        let has_port = !settings.http_listen.is_empty();
        let in_force = tokens.as_ref().map(TokenFile::tokens);
        let mut state = HttpState::new(service.clone(), settings.http.clone(), in_force);
        (state.control, state.body_memory) = (control, Arc::clone(&settings.body_memory));
        let port = has_port.then(|| HttpPort::start(state.clone(), tls)).transpose()?;
        Ok(Self { state, port, tokens })
    }

    async fn stop(self, time: Duration) {
        if let Some(port) = self.port {
            port.stop(time).await;
        }
        if let Some(tokens) = self.tokens {
            tokens.stop();
        }
    }
}

/// The service, with all that reads its decisions.
fn service(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    traces: Option<&Traces>,
    live: Option<&Arc<Live>>,
) -> Result<RateLimitService, ServeError> {
    let mut readers: Vec<Arc<dyn DecisionReader>> = Vec::new();
    readers.extend(traces.map(|traces| Arc::new(traces.clone()) as Arc<dyn DecisionReader>));
    readers.extend(settings.decision_log.clone().map(|log| Arc::new(log) as Arc<dyn DecisionReader>));
    let service = RateLimitService::restoring(Arc::clone(clock), settings.request_limits)
        .with_response_options(settings.response_options.clone())
        .with_shared_store(settings.shared_store.clone())
        .with_grants(settings.leases.map(|_| Grants::default()))
        .with_meters(settings.meters.clone())
        .with_readers(readers)
        .with_propagators(telemetry::propagators()?);
    let service = match live {
        Some(live) => service.with_observer(Arc::clone(live) as Arc<dyn DecisionReader>),
        None => service,
    };
    if settings.is_measured() {
        service.meters().start();
    }
    Ok(service)
}

/// The operations of the control API, unless it is off. A request for a reload opens its audit log anew.
fn control(
    settings: &Settings,
    service: &RateLimitService,
    live: Arc<Live>,
    clock: &Arc<dyn Clock>,
) -> Result<Option<Arc<Control>>, ServeError> {
    let Some(of_control) = &settings.control else { return Ok(None) };
    let control = Arc::new(Control::new(of_control, service.clone(), live, Arc::clone(clock))?);
    let weak = Arc::downgrade(&control);
    settings
        .rules
        .reload
        .on_request(move || _ = weak.upgrade().inspect(|control| control.audit_log.reopen()));
    Ok(Some(control))
}

/// The gRPC port with the APIs that it has, and what `grpc.health.v1` reports.
fn grpc_port(
    settings: &Settings,
    service: &RateLimitService,
    control: Option<&ControlApi>,
    leases: Option<&LeasesApi>,
) -> (Arc<GrpcPort>, Health) {
    let message_bytes_max = settings.message_bytes_max;
    let of_routes = RouteSettings { message_bytes_max, first_message_within: settings.http2.body_timeout };
    let (mut routes, health) = api::routes(service.clone(), control, leases, of_routes);
    if let Some(clock) = &settings.test_clock {
        routes = routes.add_service(clock.clone().service()).prepare();
    }
    let routes = (routes, health.clone());
    let port = GrpcPort::new(service.clone(), routes, message_bytes_max, settings.long_lived_calls)
        .with_body_memory(Arc::clone(&settings.body_memory));
    (Arc::new(port), health)
}

impl Listening {
    /// Listens on all ports, or on none. Requests are refused with UNAVAILABLE until [`Self::serve`].
    pub(super) async fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        mut inherited: InheritedSockets,
    ) -> Result<Self, ServeError> {
        let tls = Tls::start(&settings.tls, clock, &settings.rules.reload)?;
        let listeners = tidegate_transport::bind(&settings.listen, &mut inherited)
            .map_err(ServeError::listen("--listen"))?;
        let http_listeners = tidegate_transport::bind(&settings.http_listen, &mut inherited);
        let http_listeners = http_listeners.map_err(ServeError::listen("--http-listen"))?;
        for name in inherited.left() {
            tracing::warn!(
                "the socket `{name}` of systemd is not used; name it with --listen systemd:{name}"
            );
        }
        let traces = Traces::start()?;
        let live = settings.control.as_ref().map(|_| Arc::<Live>::default());
        let service = service(settings, clock, traces.as_ref(), live.as_ref())?;
        let tokens = settings.http.token_file.as_deref();
        let tokens = tokens.map(|path| TokenFile::start(path, &settings.rules.reload)).transpose()?;
        let control = live.map(|live| control(settings, &service, live, clock)).transpose()?.flatten();
        let control_task = control.as_ref().map(ControlTask::start).transpose()?;
        let of_callers = tokens.as_ref().map(TokenFile::tokens);
        let control_api = control.clone().map(|control| ControlApi::new(control, of_callers.clone()));
        let leases = settings.leases.map(|reach| LeasesApi::new(service.clone(), reach, of_callers));
        let (port, health) = grpc_port(settings, &service, control_api.as_ref(), leases.as_ref());
        let (drain, draining) = watch::channel(false);
        let tls_on_plaintext = tls.on_plaintext("grpc", clock);
        let workers = Workers::start(settings, clock, &port, &draining, &tls_on_plaintext)?;
        let mut accepting = JoinSet::new();
        for listener in listeners {
            let tls = PortTls::of(tls.grpc.as_ref(), &listener);
            tracing::info!(address = %listener.address(), tls = tls.is_some(), "listening");
            let dispatcher = workers.dispatcher.clone();
            let ready: Ready = Arc::new(move |accepted| dispatcher.dispatch(accepted));
            accepting.spawn(accept(listener, tls, ready, Arc::clone(clock)));
        }
        let http = Http::start(settings, &service, control_api, tokens, tls.on_plaintext("http", clock))?;
        let pushes = Pushes::start(settings, http.state.metrics(), clock)?;
        if let Some(port) = &http.port {
            for listener in http_listeners {
                let tls = PortTls::of(tls.http.as_ref(), &listener);
                tracing::info!(address = %listener.address(), tls = tls.is_some(), "HTTP port listening");
                accepting.spawn(accept(listener, tls, port.ready(), Arc::clone(clock)));
            }
        }
        Ok(Self {
            service,
            control,
            control_task,
            health,
            http,
            workers,
            tls,
            accepting,
            drain,
            traces,
            pushes,
        })
    }

    /// Serves metrics and rules before the first rules are loaded.
    pub(super) fn await_rules(&self, sources: &Sources, is_healthy: bool) {
        self.show(sources);
        self.service.await_rules();
        self.set_healthy(is_healthy);
        tracing::info!(is_healthy, "waiting for rules; requests are refused with UNAVAILABLE");
    }

    /// Starts deciding requests: all rules of the start are in force.
    pub(super) fn serve(&self, sources: &Sources) {
        self.show(sources);
        if let Some(control) = &self.control {
            control.restore_overlays();
        }
        let ended = sources.limiter.drop_ended_bans();
        if ended > 0 {
            tracing::info!(ended, "bans of the snapshot that the rules do not have are over");
        }
        self.service.set_ready(Arc::clone(&sources.limiter));
        self.set_healthy(true);
        tracing::info!("serving");
    }

    /// Sets health, which the drain sets for the last time.
    pub(super) fn set_healthy(&self, is_healthy: bool) {
        self.http.state.set_serving(is_healthy);
        self.health.set_serving(is_healthy);
    }

    fn show(&self, sources: &Sources) {
        if let Some(control) = &self.control {
            control.start(sources.clone());
        }
        self.http.state.metrics().start(sources.clone());
        self.http.state.set_config(Arc::clone(&sources.config));
    }

    /// New connections are accepted during the drain delay: health checkers need them.
    pub(super) async fn drain(mut self, settings: &Settings) {
        tracing::info!("draining: health is NOT_SERVING, finishing requests in flight");
        self.http.state.set_serving(false);
        self.health.set_serving(false);
        tokio::time::sleep(settings.drain_delay).await;
        self.accepting.shutdown().await;
        self.health.end_watches();
        self.service.quotas().drain();
        if let Some(control) = &self.control {
            control.live.tail.end();
        }
        self.drain.send_replace(true);
        self.tls.stop();
        let http_ends = self.http.stop(settings.drain_timeout);
        let workers_end = tokio::time::timeout(settings.drain_timeout, self.workers.finished());
        if tokio::join!(workers_end, http_ends).0.is_err() {
            tracing::warn!(timeout = ?settings.drain_timeout, "drain timeout reached; closing the remaining connections");
        }
        let lost = settings.shared_store.as_ref().map_or(0, |store| store.lose_releases());
        if lost > 0 {
            tracing::error!(
                lost,
                "ends of requests did not reach the shared store: their slots and reservations end after `max_hold`"
            );
        }
        let time = telemetry::LAST_PUSH_TIMEOUT.min(settings.drain_timeout);
        let (control_task, pushes) = (self.control_task, self.pushes);
        let pushed = within(time, move || {
            if let Some(task) = control_task {
                task.stop();
            }
            pushes.stop();
        });
        let traced = async {
            if let Some(traces) = self.traces {
                traces.finish(time).await;
            }
        };
        if !tokio::join!(pushed, traced).0 {
            tracing::warn!(?time, "the last metrics were not pushed: their receiver does not respond");
        }
    }
}

/// Runs blocking work on a thread of its own; returns whether it ended in time. Otherwise it ends with the process.
async fn within(time: Duration, work: impl FnOnce() + Send + 'static) -> bool {
    let (ended, has_ended) = oneshot::channel();
    let run = move || {
        work();
        // The receiver is gone if the time has passed.
        let _ = ended.send(());
    };
    let thread = BackgroundThread::start("last-push", Priority::Full, run);
    thread.is_ok() && tokio::time::timeout(time, has_ended).await.is_ok()
}

/// Accepts connections while polled, and passes them on when they are ready.
async fn accept(listener: Listener, tls: Option<PortTls>, ready: Ready, clock: Arc<dyn Clock>) {
    loop {
        let mut yields = Yields::new(Arc::clone(&clock));
        for _ in 0..ACCEPTS_MAX {
            match (listener.accept().await, &tls) {
                (Ok(accepted), None) => ready(accepted),
                (Ok(accepted), Some(tls)) => tls.begin(accepted, &ready).await,
                (Err(error), _) => {
                    // Out of file descriptors, most likely; open connections are not affected.
                    tracing::warn!(%error, "cannot accept a connection; retrying");
                    tokio::time::sleep(http_port::ACCEPT_RETRY).await;
                }
            }
            // To threads that decide: a backlog of connections would delay them for a time slice.
            yields.yield_now();
        }
        // To other tasks of this thread.
        tokio::task::yield_now().await;
    }
}
