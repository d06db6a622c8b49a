//! Worker threads, each with a current-thread runtime and connections of its own.

use super::{
    ServeError, Settings,
    connection::{self, Drain},
};
use crate::{api::GrpcPort, http2::Http2Settings, transport::Accepted};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use tokio::sync::mpsc;

/// The workers, for as long as connections are dispatched to them.
pub(super) struct Workers {
    dispatcher: Dispatcher,
    /// Yields nothing; ends when every worker and every connection has ended.
    finished: mpsc::Receiver<()>,
}

/// Dispatches accepted connections to workers.
#[derive(Clone)]
pub(super) struct Dispatcher {
    workers: Arc<[Worker]>,
    connections_max: usize,
    /// Whether the last connection found no room: logged once, not for each.
    is_full: Arc<AtomicBool>,
}

struct Worker {
    /// Connections dispatched to it that have not ended.
    connections: Arc<AtomicUsize>,
    accepted: mpsc::UnboundedSender<Accepted>,
}

impl Workers {
    pub(super) fn start(
        settings: &Settings,
        front: &Arc<GrpcPort>,
        drain: &Drain,
    ) -> Result<Self, ServeError> {
        let (alive, finished) = mpsc::channel(1);
        let start_one = |number| -> Result<Worker, ServeError> {
            let (accepted, received) = mpsc::unbounded_channel();
            let connections = Arc::new(AtomicUsize::new(0));
            let thread = WorkerThread {
                accepted: received,
                connections: Arc::clone(&connections),
                front: Arc::clone(front),
                http2: settings.http2,
                drain: drain.clone(),
                alive: alive.clone(),
            };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime =
                runtime.map_err(|source| ServeError::Start { what: "a worker's runtime", source })?;
            std::thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || runtime.block_on(thread.run()))
                .map_err(|source| ServeError::Start { what: "a worker thread", source })?;
            Ok(Worker { connections, accepted })
        };
        let workers = (0..settings.threads.get()).map(start_one).collect::<Result<_, _>>()?;
        let connections_max = settings.connections_max;
        let dispatcher = Dispatcher { workers, connections_max, is_full: Arc::default() };
        Ok(Self { dispatcher, finished })
    }

    pub(super) fn dispatcher(&self) -> Dispatcher {
        self.dispatcher.clone()
    }

    /// Completes when every connection has ended. Nothing is dispatched any more.
    pub(super) async fn finished(self) {
        let Self { dispatcher, mut finished } = self;
        drop(dispatcher);
        while finished.recv().await.is_some() {}
    }
}

impl Dispatcher {
    /// Gives the connection to the worker with the fewest; closes it if there are as many as there may be. A proxy opens
    /// few long-lived connections, which a hash of addresses would pile up on one core.
    pub(super) fn dispatch(&self, accepted: Accepted) {
        let counts = self.workers.iter().map(|worker| worker.connections.load(Ordering::Relaxed));
        let is_full = counts.clone().sum::<usize>() >= self.connections_max;
        if is_full != self.is_full.swap(is_full, Ordering::Relaxed) && is_full {
            tracing::warn!(
                max = self.connections_max,
                "connection limit reached; closing further connections (--max-connections)"
            );
        }
        let fewest = self.workers.iter().zip(counts).min_by_key(|(_, count)| *count);
        if let Some((worker, _)) = fewest.filter(|_| !is_full) {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            // A worker ends only after the last dispatcher; a connection that it does not take is closed.
            let _ = worker.accepted.send(accepted);
        }
    }
}

/// The state that a worker's thread owns.
struct WorkerThread {
    accepted: mpsc::UnboundedReceiver<Accepted>,
    connections: Arc<AtomicUsize>,
    front: Arc<GrpcPort>,
    http2: Http2Settings,
    drain: Drain,
    alive: mpsc::Sender<()>,
}

/// Counts a connection for as long as it lives.
struct Counted {
    connections: Arc<AtomicUsize>,
    _alive: mpsc::Sender<()>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WorkerThread {
    async fn run(mut self) {
        let mut running = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.accepted.recv() => match accepted {
                    Some(accepted) => {
                        let counted = Counted { connections: Arc::clone(&self.connections), _alive: self.alive.clone() };
                        let serving = connection::serve(accepted, Arc::clone(&self.front), self.http2, self.drain.clone());
                        running.spawn(async move {
                            serving.await;
                            drop(counted);
                        });
                    }
                    None => break,
                },
                Some(_) = running.join_next() => {}
            }
        }
        while running.join_next().await.is_some() {}
    }
}
