//! Worker threads, each with a current-thread runtime and connections of its own.

use super::{
    ServeError, Settings,
    connection::{self, Drain},
    listen::Stream,
};
use crate::{api::GrpcPort, http2::Http2Settings};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};
use tokio::sync::mpsc;

/// The workers, for as long as connections are to be dealt to them.
pub(super) struct Workers {
    dealer: Dealer,
    /// Yields nothing; ends when every worker and every connection has ended.
    finished: mpsc::Receiver<()>,
}

/// Deals connections to workers.
#[derive(Clone)]
pub(super) struct Dealer {
    workers: Arc<[Worker]>,
    connections_max: usize,
    /// Whether the last connection found no room: it is said once, not for each.
    is_full: Arc<AtomicBool>,
}

struct Worker {
    /// Connections dealt to it that have not ended.
    connections: Arc<AtomicUsize>,
    streams: mpsc::UnboundedSender<Stream>,
}

impl Workers {
    pub(super) fn start(
        settings: &Settings,
        front: &Arc<GrpcPort>,
        drain: &Drain,
    ) -> Result<Self, ServeError> {
        let (alive, finished) = mpsc::channel(1);
        let start_one = |number| {
            let (streams, dealt) = mpsc::unbounded_channel();
            let connections = Arc::new(AtomicUsize::new(0));
            let inside = Inside {
                dealt,
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
                .spawn(move || runtime.block_on(inside.run()))
                .map_err(|source| ServeError::Start { what: "a worker thread", source })?;
            Ok(Worker { connections, streams })
        };
        let workers = (0..settings.threads.get()).map(start_one).collect::<Result<_, _>>()?;
        let connections_max = settings.connections_max;
        let dealer = Dealer { workers, connections_max, is_full: Arc::default() };
        Ok(Self { dealer, finished })
    }

    pub(super) fn dealer(&self) -> Dealer {
        self.dealer.clone()
    }

    /// Completes when every connection has ended. Nothing is dealt any more.
    pub(super) async fn finished(self) {
        let Self { dealer, mut finished } = self;
        drop(dealer);
        while finished.recv().await.is_some() {}
    }
}

impl Dealer {
    /// Gives the connection to the worker with the fewest; closes it if there are as many as there may be. A proxy opens
    /// few long-lived connections, which a hash of addresses would pile up on one core.
    pub(super) fn deal(&self, stream: Stream) {
        let counts = self.workers.iter().map(|worker| worker.connections.load(Ordering::Relaxed));
        let is_full = counts.clone().sum::<usize>() >= self.connections_max;
        if is_full != self.is_full.swap(is_full, Ordering::Relaxed) && is_full {
            tracing::warn!(
                max = self.connections_max,
                "as many connections as there may be; further ones are closed (--max-connections)"
            );
        }
        let fewest = self.workers.iter().zip(counts).min_by_key(|(_, count)| *count);
        if let Some((worker, _)) = fewest.filter(|_| !is_full) {
            worker.connections.fetch_add(1, Ordering::Relaxed);
            // A worker ends only after the last dealer; a stream that it does not take is closed.
            let _ = worker.streams.send(stream);
        }
    }
}

/// What a worker's thread owns.
struct Inside {
    dealt: mpsc::UnboundedReceiver<Stream>,
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

impl Inside {
    async fn run(mut self) {
        let mut running = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                dealt = self.dealt.recv() => match dealt {
                    Some(stream) => {
                        let counted = Counted { connections: Arc::clone(&self.connections), _alive: self.alive.clone() };
                        let serving = connection::serve(stream, Arc::clone(&self.front), self.http2, self.drain.clone());
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
