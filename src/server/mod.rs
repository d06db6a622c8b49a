//! The only wiring: listeners, workers, background work, drain. What it serves is decided below; what it is told is in
//! [`Settings`].
//!
//! One thread accepts connections and deals each to the worker with the fewest; a worker is a thread with a runtime of
//! its own, so that a decision never crosses threads. State is shared through the sharded store alone.

mod connection;
mod listen;
mod memory;
mod sweeper;
mod workers;

pub use listen::{ListenAddress, ListenAddressError};
pub use memory::available as available_memory;

use crate::{
    api::{
        self, Extras, GrpcPort, Health, RateLimit, RouteSettings,
        http::{self, Watched},
    },
    clock::Clock,
    http2::Http2Settings,
    limit::RequestLimits,
    limiter::Limiter,
    snapshot::{DiskError, SnapshotTask, Writer},
    telemetry::Sources,
};
use listen::Listener;
use std::{io, num::NonZeroUsize, pin::pin, sync::Arc, time::Duration};
use sweeper::Sweeper;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};
use workers::{Dealer, Workers};

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; at least one.
    pub listen: Vec<ListenAddress>,
    /// Where to serve metrics and readiness over HTTP, if anywhere.
    pub http_listen: Option<ListenAddress>,
    /// Worker threads.
    pub threads: NonZeroUsize,
    /// The largest request that is answered.
    pub request_limits: RequestLimits,
    /// What answers say besides the verdict and the statuses.
    pub extras: Extras,
    /// Bytes of one message before it is decoded.
    pub message_bytes_max: usize,
    /// Connections at once; further ones are closed as they come.
    pub connections_max: usize,
    /// The bounds of a connection.
    pub http2: Http2Settings,
    /// How long health says NOT_SERVING before connections are asked to end.
    pub drain_delay: Duration,
    /// How long connections may take to end.
    pub drain_timeout: Duration,
    /// How often what changed is written, where there is a writer.
    pub snapshot_interval: Duration,
}

/// Why the server cannot start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", listen::remedy(source))]
    Listen {
        /// The address.
        address: ListenAddress,
        /// What the operating system says.
        source: io::Error,
    },
    /// A thread or a runtime cannot be made.
    #[error("cannot start {what}: {source}")]
    Start {
        /// The thing.
        what: &'static str,
        /// What the operating system says.
        source: io::Error,
    },
    /// Everything else went well, but what happened since the last snapshot is lost.
    #[error("the last snapshot could not be written: {0}")]
    LastSnapshot(DiskError),
}

/// The counters that the server starts with.
pub enum Start<E> {
    /// None yet, and none are kept.
    Fresh(Box<Limiter>),
    /// Those that were kept. Meanwhile the server listens, health says NOT_SERVING, and requests are refused with
    /// UNAVAILABLE.
    Restored(Restore<E>),
}

/// Restores the counters; it is called on a thread of its own.
pub type Restore<E> = Box<dyn FnOnce() -> Result<(Limiter, Writer), E> + Send>;

/// Serves until what `stop` returns completes, then drains: health turns NOT_SERVING, connections are asked to end, answers in flight
/// are finished, a last snapshot is written. `stop` is called before anything listens, so that no signal is missed.
pub fn serve<S: Future<Output = ()>, E: From<ServeError> + Send + 'static>(
    settings: &Settings,
    clock: &Arc<dyn Clock>,
    start: Start<E>,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ServeError::Start { what: "the accepting runtime", source })?;
    runtime.block_on(async {
        let stop = stop().map_err(|source| ServeError::Start { what: "listening for signals", source })?;
        let mut stop = pin!(stop);
        let listening = Listening::start(settings, clock).await?;
        let made = tokio::select! {
            made = make(start) => made?,
            () = stop.as_mut() => {
                tracing::info!("stopped before the counters were restored: what is kept is as it was");
                return Ok(());
            }
        };
        let background = Background::start(settings, clock, made)?;
        listening.serve(&background).await;
        stop.await;
        // Who waits for a turn does not delay the end: whose turn would come after it is denied now.
        let end = settings.drain_delay.saturating_add(settings.drain_timeout);
        background.limiter.end_queues_at(clock.now().saturating_add(end));
        listening.drain(settings).await;
        background.finish()?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// The limiter, and the writer of its snapshots if there is one.
async fn make<E: From<ServeError> + Send + 'static>(start: Start<E>) -> Result<(Limiter, Option<Writer>), E> {
    let restore = match start {
        Start::Fresh(limiter) => return Ok((*limiter, None)),
        Start::Restored(restore) => restore,
    };
    let (restored, is_restored) = oneshot::channel();
    let thread = std::thread::Builder::new().name("restore".into()).spawn(move || {
        // Nobody waits for it any more if the server was told to stop meanwhile.
        let _ = restored.send(restore());
    });
    let thread = thread.map_err(|source| ServeError::Start { what: "the restoring thread", source })?;
    match is_restored.await {
        Ok(made) => made.map(|(limiter, writer)| (limiter, Some(writer))),
        // Its sender is dropped by a panic alone.
        Err(_) => match thread.join() {
            Ok(()) => unreachable!("it ends by sending"),
            Err(panic) => std::panic::resume_unwind(panic),
        },
    }
}

/// What works beside the decisions.
struct Background {
    limiter: Arc<Limiter>,
    sweeper: Sweeper,
    snapshots: Option<SnapshotTask>,
}

impl Background {
    fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        (limiter, writer): (Limiter, Option<Writer>),
    ) -> Result<Self, ServeError> {
        let limiter = Arc::new(limiter);
        let sweeper = Sweeper::start(&limiter, clock)?;
        let snapshots = writer
            .map(|writer| SnapshotTask::start(writer, &limiter, clock, settings.snapshot_interval))
            .transpose()
            .map_err(|source| ServeError::Start { what: "the snapshots", source })?;
        Ok(Self { limiter, sweeper, snapshots })
    }

    fn sources(&self) -> Sources {
        let snapshots = self.snapshots.as_ref().map(|snapshots| Arc::clone(snapshots.counts()));
        Sources { limiter: Arc::clone(&self.limiter), snapshots }
    }

    /// Nothing is decided any more: what is written now is all there was.
    fn finish(self) -> Result<(), ServeError> {
        self.sweeper.stop();
        self.snapshots.map_or(Ok(()), SnapshotTask::finish).map_err(ServeError::LastSnapshot)
    }
}

/// The ports, and who answers on them.
struct Listening {
    service: RateLimit,
    health: Health,
    watched: Watched,
    workers: Workers,
    accepting: JoinSet<()>,
    drain: watch::Sender<bool>,
}

impl Listening {
    /// Listens on all ports, or on none. Requests are refused until it is told to [`Self::serve`].
    async fn start(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Self, ServeError> {
        let listeners = listen::bind(&settings.listen)?;
        let pages = listen::bind(settings.http_listen.as_slice())?;
        let service = RateLimit::restoring(Arc::clone(clock), settings.request_limits)
            .with_extras(settings.extras.clone());
        let routes = RouteSettings { message_bytes_max: settings.message_bytes_max };
        let (routes, health) = api::routes(service.clone(), routes).await;
        let front = Arc::new(GrpcPort::new(service.clone(), routes, settings.message_bytes_max));
        let (drain, draining) = watch::channel(false);
        let workers = Workers::start(settings, &front, &draining)?;
        let (mut accepting, watched) = (JoinSet::new(), Watched::default());
        for listener in listeners {
            tracing::info!(address = %listener.address(), "listening");
            accepting.spawn(accept(listener, workers.dealer()));
        }
        for listener in pages {
            tracing::info!(address = %listener.address(), "listening for those who watch");
            accepting.spawn(listener.serve_pages(http::router(watched.clone())));
        }
        Ok(Self { service, health, watched, workers, accepting, drain })
    }

    /// From now on requests are decided.
    async fn serve(&self, background: &Background) {
        self.watched.metrics().start(background.sources());
        self.service.restored(Arc::clone(&background.limiter));
        self.watched.set_serving(true);
        self.health.set_serving(true).await;
        tracing::info!("serving");
    }

    /// New connections are still taken while health says NOT_SERVING: whoever probes it must be able to ask.
    async fn drain(mut self, settings: &Settings) {
        tracing::info!("draining: health says NOT_SERVING, answers in flight are finished");
        self.watched.set_serving(false);
        self.health.set_serving(false).await;
        tokio::time::sleep(settings.drain_delay).await;
        self.accepting.shutdown().await;
        self.health.end_watches().await;
        self.drain.send_replace(true);
        if tokio::time::timeout(settings.drain_timeout, self.workers.finished()).await.is_err() {
            tracing::warn!(timeout = ?settings.drain_timeout, "some connections did not end in time; they are cut");
        }
    }
}

/// Accepts connections for as long as it is polled.
async fn accept(listener: Listener, dealer: Dealer) {
    loop {
        match listener.accept().await {
            Ok(stream) => dealer.deal(stream),
            Err(error) => {
                // Out of file descriptors, most likely: those who are connected go on meanwhile.
                tracing::warn!(%error, "cannot accept a connection; trying again shortly");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
