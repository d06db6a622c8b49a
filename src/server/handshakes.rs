//! TLS handshakes, on threads that run when nothing else needs a core: their cryptography delays no decision.
//!
//! Those threads compute and nothing else. Results are logged, and connections given to workers, on the thread that accepts: a thread
//! that may be preempted for long must not hold a lock that decisions need.
//!
//! Invariants: at most `max` handshakes are in progress, and none longer than the timeout. Beyond the bound the oldest is
//! ended, so that clients that never complete theirs cannot lock others out.

use super::{
    ServeError,
    when_idle::{PACE, WhenIdle},
};
use crate::{
    clock::Clock,
    transport::{Accepted, HandshakeError, HandshakeResult, Peer, TlsPort},
};
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
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
        let failed = |source| ServeError::Start { what: "the threads of TLS handshakes", source };
        let when_idle = WhenIdle::start("tls-handshakes", clock).map_err(failed)?;
        let (jobs, received) = mpsc::channel(1);
        let (ended, ends) = mpsc::unbounded_channel();
        let running =
            Running { bounds, clock: Arc::clone(clock), started: BTreeMap::new(), next: 0, when_idle, ended };
        tokio::spawn(running.run(received, ends));
        Ok(Self(jobs))
    }

    /// Starts the handshake of a connection, which is given to `ready` when it is complete. Waits while too many are ready to
    /// be computed; further connections then wait in the backlog of the listener.
    pub(super) async fn begin(&self, accepted: Accepted, port: &Arc<TlsPort>, ready: &Ready) {
        // The receiver ends after the last sender.
        let _ = self.0.send(Job { accepted, port: Arc::clone(port), ready: Arc::clone(ready) }).await;
    }
}

/// Handshakes in progress.
struct Running {
    bounds: HandshakeBounds,
    clock: Arc<dyn Clock>,
    /// The oldest first. Dropped before the threads, which wakes the tasks.
    started: BTreeMap<u64, Started>,
    next: u64,
    when_idle: WhenIdle,
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
            let has_room = self.when_idle.has_room();
            tokio::select! {
                Some(ended) = ends.recv() => self.end(ended),
                job = jobs.recv(), if has_room => match job {
                    Some(job) => self.start(job),
                    // Nothing is accepted any more; connections that are not ready would have no time to be served.
                    None => return,
                },
                // There may be room meanwhile.
                _ = paces.tick(), if !has_room => {}
            }
        }
    }

    fn start(&mut self, Job { accepted, port, ready }: Job) {
        while self.started.len() >= self.bounds.max.max(1) {
            self.evict_oldest();
        }
        let number = self.next;
        self.next += 1;
        let (keep, evicted) = oneshot::channel();
        let (peer, limit, ended) = (accepted.peer, self.bounds.timeout, self.ended.clone());
        let handshaking = Arc::clone(&port);
        let task = async move {
            let handshake = timeout(limit, handshaking.handshake(accepted));
            let result = tokio::select! {
                biased;
                // It was reported then.
                _ = evicted => return,
                result = handshake => result,
            };
            let timed_out = |_| HandshakeError { result: HandshakeResult::TimedOut, cause: String::new() };
            // The receiver ends when the server stops.
            let _ = ended.send(Ended(number, result.map_err(timed_out).flatten()));
        };
        self.when_idle.spawn(task);
        self.started.insert(number, Started { port, peer, ready, _keep: keep });
    }

    fn end(&mut self, Ended(number, result): Ended) {
        // It may have been evicted meanwhile.
        let Some(Started { port, peer, ready, .. }) = self.started.remove(&number) else { return };
        match result {
            Ok(accepted) => {
                report(&port, HandshakeResult::Completed, peer, "", &*self.clock);
                ready(accepted);
            }
            Err(HandshakeError { result, cause }) => report(&port, result, peer, &cause, &*self.clock),
        }
    }

    fn evict_oldest(&mut self) {
        if let Some((_, Started { port, peer, .. })) = self.started.pop_first() {
            report(&port, HandshakeResult::Evicted, peer, "", &*self.clock);
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
