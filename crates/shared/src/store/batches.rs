//! Batches: calls that arrive together are sent together. Decisions of one group are one call of the script.
//!
//! Each worker has a link of its own to each node: a task with a connection. It sends what has arrived as soon as nothing is in flight, or
//! enough has arrived. What arrives meanwhile is the next batch. Batches are therefore small under low load, and large under high load.

use super::{
    connection::Connection,
    failure::Failure,
    nodes::Node,
    shared_store::{SharedStore, WITHOUT_RESPONSE_MAX},
};
use crate::{
    PeerId,
    script::{Batch, Command, EncodedRequest, Script, Verdict},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tidegate_core::{clock::Clock as _, limit::Timestamp, store::Key};
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

/// Responses are read for this time after the deadline of decisions. A late response may report charged hits. They are taken back if the
/// request was not admitted.
const LATE: Duration = Duration::from_secs(10);

/// A link to a node that has left the cluster ends if it had no call for this time or twice as long. A node without hash slots is left out
/// of the map of the cluster while the first is being moved to it, and then gets calls all the time.
const IDLE: Duration = Duration::from_secs(5);

/// A call fails after this many redirections: hash slots move rarely, and the deadline is short.
const REDIRECTS_MAX: u8 = 16;

/// A call to a node.
pub(super) struct Call {
    /// The group of its counters.
    pub(super) group: u16,
    pub(super) task: Task,
    redirects: u8,
    /// Whether another node, which still has the hash slot, has named this node (ASK). ASKING has to precede the command then.
    pub(super) is_asking: bool,
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

    fn is_closed(&self) -> bool {
        matches!(&self.task, Task::Decide { reply, request, .. } if reply.is_closed() && !request.gives_back())
    }

    pub(super) fn fail(self, failure: Failure) {
        // The caller may have given up.
        match self.task {
            Task::Decide { reply, .. } => _ = reply.send(Err(failure)),
            Task::Command { reply, .. } => _ = reply.send(Err(failure)),
        }
    }

    /// The same call to another node, or again to the same node. None after too many redirections.
    pub(super) fn redirected(mut self, is_asking: bool) -> Option<Self> {
        if self.redirects == REDIRECTS_MAX {
            self.fail(Failure::Failed);
            return None;
        }
        self.redirects += 1;
        self.is_asking = is_asking;
        Some(self)
    }
}

/// Calls that are one command of the store: decisions of one group, or one other call.
pub(super) struct Flight {
    pub(super) calls: Vec<Call>,
    /// The requests of the decisions.
    pub(super) batch: Batch,
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
            None => call.fail(Failure::Failed),
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
            // A link ends with its runtime, or some time after its node has left the cluster.
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
    /// The batches in flight. The result is whether all responses were in time.
    in_flight: JoinSet<bool>,
    /// Batches in a row without all responses in time, if the last had none.
    silence: Option<Silence>,
}

/// Batches in a row without all responses in time.
struct Silence {
    batches: u32,
    /// The end of the first.
    since: Timestamp,
}

/// The shortest silence of a dead connection. A store that is a little late is late on other connections too, and these would be no better.
const SILENCE_MIN: Duration = Duration::from_secs(1);

impl Link {
    fn new(store: Arc<SharedStore>, node: Arc<Node>) -> Self {
        let (waiting, in_flight) = (VecDeque::new(), JoinSet::new());
        Self { store, node, connection: None, waiting, in_flight, silence: None }
    }

    /// Sends calls until all senders are dropped, or the node has left the cluster and gets no more calls.
    async fn run(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        // The first check is at once.
        let (mut checks, mut is_idle) = (tokio::time::interval(IDLE), false);
        loop {
            tokio::select! {
                call = calls.recv() => match call {
                    Some(call) => self.waiting.push_back(call),
                    None => return,
                },
                // A batch that panicked had no response.
                Some(in_time) = self.in_flight.join_next() => self.batch_ended(in_time.unwrap_or(false)),
                _ = checks.tick() => {
                    // Calls are sent by this thread, so that none arrives before the receiver is dropped.
                    if is_idle && calls.is_empty() && self.is_of_no_use() {
                        return;
                    }
                    is_idle = true;
                    continue;
                }
            }
            is_idle = false;
            // Tasks that are ready to decide run first: their calls become part of this batch.
            tokio::task::yield_now().await;
            while let Ok(call) = calls.try_recv() {
                self.waiting.push_back(call);
            }
            self.send_waiting().await;
        }
    }

    /// Whether its node has left the cluster, and no call is in flight or waits.
    fn is_of_no_use(&self) -> bool {
        self.in_flight.is_empty() && !self.store.nodes.now().has(&self.node)
    }

    async fn send_waiting(&mut self) {
        loop {
            let in_flight = self.in_flight.len();
            let is_enough = self.waiting.len() >= DECISIONS_ENOUGH && in_flight < IN_FLIGHT_MAX;
            if self.waiting.is_empty() || (in_flight > 0 && !is_enough) {
                return;
            }
            // Callers may give up while a connection is opened: their calls are not sent.
            let connection = self.connection().await;
            let flights = self.next_flights();
            let Some(connection) = connection else {
                let calls = flights.into_iter().flat_map(|flight| flight.calls);
                calls.for_each(|call| call.fail(Failure::Failed));
                continue;
            };
            if !flights.is_empty() {
                self.send(connection, flights);
            }
        }
    }

    /// Sends one batch.
    fn send(&mut self, connection: Connection, flights: Vec<Flight>) {
        let work = self.store.unfinished.begin();
        let mut unanswered: usize = flights.iter().map(|flight| flight.calls.len()).sum();
        // Each command is written when its task is first polled. The runtime of a worker polls new tasks in order.
        let mut flying = JoinSet::new();
        for flight in flights {
            let (store, node, connection) =
                (Arc::clone(&self.store), Arc::clone(&self.node), connection.clone());
            flying.spawn(async move {
                let calls = flight.calls.len();
                store.send(&node, connection, flight).await;
                calls
            });
        }
        let (store, node, deadline) =
            (Arc::clone(&self.store), Arc::clone(&self.node), self.store.settings.timeout);
        self.in_flight.spawn(async move {
            let responses = async {
                while let Some(calls) = flying.join_next().await {
                    unanswered -= calls.unwrap_or(0);
                }
            };
            if tokio::time::timeout(deadline, responses).await.is_ok() {
                return true;
            }
            // Another connection may have been made since. Its own calls show whether the node responds.
            if node.is_of_present(&connection) {
                store.no_response(&node, unanswered, &format_args!("in {} ms", deadline.as_millis()));
            }
            // A late response does not delay the calls after it.
            tokio::spawn(async move {
                flying.join_all().await;
                drop(work);
            });
            false
        });
    }

    /// Gives up a connection without responses. A firewall may have dropped it, while the connections of other workers have responses, so
    /// that the node stays available. Late responses are still read.
    fn batch_ended(&mut self, in_time: bool) {
        if in_time {
            self.silence = None;
            return;
        }
        let now = self.store.clock.now();
        let silence = self.silence.get_or_insert(Silence { batches: 0, since: now });
        silence.batches += 1;
        if silence.batches < WITHOUT_RESPONSE_MAX || now.since(silence.since) < SILENCE_MIN {
            return;
        }
        let batches = silence.batches;
        self.silence = None;
        if let Some(connection) = self.connection.take().filter(|connection| self.is_good(connection)) {
            connection.has_ended.store(true, Ordering::Relaxed);
            let node = &self.node;
            tracing::warn!(%node, batches, "a connection to the shared store had no responses and is made again");
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
            match &call.task {
                Task::Command { command, .. } => {
                    let closes = matches!(command.script, Script::Release | Script::End);
                    let at = if closes { closings } else { flights.len() };
                    flights.insert(at, Flight { calls: vec![call], batch: Batch::default() });
                    closings += usize::from(closes);
                }
                Task::Decide { request, .. } => {
                    let of_group = flights.iter_mut().rev().find(|flight| flight.is_for(&call));
                    let flight = match of_group.filter(|flight| flight.batch.has_room(request)) {
                        Some(flight) => flight,
                        None => flights.push_mut(Flight { calls: Vec::new(), batch: Batch::default() }),
                    };
                    flight.batch.push(request);
                    flight.calls.push(call);
                }
            }
        }
        flights
    }

    /// Whether the connection is of use: it has not ended, and its node had no outage since it was made.
    fn is_good(&self, connection: &Connection) -> bool {
        self.node.is_of_present(connection) && !connection.has_ended.load(Ordering::Relaxed)
    }

    /// The connection. It is made anew after an outage, or if it has ended. None if that fails.
    async fn connection(&mut self) -> Option<Connection> {
        if let Some(connection) = self.connection.as_ref().filter(|connection| self.is_good(connection)) {
            return Some(connection.clone());
        }
        self.connection = None;
        if !self.node.is_available() {
            return None;
        }
        let node = Arc::clone(&self.node);
        let mut of_workers = node.connection_of(WORKER.with(|worker| *worker)).lock().await;
        if let Some(connection) = of_workers.as_ref().filter(|connection| self.is_good(connection)) {
            self.connection = Some(connection.clone());
            return self.connection.clone();
        }
        let timeout = self.store.settings.timeout;
        match self.store.open(&self.node, timeout.max(CONNECT_TIMEOUT)).await {
            Ok(mut connection) => {
                connection.commands.set_response_timeout(timeout + LATE);
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

/// Responses are read even after the link has ended.
impl Drop for Link {
    fn drop(&mut self) {
        self.in_flight.detach_all();
    }
}

impl Flight {
    /// Whether the call fits these decisions, apart from its size.
    fn is_for(&self, call: &Call) -> bool {
        let is_like = |first: &Call| (first.group, first.is_asking) == (call.group, call.is_asking);
        self.command().is_none() && self.calls.first().is_some_and(is_like)
    }

    /// The keys of the counters.
    pub(super) fn keys(&self) -> &[Key] {
        self.command().map_or(&self.batch.keys, |command| &command.counters)
    }

    /// The command, unless the calls are decisions.
    pub(super) fn command(&self) -> Option<&Command> {
        match &self.calls[..] {
            [Call { task: Task::Command { command, .. }, .. }] => Some(command.as_ref()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SharedSettings, hash_slots::HashSlots};
    use tidegate_core::limiter::GROUPS;

    /// Links of nodes that have left, and their connections, stayed until the end of the process.
    #[tokio::test(start_paused = true)]
    async fn a_link_ends_after_its_node_has_left_the_cluster() {
        let settings = SharedSettings::of_tests("redis+cluster://127.0.0.1:1", Duration::ZERO);
        let store = Arc::new(SharedStore::new(settings).expect("settings of a cluster"));
        let address = |port| ("127.0.0.1".to_owned(), port);
        let (stays, leaves) = (store.nodes.at(address(1), None), store.nodes.at(address(2), None));
        let (of_stays, calls) = mpsc::unbounded_channel();
        tokio::spawn(Link::new(Arc::clone(&store), stays).run(calls));
        let (of_leaves, calls) = mpsc::unbounded_channel();
        tokio::spawn(Link::new(Arc::clone(&store), Arc::clone(&leaves)).run(calls));

        tokio::time::sleep(IDLE * 3).await;
        assert!(!of_leaves.is_closed(), "both are in the cluster");
        store.nodes.update(HashSlots { nodes: vec![address(1)], owners: vec![Some(0); usize::from(GROUPS)] });
        of_leaves.closed().await;
        assert_eq!(Arc::strong_count(&leaves), 1);
        assert!(!of_stays.is_closed());
    }
}
