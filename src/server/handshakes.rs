//! TLS handshakes, on a thread of low priority: their cryptography delays no decision.
//!
//! That thread only computes. The thread that accepts logs the results and passes connections to workers: a thread that may be preempted
//! for long must not hold a lock that decisions need.
//!
//! Invariants: at most `max` handshakes are in progress or queued, and none is in progress for longer than the timeout. Beyond the bound
//! the oldest is ended, queued handshakes first, so that clients that never complete theirs cannot lock others out. Peers take turns, so
//! that a peer with many handshakes delays no other.

use super::{ServeError, fair_queue::FairQueue};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tidegate_core::clock::Clock;
use tidegate_counts::Label;
use tidegate_threads::{BackgroundThread, Priority, runtime};
use tidegate_transport::{Accepted, HandshakeError, HandshakeResult, Peer, RefusedConnection, TlsPort};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, mpsc, oneshot},
    time::{MissedTickBehavior, interval, timeout},
};

/// Bounds on handshakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct HandshakeBounds {
    pub(super) timeout: Duration,
    pub(super) max: usize,
}

/// Receives connections that are ready to be served.
pub(super) type Ready = Arc<dyn Fn(Accepted) + Send + Sync>;

/// Starts handshakes; those in progress end with the last of its clones.
#[derive(Clone)]
pub(super) struct Handshakes(mpsc::Sender<Job>);

struct Job {
    accepted: Accepted,
    port: Arc<TlsPort>,
    ready: Ready,
}

impl Handshakes {
    /// To be called on the thread that accepts.
    pub(super) fn start(bounds: HandshakeBounds, clock: &Arc<dyn Clock>) -> Result<Self, ServeError> {
        let thread = HandshakeThread::start()?;
        let (jobs, received) = mpsc::channel(1);
        let (ended, ends) = mpsc::unbounded_channel();
        let (clock, started, queue) = (Arc::clone(clock), BTreeMap::new(), FairQueue::new());
        let running = Running { bounds, clock, started, next: 0, queue, thread, ended };
        tokio::spawn(running.run(received, ends));
        Ok(Self(jobs))
    }

    /// Starts the handshake of a connection, which is given to `ready` when it is complete.
    pub(super) async fn begin(&self, accepted: Accepted, port: &Arc<TlsPort>, ready: &Ready) {
        // The receiver ends after the last sender.
        let _ = self.0.send(Job { accepted, port: Arc::clone(port), ready: Arc::clone(ready) }).await;
    }
}

/// Most handshakes that have not been polled yet; further ones stay in the queue.
const WAITING_MAX: usize = 64;

/// Refused connections that wait at most for their clients to read why; further ones are closed at once.
const LINGERING_MAX: usize = 64;

/// Time after which a full thread is checked again.
const PACE: Duration = Duration::from_millis(5);

/// The thread that drives handshakes, with a runtime of its own.
struct HandshakeThread {
    runtime: Handle,
    /// Handshakes that have not been polled yet.
    waiting: Arc<AtomicUsize>,
    /// Places of refused connections that are not closed yet.
    lingering: Arc<Semaphore>,
    /// Ends the thread, and the handshakes in progress, when dropped.
    _keep: oneshot::Sender<()>,
}

impl HandshakeThread {
    fn start() -> Result<Self, ServeError> {
        let runtime = runtime().map_err(|source| ServeError::Start { what: "a runtime", source })?;
        let (keep, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        // An error, since nothing is sent.
        let run = async move || _ = ended.await;
        BackgroundThread::start_on(runtime, "tls-handshakes", Priority::Low, run)?;
        let lingering = Arc::new(Semaphore::new(LINGERING_MAX));
        Ok(Self { runtime: handle, waiting: Arc::default(), lingering, _keep: keep })
    }

    /// Whether another handshake should be started.
    fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < WAITING_MAX
    }

    fn spawn(&self, handshake: impl Future<Output = ()> + Send + 'static) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::clone(&self.waiting);
        self.runtime.spawn(async move {
            waiting.fetch_sub(1, Ordering::Relaxed);
            handshake.await;
        });
    }
}

/// Handshakes in progress.
struct Running {
    bounds: HandshakeBounds,
    clock: Arc<dyn Clock>,
    /// The oldest first.
    started: BTreeMap<u64, Started>,
    next: u64,
    /// Handshakes that are not started.
    queue: FairQueue<Job>,
    thread: HandshakeThread,
    ended: mpsc::UnboundedSender<Ended>,
}

struct Started {
    port: Arc<TlsPort>,
    peer: Peer,
    ready: Ready,
    /// Ends the handshake when dropped.
    _keep: oneshot::Sender<()>,
}

/// The result of a handshake, by its number.
struct Ended(u64, Result<Accepted, HandshakeError>);

impl Running {
    async fn run(mut self, mut jobs: mpsc::Receiver<Job>, mut ends: mpsc::UnboundedReceiver<Ended>) {
        let mut paces = interval(PACE);
        paces.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_waiting = self.queue.len() > 0;
            tokio::select! {
                Some(ended) = ends.recv() => self.end(ended),
                job = jobs.recv() => match job {
                    Some(job) => self.queue(job),
                    // Nothing is accepted any more, and a connection that is not ready would have no time to be served.
                    None => return,
                },
                // There may be room by now.
                _ = paces.tick(), if is_waiting => {}
            }
            while self.thread.has_room()
                && let Some(job) = self.queue.pop()
            {
                self.start(job);
            }
        }
    }

    fn queue(&mut self, job: Job) {
        while self.queue.len() > 0 && self.queue.len() + self.started.len() >= self.bounds.max.max(1) {
            if let Some(Job { accepted, port, .. }) = self.queue.pop_of_most() {
                report(&port, HandshakeResult::Evicted, accepted.peer, "", &*self.clock);
            }
        }
        self.queue.push(job.accepted.peer, job);
    }

    fn start(&mut self, Job { accepted, port, ready }: Job) {
        while self.started.len() >= self.bounds.max.max(1)
            && let Some((_, Started { port, peer, .. })) = self.started.pop_first()
        {
            report(&port, HandshakeResult::Evicted, peer, "", &*self.clock);
        }
        let number = self.next;
        self.next += 1;
        let (keep, evicted) = oneshot::channel();
        let (peer, limit, ended) = (accepted.peer, self.bounds.timeout, self.ended.clone());
        let (handshaking, lingering) = (Arc::clone(&port), Arc::clone(&self.thread.lingering));
        let task = async move {
            let handshake = timeout(limit, handshaking.handshake(accepted));
            let result = tokio::select! {
                biased;
                // The eviction has been reported.
                _ = evicted => return,
                result = handshake => result,
            };
            let timed_out =
                |_| HandshakeError { result: HandshakeResult::TimedOut, cause: String::new() }.into();
            let (result, refused) = match result.map_err(timed_out).flatten() {
                Ok(accepted) => (Ok(accepted), None),
                Err(RefusedConnection { error, unread }) => (Err(error), unread),
            };
            // The receiver ends when the server stops. The connection no longer takes the place of a handshake.
            let _ = ended.send(Ended(number, result));
            if let (Some(refused), Ok(_place)) = (refused, lingering.try_acquire()) {
                refused.linger().await;
            }
        };
        self.thread.spawn(task);
        self.started.insert(number, Started { port, peer, ready, _keep: keep });
    }

    fn end(&mut self, Ended(number, result): Ended) {
        // It may have been evicted since.
        let Some(Started { port, peer, ready, .. }) = self.started.remove(&number) else { return };
        match result {
            Ok(accepted) => {
                report(&port, HandshakeResult::Completed, peer, "", &*self.clock);
                ready(accepted);
            }
            Err(HandshakeError { result, cause }) => report(&port, result, peer, &cause, &*self.clock),
        }
    }
}

/// Counts a result, and logs it now and then.
fn report(port: &TlsPort, result: HandshakeResult, peer: Peer, error: &str, clock: &dyn Clock) {
    let now = Duration::from_nanos(clock.now().as_nanos());
    if let Some(count) = port.counts().count(result, now) {
        let (result, remedy) = (result.name(), result.remedy());
        tracing::warn!(port = port.name(), %peer, result, count, error, "TLS handshake failed: {remedy}");
    }
}
