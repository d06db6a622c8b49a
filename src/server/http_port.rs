//! The HTTP port: a thread with a runtime of its own, so that long pages and many clients delay neither accepting nor decisions.
//!
//! Invariant: at most `connections_max` connections are open. Beyond it, a new connection displaces a connection without a whole request:
//! of the client with most of these, first connections that are not new and have sent no request, then the one with the oldest last
//! request. If there is none, it displaces a connection of a client with more connections than the new one's client. Otherwise the new
//! connection is closed.

use super::{ServeError, handshakes::Ready, tls::TlsOnPlaintext};
use crate::api::http::{self, HttpState, Progress};
use std::{
    cmp::Reverse,
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tidegate_service::HttpRefusal;
use tidegate_threads::{BackgroundThread, Priority};
use tidegate_transport::{Accepted, Peer};
use tokio::{
    sync::{mpsc, watch},
    task::{AbortHandle, Id, JoinError, JoinSet},
    time::timeout,
};

/// Pause after a failed accept: the process is most likely out of file descriptors.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepted connections that wait for the thread; further ones are closed. As many as the kernel holds for a listener.
const WAITING_MAX: usize = 1_024;

/// Long texts that are written at once. Each takes some megabytes.
const LONG_TEXTS_MAX: usize = 2;

/// The running port.
pub(super) struct HttpPort {
    connections: mpsc::Sender<Accepted>,
    /// The time that requests in progress have to end, once the port stops.
    stop: watch::Sender<Option<Duration>>,
    /// Receives nothing; closed when the thread ends.
    finished: mpsc::Receiver<()>,
}

impl HttpPort {
    pub(super) fn start(state: HttpState, tls_on_plaintext: TlsOnPlaintext) -> Result<Self, ServeError> {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().max_blocking_threads(LONG_TEXTS_MAX).on_thread_start(|| {
            // Otherwise long texts compete with decisions.
            Priority::Awaited.apply();
        });
        let runtime = runtime.build();
        let runtime = runtime.map_err(|source| ServeError::Start { what: "the HTTP runtime", source })?;
        let (connections, accepted) = mpsc::channel(WAITING_MAX);
        let (stop, stopped) = watch::channel(None);
        let (alive, finished) = mpsc::channel(1);
        let thread = PortThread {
            state,
            tls_on_plaintext,
            open: HashMap::new(),
            opened: 0,
            events: Arc::default(),
            stopped,
        };
        let run = move || {
            runtime.block_on(thread.run(accepted));
            // Ends the tasks that are left.
            drop(runtime);
            drop(alive);
        };
        BackgroundThread::start("http", Priority::Full, run)?;
        Ok(Self { connections, stop, finished })
    }

    /// Receives connections that are ready to be served. Beyond the waiting bound they are closed.
    pub(super) fn ready(&self) -> Ready {
        let connections = self.connections.clone();
        Arc::new(move |accepted| _ = connections.try_send(accepted))
    }

    /// Accepts nothing more, and completes when every request has ended, or after `time` at the latest.
    pub(super) async fn stop(mut self, time: Duration) {
        self.stop.send_replace(Some(time));
        while self.finished.recv().await.is_some() {}
    }
}

/// An open connection.
struct Open {
    peer: Peer,
    opening: Opening,
    progress: Arc<Progress>,
    task: AbortHandle,
}

/// The opening of a connection.
struct Opening {
    /// Among all connections.
    number: u64,
    /// Among all connections and requests: the recency of the connection until its first request.
    recency: u64,
}

/// The state of the thread.
struct PortThread {
    state: HttpState,
    tls_on_plaintext: TlsOnPlaintext,
    open: HashMap<Id, Open>,
    /// Number of connections so far.
    opened: u64,
    /// Number of connections and requests so far.
    events: Arc<AtomicU64>,
    stopped: watch::Receiver<Option<Duration>>,
}

impl PortThread {
    async fn run(mut self, mut accepted: mpsc::Receiver<Accepted>) {
        let router = http::router(self.state.clone());
        let mut tasks = JoinSet::new();
        let mut stopped = self.stopped.clone();
        let time = loop {
            tokio::select! {
                // An error means that the server was dropped.
                stopped = stopped.wait_for(Option::is_some) => {
                    break stopped.map_or(None, |time| *time).unwrap_or_default();
                }
                Some(accepted) = accepted.recv() => {
                    self.serve(accepted, &router, &mut tasks);
                    // Reads requests received with their connections, before a burst of further connections evicts them.
                    tokio::task::yield_now().await;
                }
                Some(ended) = tasks.join_next_with_id() => self.remove(ended),
            }
        };
        // Requests that are left are dropped with the runtime, and their responses not sent.
        let ended = async {
            while tasks.join_next().await.is_some() {}
            // Pending work in the store ends with this runtime.
            if let Some(store) = self.state.shared_store() {
                store.finished().await;
            }
        };
        let _ = timeout(time, ended).await;
    }

    fn serve(&mut self, accepted: Accepted, router: &axum::Router, tasks: &mut JoinSet<()>) {
        // Otherwise ended connections would count, and a burst of new connections would evict open ones.
        while let Some(ended) = tasks.try_join_next_with_id() {
            self.remove(ended);
        }
        if self.open.len() >= self.state.bounds().connections_max && !self.evict(accepted.peer) {
            self.state.refusals().count(HttpRefusal::Connections);
            tracing::warn!(peer = %accepted.peer, "all HTTP connections are busy; closing a new one (--http-max-connections)");
            return;
        }
        let (peer, names) = (accepted.peer, accepted.names());
        let stream = match accepted.register() {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot register an HTTP connection with its runtime; closing it");
                return;
            }
        };
        let progress = Arc::<Progress>::default();
        let opening = Opening { number: self.opened, recency: self.events.fetch_add(1, Relaxed) + 1 };
        self.opened += 1;
        progress.set_recency(opening.recency);
        let (state, router, events) = (self.state.clone(), router.clone(), Arc::clone(&self.events));
        let (of_task, tls_on_plaintext) = (Arc::clone(&progress), self.tls_on_plaintext.clone());
        let mut stopped = self.stopped.clone();
        let task = tasks.spawn(async move {
            let drain = async {
                // An error means that the port was dropped, which ends the connection too.
                let _ = stopped.wait_for(Option::is_some).await;
            };
            let client = (peer.to_string().into(), names.into());
            let served =
                http::serve_connection(stream, client, router, state, Arc::clone(&of_task), events, drain);
            if let Err(error) = served.await {
                tracing::debug!(%error, %peer, "HTTP connection failed");
            }
            if of_task.sent_tls() {
                tls_on_plaintext.report(peer);
            }
        });
        self.open.insert(task.id(), Open { peer, opening, progress, task });
    }

    fn remove(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        self.open.remove(&id);
    }

    /// Closes a connection to make room for one of this client; false if there is none to close.
    fn evict(&mut self, newcomer: Peer) -> bool {
        let mut of_peer: HashMap<Peer, usize> = HashMap::new();
        self.open.values().for_each(|open| *of_peer.entry(open.peer).or_default() += 1);
        let max = self.state.bounds().connections_max as u64;
        let age = |open: &Open| {
            let recency = open.progress.recency();
            // A client that was just accepted has not had the time to send a request.
            let is_new = self.opened - open.opening.number <= max / 2;
            let is_silent = recency == open.opening.recency && !is_new;
            Reverse((!is_silent, recency))
        };
        let idle = self.open.iter().filter(|(_, open)| open.progress.is_idle());
        let idlest = idle.max_by_key(|(_, open)| (of_peer[&open.peer], age(open))).map(|(id, _)| *id);
        // A connection with a request in progress or an unread response keeps out no client that has fewer connections.
        let fair = of_peer.get(&newcomer).map_or(0, |count| *count) + 1;
        let busy = self.open.iter().filter(|(_, open)| of_peer[&open.peer] > fair);
        let busiest =
            busy.max_by_key(|(_, open)| (of_peer[&open.peer], open.progress.is_writing(), age(open)));
        let evicted = idlest.or(busiest.map(|(id, _)| *id)).and_then(|id| self.open.remove(&id));
        evicted.inspect(|open| open.task.abort()).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tls::{Tls, TlsSettings};
    use std::{
        io::{Read as _, Write as _},
        net::{Ipv4Addr, TcpListener, TcpStream},
    };
    use tidegate_core::{
        clock::{Clock, SystemClock},
        limit::RequestLimits,
    };
    use tidegate_operations::config::ReloadRequests;
    use tidegate_service::RateLimitService;
    use tidegate_transport::InheritedSockets;

    /// The state of a thread that serves waiting connections, with room for this many open connections.
    fn thread(connections_max: usize) -> (PortThread, watch::Sender<Option<Duration>>) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let service = RateLimitService::restoring(Arc::clone(&clock), RequestLimits::default());
        let bounds = http::HttpBounds { connections_max, ..Default::default() };
        let tls = Tls::start(&TlsSettings::default(), &clock, &ReloadRequests::default()).expect("no TLS");
        let (stop, stopped) = watch::channel(None);
        let thread = PortThread {
            state: HttpState::new(service, http::HttpSettings { bounds, ..Default::default() }, None),
            tls_on_plaintext: tls.on_plaintext("http", &clock),
            open: HashMap::new(),
            opened: 0,
            events: Arc::default(),
            stopped,
        };
        (thread, stop)
    }

    /// A burst evicted connections before their requests were read: beside a flood, up to 6 of 90 probes were closed.
    #[tokio::test]
    async fn a_request_that_arrived_with_its_connection_is_read_before_a_burst_evicts_it() {
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port").local_addr().expect("an address");
        let address = free.to_string().parse().expect("an address");
        let listener =
            tidegate_transport::bind(&[address], &mut InheritedSockets::from_env()).expect("it is free");
        let (connections, accepted) = mpsc::channel(WAITING_MAX);
        let mut clients = Vec::new();
        for _ in 0..100 {
            let mut client = TcpStream::connect(free).expect("it listens");
            client.write_all(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n").expect("the kernel reads");
            connections.try_send(listener[0].accept().await.expect("a connection")).expect("there is room");
            clients.push(client);
        }
        let (thread, stop) = thread(16);
        let is_answered = |client: &mut TcpStream| {
            let mut response = [0; 15];
            client.read_exact(&mut response).is_ok() && response.starts_with(b"HTTP/1.1 200 OK")
        };
        let answered = async move {
            let count =
                move || clients.iter_mut().filter_map(|client| is_answered(client).then_some(())).count();
            let answered = tokio::task::spawn_blocking(count).await.expect("no panic");
            stop.send_replace(Some(Duration::ZERO));
            answered
        };
        let ((), answered) = tokio::join!(thread.run(accepted), answered);
        assert_eq!(answered, 100);
    }
}
