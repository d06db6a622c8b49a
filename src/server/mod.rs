//! Wiring: listeners, worker threads, background work, drain. Decisions are made by the modules below.
//!
//! One thread accepts connections and dispatches each to the worker with the fewest. A worker is a thread with a runtime
//! of its own, so that a decision never crosses threads. Workers share state through the sharded store alone.

mod background;
mod check;
mod clock_follower;
mod connection;
mod connections;
mod error;
mod fair_queue;
mod handshakes;
mod http_port;
mod listening;
mod memory;
mod notices;
mod pushes;
mod quota_record;
mod quotas;
mod service_manager;
mod settings;
mod sweeper;
mod tls;
mod token_file;
mod workers;

pub use crate::api::http::HttpSettings;
pub use check::{check_exports, check_files};
pub use connections::ConnectionBounds;
pub use error::{ServeError, TokenFileError};
pub use memory::available as available_memory;
pub use quota_record::QuotaRecordSettings;
pub use settings::{FirstRules, RuleSettings, Settings};
pub use tidegate_transport::{ListenAddress, ListenAddressError, TlsFiles, TlsFilesError};
pub use tls::TlsSettings;

use background::Background;
use listening::Listening;
use service_manager::{DRAINING, RESTORING, SERVING, ServiceManager};
use std::{io, pin::pin, sync::Arc};
use tidegate_core::{clock::Clock, limiter::Limiter};
use tidegate_snapshot::Writer;
use tidegate_threads::{BackgroundThread, Priority, runtime};
use tidegate_transport::InheritedSockets;
use tokio::sync::oneshot;

/// The counters that the server starts with.
pub enum Start<E> {
    /// No counters, and no snapshots.
    Fresh(Box<Limiter>),
    /// Counters restored from a snapshot. Until then the server listens, health is NOT_SERVING, and requests are refused with UNAVAILABLE.
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
    let runtime = runtime().map_err(|source| ServeError::Start { what: "the accepting runtime", source })?;
    runtime.block_on(async {
        let stop = stop().map_err(|source| ServeError::Start { what: "listening for signals", source })?;
        let mut stop = pin!(stop);
        let service_manager = ServiceManager::from_env();
        let listening = Listening::start(settings, clock, inherited).await?;
        service_manager.notify(RESTORING);
        let limiter = tokio::select! {
            limiter = make_limiter(start) => limiter?,
            () = stop.as_mut() => {
                tracing::info!("stopped before the counters were restored; the snapshot is unchanged");
                return Ok(());
            }
        };
        let background = Background::start(settings, clock, limiter, &listening)?;
        let serve = async {
            if let FirstRules::Awaited { is_healthy } = settings.rules.first {
                listening.await_rules(&background.sources, is_healthy);
                background.first_rules().await;
            }
            listening.serve(&background.sources);
            service_manager.notify(SERVING);
            settings.greeting.iter().for_each(|greeting| println!("{greeting}"));
            let ping = service_manager.ping_watchdog(async || listening.workers.all_respond().await);
            let health = async {
                if !settings.rules.health_needs_rules {
                    std::future::pending::<()>().await;
                }
                background.follow_rules(|has_rules| listening.set_healthy(has_rules)).await
            };
            tokio::select! {
                never = ping => never,
                never = health => never,
            }
        };
        tokio::select! {
            () = stop => {}
            never = serve => match never {},
        }
        service_manager.notify(DRAINING);
        // Queued requests do not delay the stop: requests due after its end are denied now.
        let end = settings.drain_delay.saturating_add(settings.drain_timeout);
        background.sources.limiter.end_queues_at(clock.now().saturating_add(end));
        let stopping = clock.now();
        listening.drain(settings).await;
        background.finish(end.saturating_sub(clock.now().since(stopping)))?;
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
    // The receiver is gone if the server was stopped.
    let restore = move || _ = restored.send(restore());
    let thread = BackgroundThread::start("restore", Priority::Full, restore).map_err(ServeError::from)?;
    match is_restored.await {
        Ok(result) => result.map(|(limiter, writer)| (limiter, Some(writer))),
        // Only a panic drops the sender without a result.
        Err(_) => {
            thread.join_or_panic();
            unreachable!("the thread ends by sending")
        }
    }
}
