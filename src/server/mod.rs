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
    clock::Clock,
    grpc::{self, Extras, Front, Health, RateLimit, RouteSettings},
    http2::Http2Settings,
    limit::RequestLimits,
    limiter::Limiter,
    snapshot::{DiskError, SnapshotTask, Writer},
};
use listen::Listener;
use std::{io, num::NonZeroUsize, sync::Arc, time::Duration};
use sweeper::Sweeper;
use tokio::{sync::watch, task::JoinSet};
use workers::Workers;

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; at least one.
    pub listen: Vec<ListenAddress>,
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

/// Serves until what `stop` returns completes, then drains: health turns NOT_SERVING, connections are asked to end, answers in flight
/// are finished, a last snapshot is written. `stop` is called before anything listens, so that no signal is missed.
pub fn serve<S: Future<Output = ()>>(
    settings: &Settings,
    limiter: &Arc<Limiter>,
    clock: &Arc<dyn Clock>,
    writer: Option<Writer>,
    stop: impl FnOnce() -> io::Result<S>,
) -> Result<(), ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ServeError::Start { what: "the accepting runtime", source })?;
    runtime.block_on(async {
        let stop = stop().map_err(|source| ServeError::Start { what: "listening for signals", source })?;
        let listeners = listen::bind(&settings.listen)?;
        let service = RateLimit::new(Arc::clone(limiter), Arc::clone(clock), settings.request_limits)
            .with_extras(settings.extras.clone());
        let routes = RouteSettings { message_bytes_max: settings.message_bytes_max };
        let (routes, health) = grpc::routes(service.clone(), routes).await;
        let front = Arc::new(Front::new(service, routes, settings.message_bytes_max));
        let (drain, draining) = watch::channel(false);
        let workers = Workers::start(settings, &front, &draining)?;
        let sweeper = Sweeper::start(limiter, clock)?;
        let snapshots = writer
            .map(|writer| SnapshotTask::start(writer, limiter, clock, settings.snapshot_interval))
            .transpose()
            .map_err(|source| ServeError::Start { what: "the snapshots", source })?;

        let accepting = accept(listeners, &workers);
        health.set_serving(true).await;
        stop.await;
        // Who waits for a turn does not delay the end: whose turn would come after it is denied now.
        let end = settings.drain_delay.saturating_add(settings.drain_timeout);
        limiter.hold_until(clock.now().saturating_add(end));
        drain_all(settings, health, accepting, &drain, workers).await;
        sweeper.stop();
        // Nothing is decided any more: what is written now is all there was.
        snapshots.map_or(Ok(()), SnapshotTask::finish).map_err(ServeError::LastSnapshot)?;
        tracing::info!("stopped");
        Ok(())
    })
}

/// Accepts on every listener until the set is dropped.
fn accept(listeners: Vec<Listener>, workers: &Workers) -> JoinSet<()> {
    let mut accepting = JoinSet::new();
    for listener in listeners {
        let dealer = workers.dealer();
        tracing::info!(address = %listener.address(), "listening");
        accepting.spawn(async move {
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
        });
    }
    accepting
}

/// New connections are still taken while health says NOT_SERVING: whoever probes it must be able to ask.
async fn drain_all(
    settings: &Settings,
    mut health: Health,
    mut accepting: JoinSet<()>,
    drain: &watch::Sender<bool>,
    workers: Workers,
) {
    tracing::info!("draining: health says NOT_SERVING, answers in flight are finished");
    health.set_serving(false).await;
    tokio::time::sleep(settings.drain_delay).await;
    accepting.shutdown().await;
    health.end_watches().await;
    drain.send_replace(true);
    if tokio::time::timeout(settings.drain_timeout, workers.finished()).await.is_err() {
        tracing::warn!(timeout = ?settings.drain_timeout, "some connections did not end in time; they are cut");
    }
}
