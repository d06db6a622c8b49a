//! TLS handshakes, on a thread of their own with low priority: their cryptography delays no decision.
//!
//! Invariants: at most `max` handshakes are in progress, and none longer than the timeout. Beyond the bound the oldest is
//! ended, so that clients that never complete theirs cannot lock others out.

use super::ServeError;
use crate::{
    clock::Clock,
    priority::lower_priority,
    transport::{Accepted, HandshakeError, HandshakeResult, Peer, TlsPort},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

/// Accepted connections that wait for the thread. More wait in the backlog of the listener.
const WAITING_MAX: usize = 64;

/// Bounds on handshakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeBounds {
    pub(super) timeout: Duration,
    pub(super) max: usize,
}

/// Receives connections that are ready to be served.
pub(super) type Ready = Arc<dyn Fn(Accepted) + Send + Sync>;

/// Starts handshakes; the thread ends with the last of its clones.
#[derive(Clone)]
pub(super) struct Handshakes(mpsc::Sender<Job>);

struct Job {
    accepted: Accepted,
    port: Arc<TlsPort>,
    ready: Ready,
}

impl Handshakes {
    pub(super) fn start(bounds: HandshakeBounds, clock: &Arc<dyn Clock>) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Start { what: "the thread of TLS handshakes", source };
        let (jobs, received) = mpsc::channel(WAITING_MAX);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let clock = Arc::clone(clock);
        let run = move || {
            lower_priority();
            runtime.block_on(Running { bounds, clock, started: BTreeMap::new(), next: 0 }.run(received));
        };
        std::thread::Builder::new().name("tls-handshakes".into()).spawn(run).map_err(failed)?;
        Ok(Self(jobs))
    }

    /// Starts the handshake of a connection, which is given to `ready` when it is complete.
    pub(super) async fn begin(&self, accepted: Accepted, port: &Arc<TlsPort>, ready: &Ready) {
        // The thread ends after the last sender.
        let _ = self.0.send(Job { accepted, port: Arc::clone(port), ready: Arc::clone(ready) }).await;
    }
}

/// The state of the thread.
struct Running {
    bounds: HandshakeBounds,
    clock: Arc<dyn Clock>,
    /// Handshakes in progress, the oldest first.
    started: BTreeMap<u64, Started>,
    next: u64,
}

struct Started {
    port: Arc<TlsPort>,
    peer: Peer,
    task: AbortHandle,
}

impl Running {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                job = jobs.recv() => match job {
                    Some(job) => self.start(job, &mut tasks),
                    // Nothing is accepted any more; connections that are not ready would have no time to be served.
                    None => return,
                },
                Some(ended) = tasks.join_next() => {
                    // An error is an eviction, which removed the handshake.
                    if let Ok(number) = ended {
                        self.started.remove(&number);
                    }
                }
            }
        }
    }

    fn start(&mut self, Job { accepted, port, ready }: Job, tasks: &mut JoinSet<u64>) {
        while self.started.len() >= self.bounds.max.max(1) {
            self.evict_oldest();
        }
        let number = self.next;
        self.next += 1;
        let (peer, limit, clock) = (accepted.peer, self.bounds.timeout, Arc::clone(&self.clock));
        let handshaking = Arc::clone(&port);
        let task = tasks.spawn(async move {
            match timeout(limit, handshaking.handshake(accepted)).await {
                Ok(Ok(accepted)) => {
                    report(&handshaking, HandshakeResult::Completed, peer, "", &*clock);
                    ready(accepted);
                }
                Ok(Err(HandshakeError { result, cause })) => {
                    report(&handshaking, result, peer, &cause, &*clock);
                }
                Err(_) => report(&handshaking, HandshakeResult::TimedOut, peer, "", &*clock),
            }
            number
        });
        self.started.insert(number, Started { port, peer, task });
    }

    fn evict_oldest(&mut self) {
        if let Some((_, Started { port, peer, task })) = self.started.pop_first() {
            // It may have ended since its end was last looked for.
            if !task.is_finished() {
                task.abort();
                report(&port, HandshakeResult::Evicted, peer, "", &*self.clock);
            }
        }
    }
}

/// Counts a result, and logs it now and then.
fn report(port: &TlsPort, result: HandshakeResult, peer: Peer, error: &str, clock: &dyn Clock) {
    let now = Duration::from_nanos(clock.now().as_nanos());
    if let Some(count) = port.counts().count(result, now) {
        let (result, remedy) = (result.label(), result.remedy());
        tracing::warn!(port = port.name(), %peer, result, count, error, "TLS handshake failed: {remedy}");
    }
}
