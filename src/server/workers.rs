//! Worker threads, each with a current-thread runtime and connections of its own.

use super::{
    Settings,
    connection::{self, Drain},
    connections::{Admission, Connections},
    tls::TlsOnPlaintext,
};
use crate::api::GrpcPort;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use tidegate_core::clock::Clock;
use tidegate_http2::{ConnectionCounts, Http2Settings};
use tidegate_threads::{BackgroundThread, Priority, StartError};
use tidegate_transport::Accepted;
use tokio::sync::{mpsc, oneshot};

/// The workers, while connections are dispatched to them.
pub(super) struct Workers {
    pub(super) dispatcher: Dispatcher,
    pub(super) counts: Arc<ConnectionCounts>,
    /// Receives nothing; closed when every worker and every connection has ended.
    finished: mpsc::Receiver<()>,
}

/// Dispatches accepted connections to workers.
#[derive(Clone)]
pub(super) struct Dispatcher {
    workers: Arc<[Worker]>,
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
}

struct Worker {
    /// Connections dispatched to it that have not ended.
    load: Arc<AtomicUsize>,
    work: mpsc::UnboundedSender<Work>,
}

/// Sent to a worker.
enum Work {
    Connection(Accepted, Admission),
    /// Dropped, which completes the receiver, when the worker's runtime polls its tasks.
    Ping(oneshot::Sender<()>),
}

impl Workers {
    pub(super) fn start(
        settings: &Settings,
        clock: &Arc<dyn Clock>,
        port: &Arc<GrpcPort>,
        drain: &Drain,
        tls_on_plaintext: &TlsOnPlaintext,
    ) -> Result<Self, StartError> {
        let (alive, finished) = mpsc::channel(1);
        let counts = Arc::<ConnectionCounts>::default();
        let start_one = |number: usize| -> Result<Worker, StartError> {
            let (work, received) = mpsc::unbounded_channel();
            let load = Arc::new(AtomicUsize::new(0));
            let thread = WorkerThread {
                work: received,
                load: Arc::clone(&load),
                port: Arc::clone(port),
                http2: settings.http2,
                counts: settings.is_measured().then(|| Arc::clone(&counts)),
                drain: drain.clone(),
                tls_on_plaintext: tls_on_plaintext.clone(),
                alive: alive.clone(),
            };
            let name = format!("worker-{number}");
            BackgroundThread::start_async(&name, Priority::Full, async move || thread.run().await)?;
            Ok(Worker { load, work })
        };
        let workers = (0..settings.threads.get()).map(start_one).collect::<Result<_, _>>()?;
        let connections = Connections::new(settings.connections, Arc::clone(&counts));
        let dispatcher = Dispatcher { workers, connections, clock: Arc::clone(clock) };
        Ok(Self { dispatcher, counts, finished })
    }

    /// Completes when every worker's runtime has polled its tasks once more.
    pub(super) async fn all_respond(&self) {
        let pings: Vec<_> = self.dispatcher.workers.iter().map(Worker::ping).collect();
        for polled in pings {
            // The worker responds by dropping the sender.
            let _ = polled.await;
        }
    }

    /// Completes when every connection has ended, with its pending work in the store. Nothing is dispatched any more.
    pub(super) async fn finished(self) {
        let Self { dispatcher, mut finished, .. } = self;
        drop(dispatcher);
        while finished.recv().await.is_some() {}
    }
}

impl Dispatcher {
    /// Passes the connection to the worker with the fewest connections, or closes it if there is no room. A proxy opens few long-lived
    /// connections, which a hash of addresses could pile up on one core.
    pub(super) fn dispatch(&self, accepted: Accepted) {
        let Some(admission) = self.connections.admit(accepted.peer, self.clock.now()) else { return };
        let least_loaded = self.workers.iter().min_by_key(|worker| worker.load.load(Ordering::Relaxed));
        if let Some(worker) = least_loaded {
            worker.load.fetch_add(1, Ordering::Relaxed);
            // A worker ends only after the last dispatcher; a connection that it does not take is closed.
            let _ = worker.work.send(Work::Connection(accepted, admission));
        }
    }
}

impl Worker {
    fn ping(&self) -> oneshot::Receiver<()> {
        let (ping, polled) = oneshot::channel();
        // A worker ends only after the last dispatcher.
        let _ = self.work.send(Work::Ping(ping));
        polled
    }
}

/// The state that a worker's thread owns.
struct WorkerThread {
    work: mpsc::UnboundedReceiver<Work>,
    load: Arc<AtomicUsize>,
    port: Arc<GrpcPort>,
    http2: Http2Settings,
    /// None where nothing reads them.
    counts: Option<Arc<ConnectionCounts>>,
    drain: Drain,
    tls_on_plaintext: TlsOnPlaintext,
    alive: mpsc::Sender<()>,
}

/// Counts a connection while it is open.
struct Counted {
    load: Arc<AtomicUsize>,
    _admission: Admission,
    _alive: mpsc::Sender<()>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.load.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WorkerThread {
    async fn run(mut self) {
        let mut running = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                next = self.work.recv() => match next {
                    Some(Work::Connection(accepted, admission)) => {
                        running.spawn(self.serve(accepted, admission));
                    }
                    Some(Work::Ping(ping)) => drop(ping),
                    None => break,
                },
                Some(_) = running.join_next() => {}
            }
        }
        while running.join_next().await.is_some() {}
        // Pending work of connections in the store ends with this runtime.
        if let Some(store) = self.port.shared_store() {
            store.finished().await;
        }
    }

    fn serve(&self, accepted: Accepted, admission: Admission) -> impl Future<Output = ()> + use<> {
        let shared = (Arc::clone(&admission.activity), self.counts.clone());
        let counted =
            Counted { load: Arc::clone(&self.load), _admission: admission, _alive: self.alive.clone() };
        let (drain, tls_on_plaintext) = (self.drain.clone(), self.tls_on_plaintext.clone());
        let port = Arc::clone(&self.port);
        let serving = connection::serve(accepted, port, self.http2, shared, drain, tls_on_plaintext);
        async move {
            serving.await;
            drop(counted);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_worker_responds_to_a_ping_only_by_taking_its_work() {
        let (work, mut received) = mpsc::unbounded_channel();
        let mut ping = Worker { load: Arc::default(), work }.ping();
        assert!(tokio::time::timeout(Duration::from_secs(60), &mut ping).await.is_err());
        drop(received.recv().await);
        assert!(tokio::time::timeout(Duration::from_secs(60), ping).await.is_ok());
    }
}
