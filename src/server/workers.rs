//! Worker threads, each with a current-thread runtime and connections of its own.

use super::{
    ServeError,
    connection::{self, Drain},
    listen::Stream,
};
use crate::{grpc::Front, http2::Http2Settings};
use std::{
    num::NonZeroUsize,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
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
pub(super) struct Dealer(Arc<[Worker]>);

struct Worker {
    /// Connections dealt to it that have not ended.
    connections: Arc<AtomicUsize>,
    streams: mpsc::UnboundedSender<Stream>,
}

impl Workers {
    pub(super) fn start(
        count: NonZeroUsize,
        front: &Arc<Front>,
        http2: Http2Settings,
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
                http2,
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
        let workers = (0..count.get()).map(start_one).collect::<Result<_, _>>()?;
        Ok(Self { dealer: Dealer(workers), finished })
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
    /// Gives the connection to the worker with the fewest. A proxy opens few long-lived connections, which a hash of
    /// addresses would pile up on one core.
    pub(super) fn deal(&self, stream: Stream) {
        let fewest = self.0.iter().min_by_key(|worker| worker.connections.load(Ordering::Relaxed));
        if let Some(worker) = fewest {
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
    front: Arc<Front>,
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
