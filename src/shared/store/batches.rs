//! Batches: calls that arrive together are sent together, one call of the script for all of them.
//!
//! Each worker has a link of its own: a task with a connection. It sends what has arrived when nothing is in flight, or enough has
//! arrived; what arrives meanwhile is the next batch. So batches are small while there is little to do, and large under load.

use super::{Failure, Inner};
use crate::{
    shared::script::{Batch, EncodedRequest, Reply, SCRIPT, Verdict},
    store::Key,
};
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use std::{
    cell::RefCell,
    collections::VecDeque,
    fmt::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};

/// Decisions of one call of the script, which occupies the store for some microseconds each.
const DECISIONS_MAX: usize = 64;

/// Decisions that are sent while others are in flight.
const DECISIONS_ENOUGH: usize = 16;

/// Batches of one worker in flight at once.
const IN_FLIGHT_MAX: usize = 4;

/// Time limit of a connection, where that of a decision is shorter. Calls do not wait that long for it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// A request for the store.
pub(super) struct Call {
    pub(super) request: EncodedRequest,
    /// Closed when the caller does not wait any more: the call is then not sent.
    pub(super) reply: oneshot::Sender<Result<Verdict, Failure>>,
}

thread_local! {
    /// The links of this thread, by number of their store.
    static LINKS: RefCell<Vec<(u64, mpsc::UnboundedSender<Call>)>> = const { RefCell::new(Vec::new()) };
}

/// The links of this thread.
pub(super) struct Links;

impl Links {
    /// Sends a call on this thread's link to the store. The link is started in the runtime of this task.
    pub(super) fn send(store: &Arc<Inner>, call: Call) {
        LINKS.with_borrow_mut(|links| {
            // A link ends with its runtime.
            links.retain(|(_, link)| !link.is_closed());
            let index = links.iter().position(|(number, _)| *number == store.number).unwrap_or_else(|| {
                let (sender, calls) = mpsc::unbounded_channel();
                tokio::spawn(Link::new(Arc::clone(store)).run(calls));
                links.push((store.number, sender));
                links.len() - 1
            });
            // A call that is dropped here fails at its caller.
            let _ = links[index].1.send(call);
        });
    }
}

/// A connection of a link.
#[derive(Clone)]
struct Connection {
    commands: MultiplexedConnection,
    /// Outages of the store before it was made.
    outages: u64,
    /// Whether it has ended, as a call has found.
    has_ended: Arc<AtomicBool>,
}

/// A worker's way to the store.
struct Link {
    store: Arc<Inner>,
    connection: Option<Connection>,
    waiting: VecDeque<Call>,
    in_flight: JoinSet<()>,
}

impl Link {
    fn new(store: Arc<Inner>) -> Self {
        Self { store, connection: None, waiting: VecDeque::new(), in_flight: JoinSet::new() }
    }

    /// Serves calls until all senders are gone.
    async fn run(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        loop {
            tokio::select! {
                call = calls.recv() => match call {
                    Some(call) => self.waiting.push_back(call),
                    None => return,
                },
                Some(_) = self.in_flight.join_next() => {}
            }
            // Tasks that are ready to decide do so first: their calls are part of this batch.
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
            let (batch, replies) = self.next_batch();
            if replies.is_empty() {
                continue;
            }
            match self.connection().await {
                Some(connection) => {
                    let store = Arc::clone(&self.store);
                    self.in_flight.spawn(async move { store.send(connection, &batch, replies).await });
                }
                None => fail(replies),
            }
        }
    }

    /// Calls whose callers still wait, as many as are sent together.
    fn next_batch(&mut self) -> (Batch, Vec<oneshot::Sender<Result<Verdict, Failure>>>) {
        let (mut batch, mut replies) = (Batch::default(), Vec::new());
        while replies.len() < DECISIONS_MAX
            && let Some(Call { request, reply }) = self.waiting.pop_front()
        {
            if reply.is_closed() {
                continue;
            }
            if !replies.is_empty() && !batch.has_room(&request) {
                self.waiting.push_front(Call { request, reply });
                break;
            }
            batch.push(&request);
            replies.push(reply);
        }
        (batch, replies)
    }

    /// The connection, made anew after an outage or if it has ended; none if that fails.
    async fn connection(&mut self) -> Option<Connection> {
        let outages = || self.store.outages.load(Ordering::Relaxed);
        let is_good = |connection: &Connection| {
            connection.outages == outages() && !connection.has_ended.load(Ordering::Relaxed)
        };
        if let Some(connection) = self.connection.as_ref().filter(|connection| is_good(connection)) {
            return Some(connection.clone());
        }
        self.connection = None;
        if !self.store.is_available.load(Ordering::Relaxed) {
            return None;
        }
        match self.store.connection(self.store.settings.timeout.max(CONNECT_TIMEOUT)).await {
            Ok(mut commands) => {
                commands.set_response_timeout(self.store.settings.timeout);
                let connection = Connection { commands, outages: outages(), has_ended: Arc::default() };
                self.connection = Some(connection.clone());
                Some(connection)
            }
            Err(error) => {
                self.store.fail(&error);
                None
            }
        }
    }
}

fn fail(replies: Vec<oneshot::Sender<Result<Verdict, Failure>>>) {
    for reply in replies {
        // Its caller may have ceased to wait.
        let _ = reply.send(Err(Failure::Failed));
    }
}

impl Inner {
    /// Calls the script for a batch, and passes the verdicts on.
    async fn send(
        &self,
        mut connection: Connection,
        batch: &Batch,
        replies: Vec<oneshot::Sender<Result<Verdict, Failure>>>,
    ) {
        self.counts.sent(replies.len());
        match self.evaluate(&mut connection.commands, batch).await {
            Ok(reply) => {
                self.responded();
                if reply.is_new_store {
                    tracing::warn!("the shared store has lost its keys: counters begin anew");
                }
                for (reply, verdict) in replies.into_iter().zip(reply.verdicts) {
                    let _ = reply.send(verdict.ok_or(Failure::Learning));
                }
            }
            Err(error) => {
                if error.is_io_error() && !error.is_timeout() {
                    // The store may have closed an idle connection: whether it is gone, the next one shows.
                    connection.has_ended.store(true, Ordering::Relaxed);
                    self.no_response(&error);
                } else if !error.is_timeout() && error.code() != Some("TIDEGATECLOCK") {
                    // Callers count timeouts, and clocks that differ matter to calendars alone.
                    self.fail(&error);
                }
                fail(replies);
            }
        }
    }

    /// Calls the script; with its text if the store states that it does not know it, and therefore ran nothing.
    pub(super) async fn evaluate(
        &self,
        connection: &mut MultiplexedConnection,
        batch: &Batch,
    ) -> Result<Reply, RedisError> {
        let command = self.command("EVALSHA", &self.script_digest, batch);
        let value = match connection.send_packed_command(&command).await.and_then(Value::extract_error) {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.counts.repeated();
                let command = self.command("EVAL", SCRIPT, batch);
                connection.send_packed_command(&command).await.and_then(Value::extract_error)?
            }
            result => result?,
        };
        let malformed = || RedisError::from((ErrorKind::UnexpectedReturnType, "not a reply of the script"));
        let Value::Array(items) = value else { return Err(malformed()) };
        let items = items.into_iter().map(|item| match item {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        });
        let items: Option<Vec<Vec<u8>>> = items.collect();
        Reply::new(items.ok_or_else(malformed)?, batch).map_err(|_| malformed())
    }

    fn command(&self, name: &str, script: &str, batch: &Batch) -> Cmd {
        let mut command = Cmd::new();
        command.arg(name).arg(script).arg(batch.keys().len() + 1).arg(&self.layout_key);
        let mut name = String::with_capacity(self.settings.prefix.len() + 32);
        for key in batch.keys() {
            name.clear();
            self.write_key(*key, &mut name);
            command.arg(&name);
        }
        command.arg(&self.layout).arg(batch.requests()).arg("").arg(batch.lease_requests());
        batch.limits().for_each(|limit| _ = command.arg(limit));
        command
    }

    /// The name of a counter in the store: the prefix and 32 hexadecimal digits.
    fn write_key(&self, key: Key, out: &mut String) {
        let (high, low) = key.halves();
        write!(out, "{}{high:016x}{low:016x}", self.settings.prefix)
            .expect("writing to a string does not fail");
    }
}
