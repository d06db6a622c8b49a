//! The commands of the scripts: their text, their replies, and what follows from an error.

use super::{
    OnFailure, StoreEvent,
    batches::{Call, Closing, Flight, Links, Task},
    connection::Connection,
    failure::Failure,
    hash_slots,
    inner::Inner,
    layout::Digests,
    nodes::Node,
    parts,
    quotas::PartCall,
};
use crate::{
    PeerId,
    script::{
        Batch, END_SCRIPT, EncodedRequest, LIFE_ARGUMENT, QUOTA_SCRIPT, RELEASE_SCRIPT, RENEW_SCRIPT,
        RESET_SCRIPT, Reply, SCRIPT, UNDO_SCRIPT, Verdict, encode_part, mark, undo_of,
    },
};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection};
use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{clock::Clock, limit::Timestamp, store::Key};

/// Time for which the token of hits that were taken back is kept: longer than the store is tried.
const TOKEN_MS: u64 = 120_000;

/// The reply to a command.
enum Replied {
    /// To a batch of decisions.
    Batch(Reply),
    /// To another one: the number of slots that were released, of reservations that have ended, of counters that were reset, or 1 for a ticket
    /// that is held.
    Alone(u64),
}

/// Pause before a call is sent again while the keys of its hash slot are being moved.
const MIGRATION_PAUSE: Duration = Duration::from_millis(1);

impl Inner {
    /// Sends one command, and passes the results on.
    pub(super) async fn send(self: &Arc<Self>, node: &Arc<Node>, mut connection: Connection, flight: Flight) {
        let (commands, run, sent) = (&mut connection.commands, &connection.run, self.clock.now());
        let result = match &flight {
            Flight::Decisions { group, batch, calls, .. } => {
                self.counts.sent(calls.len());
                self.evaluate(commands, *group, run, batch, flight.is_asking()).await.map(Replied::Batch)
            }
            Flight::Alone(call) => {
                self.send_alone(commands, call, flight.is_asking()).await.map(Replied::Alone)
            }
        };
        let error = match result {
            Ok(reply) => {
                let duration = self.clock.now().since(sent);
                // A late response is none to those that wait for it: they have given up.
                if duration <= self.settings.timeout {
                    node.responded();
                }
                self.counts.round_trips.add(duration, 1);
                return self.respond(node, flight, reply);
            }
            Err(error) => error,
        };
        if let Some(calls) = self.redirect(node, &error, flight).await {
            if error.is_io_error() && !error.is_timeout() {
                // The store may have closed an idle connection: whether it is gone, the next one shows.
                connection.has_ended.store(true, Ordering::Relaxed);
                if node.is_of_present(&connection) {
                    self.no_response(node, &error);
                }
            } else if !error.is_timeout() && error.code() != Some("TIDEGATECLOCK") {
                // Callers count timeouts, and clocks that differ matter to calendars alone.
                self.fail(node, &error);
            }
            calls.into_iter().for_each(Call::fail);
        }
    }

    fn respond(self: &Arc<Self>, node: &Node, flight: Flight, replied: Replied) {
        let (reply, counters) = match replied {
            Replied::Batch(reply) => (Some(reply), 0),
            Replied::Alone(counters) => (None, counters),
        };
        if let Some(reply) = &reply {
            note_loss(node, reply);
        }
        let is_learning = reply.as_ref().is_some_and(|reply| reply.is_learning);
        let undecided = if is_learning { Failure::Learning } else { Failure::Damaged };
        let mut verdicts = reply.into_iter().flat_map(|reply| reply.verdicts);
        for call in flight.into_calls() {
            match call.task {
                Task::Decide { request, peer, reply } => {
                    let verdict = verdicts.next().ok_or(Failure::Failed);
                    let verdict = verdict.and_then(|verdict| verdict.ok_or(undecided));
                    if verdict == Err(Failure::Damaged) {
                        self.note_damage(node, call.group, &request);
                    }
                    if let Err(Ok(verdict)) = reply.send(verdict) {
                        self.respond_to_none((call.group, peer), &request, &verdict);
                    }
                }
                Task::Undo { reply, .. } => _ = reply.send(Ok(())),
                Task::Close { reply, .. } | Task::Renew { reply, .. } | Task::Reset { reply, .. } => {
                    _ = reply.send(Ok(counters));
                }
            }
        }
    }

    /// Takes back the hits of a request whose caller has given up, and was denied or got an error. One that another policy has admitted
    /// stays charged.
    fn respond_to_none(
        self: &Arc<Self>,
        (group, peer): (u16, PeerId),
        request: &EncodedRequest,
        verdict: &Verdict,
    ) {
        if matches!(self.settings.on_failure, OnFailure::Deny | OnFailure::Error)
            && let Some(undo) = undo_of(request, verdict)
        {
            parts::spawn_undo(self, group, peer, undo);
        }
    }

    /// Logs, now and then, the keys of a request with a damaged counter.
    fn note_damage(&self, node: &Node, group: u16, request: &EncodedRequest) {
        if !node.has_logged_damage.swap(true, Ordering::Relaxed) {
            let mut keys = Cmd::new();
            self.write_keys(group, request.keys(), &mut keys);
            let keys = keys.args_iter().filter_map(|arg| match arg {
                redis::Arg::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            });
            let keys = keys.collect::<Vec<_>>().join(" ");
            tracing::error!(%node, keys, "a counter in the shared store is damaged: delete its key");
        }
    }

    /// Calls the script for nothing if the key of the layout is gone: the script writes it. False if another server has written its own.
    pub(super) async fn keep_layout(
        &self,
        connection: &mut MultiplexedConnection,
        node: &Node,
    ) -> Result<bool, RedisError> {
        let mut get = Cmd::new();
        get.arg("GET");
        self.write_layout_key(0, &mut get);
        match get.query_async::<Option<String>>(connection).await? {
            Some(found) => return Ok(found.starts_with(&self.layout.load().text)),
            None => {
                let run = self.store_run(connection).await?;
                note_loss(node, &self.evaluate(connection, 0, &run, &Batch::default(), false).await?);
            }
        }
        Ok(true)
    }

    /// Sends the calls again where the node has stated that it ran nothing because it does not have their hash slot; returns them
    /// if the error is another one.
    async fn redirect(
        self: &Arc<Self>,
        node: &Arc<Node>,
        error: &RedisError,
        flight: Flight,
    ) -> Option<Vec<Call>> {
        let ErrorKind::Server(kind) = error.kind() else { return Some(flight.into_calls()) };
        let host = node.address.as_ref().map_or("", |(host, _)| host);
        let target = error.redirect_node().and_then(|(address, _)| hash_slots::address(address, host));
        let calls = flight.into_calls();
        let group = calls.first().map(|call| call.group);
        let (target, is_asking) = match (kind, target) {
            (ServerErrorKind::Moved, Some(address)) => {
                // Other hash slots have probably moved too: the keeper reads the map.
                self.failed.notify_one();
                (self.nodes.at(address, group), false)
            }
            (ServerErrorKind::Ask, Some(address)) => (self.nodes.at(address, None), true),
            (ServerErrorKind::TryAgain, _) => {
                tokio::time::sleep(MIGRATION_PAUSE).await;
                self.failed.notify_one();
                (Arc::clone(node), calls.iter().any(Call::is_asking))
            }
            _ => return Some(calls),
        };
        self.counts.events.count(StoreEvent::Redirection);
        for call in calls {
            if let Some(call) = call.redirected(is_asking) {
                Links::send_to(self, &target, call);
            }
        }
        None
    }

    /// Calls the script for a batch of one group.
    pub(super) async fn evaluate(
        &self,
        connection: &mut MultiplexedConnection,
        group: u16,
        run: &[u8],
        batch: &Batch,
        is_asking: bool,
    ) -> Result<Reply, RedisError> {
        let write = |command: &mut Cmd| {
            command.arg(1 + batch.keys().len() + batch.given().len());
            self.write_layout_key(group, command);
            self.write_keys(group, batch.keys().iter().copied(), command);
            self.write_marks(group, batch.given().iter().copied(), command);
            command.arg(&self.layout.load().text).arg(batch.requests()).arg(run).arg(batch.lease_requests());
            batch.limits().for_each(|limit| _ = command.arg(limit));
        };
        let value = self.run(connection, (&self.digests().script, SCRIPT), is_asking, write).await?;
        let malformed = || RedisError::from((ErrorKind::UnexpectedReturnType, "not a reply of the script"));
        let Value::Array(items) = value else { return Err(malformed()) };
        let items = items.into_iter().map(|item| match item {
            Value::BulkString(bytes) => Some(bytes),
            _ => None,
        });
        let items: Option<Vec<Vec<u8>>> = items.collect();
        let reply = Reply::new(items.ok_or_else(malformed)?, batch).map_err(|_| malformed())?;
        self.holders.saw_epoch(reply.epoch);
        self.counts.lost(reply.lost);
        Ok(reply)
    }

    /// Calls the script that takes hits back, that releases slots, that ends reservations, that renews both, or that resets counters. Returns
    /// the number of slots that were held, of reservations that were open, or of counters; of a renewal 1 if all is held, else 0.
    async fn send_alone(
        &self,
        connection: &mut MultiplexedConnection,
        call: &Call,
        is_asking: bool,
    ) -> Result<u64, RedisError> {
        let Digests { undo, release, end, renew, reset, .. } = self.digests();
        let script = match &call.task {
            Task::Undo { .. } => (&**undo, UNDO_SCRIPT),
            Task::Close { closing, .. } => match &**closing {
                Closing::Slots(_) => (&**release, RELEASE_SCRIPT),
                Closing::Reservations(_) => (&**end, END_SCRIPT),
            },
            Task::Renew { .. } => (&**renew, RENEW_SCRIPT),
            Task::Reset { .. } => (&**reset, RESET_SCRIPT),
            Task::Decide { .. } => return Ok(0),
        };
        let reply =
            self.run(connection, script, is_asking, |command| self.write_alone(call, command)).await?;
        match &call.task {
            Task::Undo { .. } => Ok(0),
            Task::Close { closing, .. } if matches!(**closing, Closing::Slots(_)) => number(reply),
            Task::Reset { .. } => number(reply),
            _ => self.closed(reply),
        }
    }

    /// Adds the number of keys, the keys and the arguments of the script for such a call.
    fn write_alone(&self, call: &Call, command: &mut Cmd) {
        let group = call.group;
        match &call.task {
            Task::Undo { undo, token, .. } => {
                command.arg(1 + 2 * undo.keys().len());
                command.arg(format!("{}undo:{token:032x}", self.key_prefix(group)));
                self.write_keys(group, undo.keys(), command);
                self.write_marks(group, undo.keys(), command);
                undo.arguments().into_iter().for_each(|argument| _ = command.arg(argument));
                command.arg(TOKEN_MS);
            }
            Task::Close { closing, .. } => match &**closing {
                Closing::Slots(release) => {
                    command.arg(release.keys().len());
                    self.write_keys(group, release.keys(), command);
                    release.arguments().into_iter().for_each(|argument| _ = command.arg(argument));
                }
                Closing::Reservations(end) => {
                    command.arg(end.keys().len());
                    self.write_keys(group, end.keys(), command);
                    end.arguments().into_iter().for_each(|argument| _ = command.arg(argument));
                }
            },
            Task::Renew { renewal, .. } => {
                command.arg(renewal.keys().len());
                self.write_keys(group, renewal.keys(), command);
                renewal.arguments().for_each(|argument| _ = command.arg(argument));
            }
            Task::Reset { keys, .. } => {
                command.arg(2 * keys.len());
                self.write_keys(group, keys.iter().copied(), command);
                self.write_marks(group, keys.iter().copied(), command);
            }
            Task::Decide { .. } => {}
        }
    }

    /// Calls the script that changes parts of quota; returns its reply.
    pub(super) async fn request_parts(
        &self,
        connection: &mut MultiplexedConnection,
        run: &[u8],
        calls: &[PartCall],
        now: Timestamp,
    ) -> Result<Vec<Vec<u8>>, RedisError> {
        let write = |command: &mut Cmd| {
            command.arg(1 + calls.len());
            self.write_layout_key(0, command);
            self.write_keys(0, calls.iter().map(|call| call.bucket), command);
            command.arg(&self.layout.load().text).arg(run).arg(LIFE_ARGUMENT);
            calls.iter().for_each(|call| _ = command.arg(encode_part(&call.request, &call.algorithm, now)));
        };
        let reply = self.run(connection, (&self.digests().quota, QUOTA_SCRIPT), false, write).await?;
        redis::from_redis_value(reply).map_err(RedisError::from)
    }

    /// The first number of a reply; the second one is that of reservations that had passed their deadlines.
    fn closed(&self, reply: Value) -> Result<u64, RedisError> {
        let Value::Array(numbers) = reply else {
            return Err((ErrorKind::UnexpectedReturnType, "not two numbers").into());
        };
        let numbers: Vec<u64> = numbers.into_iter().map(number).collect::<Result<_, _>>()?;
        let [closed, lost] = numbers[..] else {
            return Err((ErrorKind::UnexpectedReturnType, "not two numbers").into());
        };
        self.counts.lost(lost);
        Ok(closed)
    }

    /// Calls a script, whose number of keys, keys and arguments `write` adds; with its text if the node states that it does not know it, and therefore ran nothing.
    async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        (digest, text): (&str, &str),
        is_asking: bool,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let command = |name: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script);
            write(&mut command);
            command
        };
        match send(connection, command("EVALSHA", digest), is_asking).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.counts.events.count(StoreEvent::ScriptLoad);
                send(connection, command("EVAL", text), is_asking).await
            }
            result => result,
        }
    }

    /// The digests of the scripts. A store that was never reached knows none of them.
    fn digests(&self) -> &Digests {
        const NOT_LOADED: String = String::new();
        static NONE: Digests = Digests {
            script: NOT_LOADED,
            undo: NOT_LOADED,
            release: NOT_LOADED,
            end: NOT_LOADED,
            renew: NOT_LOADED,
            reset: NOT_LOADED,
            quota: NOT_LOADED,
        };
        self.digests.get().unwrap_or(&NONE)
    }

    /// The beginning of the keys of a group: with its hash tag, if the store is a cluster.
    pub(super) fn key_prefix(&self, group: u16) -> String {
        key_prefix(&self.settings.prefix, self.is_cluster.then_some(group))
    }

    fn write_layout_key(&self, group: u16, command: &mut Cmd) {
        match self.is_cluster {
            true => command.arg(format!("{}layout", self.key_prefix(group))),
            false => command.arg(&self.layout_key),
        };
    }

    /// Adds the names of counters: the prefix and 32 hexadecimal digits.
    fn write_keys(&self, group: u16, keys: impl Iterator<Item = Key>, command: &mut Cmd) {
        self.for_each_name(group, keys, |name| _ = command.arg(name));
    }

    /// Adds the names of the marks of counters.
    fn write_marks(&self, group: u16, keys: impl Iterator<Item = Key>, command: &mut Cmd) {
        self.for_each_name(group, keys, |name| _ = command.arg(mark(name)));
    }

    fn for_each_name(&self, group: u16, keys: impl Iterator<Item = Key>, mut each: impl FnMut(&str)) {
        let mut name = self.key_prefix(group);
        let length = name.len();
        for key in keys {
            let (high, low) = key.halves();
            name.truncate(length);
            write!(name, "{high:016x}{low:016x}").expect("writing to a string does not fail");
            each(&name);
        }
    }
}

/// The number that a script has returned.
fn number(value: Value) -> Result<u64, RedisError> {
    match value {
        Value::Int(counters) => Ok(u64::try_from(counters).unwrap_or(0)),
        _ => Err((ErrorKind::UnexpectedReturnType, "not a number").into()),
    }
}

/// Logs, once, that a store had lost its keys.
fn note_loss(node: &Node, reply: &Reply) {
    if reply.is_new_store && !node.has_logged_loss.swap(true, Ordering::Relaxed) {
        tracing::warn!(%node, "the shared store has lost keys: counters begin anew");
    }
}

/// The beginning of the keys of a group in a cluster, or of all keys of another store.
pub(super) fn key_prefix(prefix: &str, group: Option<u16>) -> String {
    let mut text = prefix.to_owned();
    text.extend(group.map(hash_slots::hash_tag));
    text
}

/// Sends a command, after ASKING if the node does not have its hash slot yet. Both are written together.
async fn send(
    connection: &mut MultiplexedConnection,
    command: Cmd,
    is_asking: bool,
) -> Result<Value, RedisError> {
    if !is_asking {
        return connection.send_packed_command(&command).await.and_then(Value::extract_error);
    }
    let mut commands = Pipeline::new();
    commands.cmd("ASKING").add_command(command);
    let mut values = connection.send_packed_commands(&commands, 1, 1).await?;
    let value = values.pop().unwrap_or(Value::Nil);
    value.extract_error()
}
