//! Batches: calls that arrive together are sent together. Decisions of one group are one call of the script.
//!
//! Each worker has a link of its own to each node: a task with a connection. It sends what has arrived as soon as nothing is in flight, or
//! enough has arrived. What arrives meanwhile is the next batch. Batches are therefore small under low load, and large under high load.

use super::{connection::Connection, failure::Failure, nodes::Node, shared_store::SharedStore};
use crate::{
    PeerId,
    script::{Batch, Command, EncodedRequest, Script, Verdict},
};
use redis::{RedisError, aio::MultiplexedConnection};
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

/// The most decisions of one call of the script. Each occupies the store for some microseconds.
const DECISIONS_MAX: usize = 64;

/// This many decisions are sent even while others are in flight.
const DECISIONS_ENOUGH: usize = 16;

/// Batches of one worker in flight at once.
const IN_FLIGHT_MAX: usize = 4;

/// Time limit for a connection if that of decisions is shorter. Calls do not wait that long for the connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// Responses are read for this time after the deadline of decisions. Hits that such a response reports as charged are taken back if nobody
/// was admitted for them.
const LATE: Duration = Duration::from_secs(10);

/// A call fails after this many redirections: hash slots move rarely, and the deadline is short.
const REDIRECTS_MAX: u8 = 16;

/// A call to a node.
pub(super) struct Call {
    /// The group of its counters.
    pub(super) group: u16,
    pub(super) task: Task,
    redirects: u8,
    /// Whether another node, which still has the hash slot, has named this node (ASK).
    is_asking: bool,
}

/// Work for the task of a node.
#[expect(clippy::large_enum_variant, reason = "nearly all are decisions, which would be boxed on their path")]
pub(super) enum Task {
    /// Decide. If the caller has given up, the reply is closed: the call is not sent then, unless it gives hits back.
    Decide { request: EncodedRequest, peer: PeerId, reply: oneshot::Sender<Result<Verdict, Failure>> },
    /// Send a command. The reply is the number that it counted.
    Command { command: Arc<Command>, reply: oneshot::Sender<Result<u64, Failure>> },
}

impl Call {
    pub(super) fn new(group: u16, task: Task) -> Self {
        Self { group, task, redirects: 0, is_asking: false }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.is_asking
    }

    fn is_closed(&self) -> bool {
        matches!(&self.task, Task::Decide { reply, request, .. } if reply.is_closed() && !request.gives_back())
    }

    pub(super) fn fail(self) {
        // The caller may have given up.
        match self.task {
            Task::Decide { reply, .. } => _ = reply.send(Err(Failure::Failed)),
            Task::Command { reply, .. } => _ = reply.send(Err(Failure::Failed)),
        }
    }

    /// The same call to another node, or again to the same node. None after too many redirections.
    pub(super) fn redirected(mut self, is_asking: bool) -> Option<Self> {
        if self.redirects == REDIRECTS_MAX {
            self.fail();
            return None;
        }
        self.redirects += 1;
        self.is_asking = is_asking;
        Some(self)
    }
}

/// Calls that are one command of the store.
pub(super) enum Flight {
    /// Decisions of one group.
    Decisions { group: u16, is_asking: bool, batch: Batch, calls: Vec<Call> },
    /// A command.
    Alone(Call),
}

thread_local! {
    /// Number of this thread among those with links.
    static WORKER: usize = {
        static WORKERS: AtomicUsize = AtomicUsize::new(0);
        WORKERS.fetch_add(1, Ordering::Relaxed)
    };
    /// The links of this thread, by number of their node.
    static LINKS: RefCell<Vec<(u64, mpsc::UnboundedSender<Call>)>> = const { RefCell::new(Vec::new()) };
}

/// The links of this thread to nodes.
pub(super) struct Links;

impl Links {
    /// Sends a call on this thread's link to the node that has its group.
    pub(super) fn send(store: &Arc<SharedStore>, call: Call) {
        match store.nodes.of(call.group) {
            Some(node) => Self::send_to(store, &node, call),
            None => call.fail(),
        }
    }

    /// Sends a command for counters of a group. The response is the number that it counted.
    pub(super) fn command(
        store: &Arc<SharedStore>,
        group: u16,
        command: Arc<Command>,
    ) -> oneshot::Receiver<Result<u64, Failure>> {
        let (reply, response) = oneshot::channel();
        Self::send(store, Call::new(group, Task::Command { command, reply }));
        response
    }

    /// Sends a call on this thread's link to a node. If there is no link, starts one in the runtime of this task.
    pub(super) fn send_to(store: &Arc<SharedStore>, node: &Arc<Node>, call: Call) {
        LINKS.with_borrow_mut(|links| {
            // A link ends with its runtime, or after its node has left the cluster.
            links.retain(|(_, link)| !link.is_closed());
            let index = links.iter().position(|(number, _)| *number == node.number).unwrap_or_else(|| {
                let (sender, calls) = mpsc::unbounded_channel();
                tokio::spawn(Link::new(Arc::clone(store), Arc::clone(node)).run(calls));
                links.push((node.number, sender));
                links.len() - 1
            });
            // If the call is dropped here, its caller gets a failure.
            let _ = links[index].1.send(call);
        });
    }
}

/// A worker's connection to a node, and its calls.
struct Link {
    store: Arc<SharedStore>,
    node: Arc<Node>,
    connection: Option<Connection>,
    waiting: VecDeque<Call>,
    in_flight: JoinSet<()>,
}

impl Link {
    fn new(store: Arc<SharedStore>, node: Arc<Node>) -> Self {
        Self { store, node, connection: None, waiting: VecDeque::new(), in_flight: JoinSet::new() }
    }

    /// Sends calls until all senders are dropped.
    async fn run(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        loop {
            tokio::select! {
                call = calls.recv() => match call {
                    Some(call) => self.waiting.push_back(call),
                    None => return,
                },
                Some(_) = self.in_flight.join_next() => {}
            }
            // Tasks that are ready to decide run first: their calls become part of this batch.
            tokio::task::yield_now().await;
            while let Ok(call) = calls.try_recv() {
                self.waiting.push_back(call);
            }
            self.send_waiting().await;
        }
    }

    async fn send_waiting(&mut self) {
        loop {
            let in_flight = self.in_flight.len();
            let is_enough = self.waiting.len() >= DECISIONS_ENOUGH && in_flight < IN_FLIGHT_MAX;
            if self.waiting.is_empty() || (in_flight > 0 && !is_enough) {
                return;
            }
            let flights = self.next_flights();
            if flights.is_empty() {
                continue;
            }
            let Some(connection) = self.connection().await else {
                flights.into_iter().for_each(Flight::fail);
                continue;
            };
            let work = self.store.unfinished.begin();
            // Each command is written when its task is first polled. The runtime of a worker polls new tasks in order.
            let mut flying = JoinSet::new();
            for flight in flights {
                let (store, node, connection) =
                    (Arc::clone(&self.store), Arc::clone(&self.node), connection.clone());
                flying.spawn(async move { store.send(&node, connection, flight).await });
            }
            let sending = tokio::spawn(async move {
                flying.join_all().await;
                drop(work);
            });
            // A late response does not delay the calls after it.
            let deadline = self.store.settings.timeout;
            self.in_flight.spawn(async move { _ = tokio::time::timeout(deadline, sending).await });
        }
    }

    /// The next calls to send together, without those whose callers have given up. Releases and ends are first. If a client ends its last
    /// request and then starts another, the start finds the slot free, although it joins decisions that arrived earlier.
    fn next_flights(&mut self) -> Vec<Flight> {
        let (mut flights, mut closings): (Vec<Flight>, usize) = (Vec::new(), 0);
        for _ in 0..DECISIONS_MAX {
            let Some(call) = self.waiting.pop_front() else { break };
            if call.is_closed() {
                continue;
            }
            if let Task::Command { command, .. } = &call.task {
                let closes = matches!(command.script, Script::Release | Script::End);
                let at = if closes { closings } else { flights.len() };
                flights.insert(at, Flight::Alone(call));
                closings += usize::from(closes);
                continue;
            }
            let call = match flights.iter_mut().rev().find(|flight| flight.is_for(&call)) {
                Some(flight) => flight.push(call),
                None => Some(call),
            };
            if let Some(call) = call {
                let (group, is_asking) = (call.group, call.is_asking);
                let mut flight =
                    Flight::Decisions { group, is_asking, batch: Batch::default(), calls: Vec::new() };
                let rest = flight.push(call);
                debug_assert!(rest.is_none(), "a request fits an empty batch");
                flights.push(flight);
            }
        }
        flights
    }

    /// The connection. It is made anew after an outage, or if it has ended. None if that fails.
    async fn connection(&mut self) -> Option<Connection> {
        let is_good = |connection: &Connection| {
            self.node.is_of_present(connection) && !connection.has_ended.load(Ordering::Relaxed)
        };
        if let Some(connection) = self.connection.as_ref().filter(|connection| is_good(connection)) {
            return Some(connection.clone());
        }
        self.connection = None;
        if !self.node.is_available() {
            return None;
        }
        let node = Arc::clone(&self.node);
        let mut of_workers = node.connection_of(WORKER.with(|worker| *worker)).lock().await;
        if let Some(connection) = of_workers.as_ref().filter(|connection| is_good(connection)) {
            self.connection = Some(connection.clone());
            return self.connection.clone();
        }
        match self.connect().await {
            Ok((mut commands, run)) => {
                commands.set_response_timeout(self.store.settings.timeout + LATE);
                let connection =
                    Connection { commands, run, outages: self.node.outages(), has_ended: Arc::default() };
                *of_workers = Some(connection.clone());
                self.connection = Some(connection.clone());
                Some(connection)
            }
            Err(error) => {
                self.store.fail(&self.node, &error);
                None
            }
        }
    }
}

impl Link {
    async fn connect(&self) -> Result<(MultiplexedConnection, Arc<[u8]>), RedisError> {
        let timeout = self.store.settings.timeout.max(CONNECT_TIMEOUT);
        let mut commands = self.store.connection(&self.node, timeout).await?;
        let run = self.store.store_run(&mut commands).await?;
        Ok((commands, run))
    }
}

impl Flight {
    fn fail(self) {
        match self {
            Self::Decisions { calls, .. } => calls.into_iter().for_each(Call::fail),
            Self::Alone(call) => call.fail(),
        }
    }

    /// Whether the call fits this flight, apart from its size.
    fn is_for(&self, call: &Call) -> bool {
        matches!(self, Self::Decisions { group, is_asking, .. } if *group == call.group && *is_asking == call.is_asking)
    }

    /// Adds a call for a decision. Returns the call if there is no room.
    fn push(&mut self, call: Call) -> Option<Call> {
        let Self::Decisions { batch, calls, .. } = self else { return Some(call) };
        let Task::Decide { request, .. } = &call.task else { return Some(call) };
        if !calls.is_empty() && !batch.has_room(request) {
            return Some(call);
        }
        batch.push(request);
        calls.push(call);
        None
    }

    /// Whether ASKING has to precede the command.
    pub(super) fn is_asking(&self) -> bool {
        match self {
            Self::Decisions { is_asking, .. } => *is_asking,
            Self::Alone(call) => call.is_asking,
        }
    }

    pub(super) fn into_calls(self) -> Vec<Call> {
        match self {
            Self::Decisions { calls, .. } => calls,
            Self::Alone(call) => vec![call],
        }
    }
}
