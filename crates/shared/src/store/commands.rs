//! The commands that run scripts: their text, their replies, and what follows from an error.

use super::{
    OnFailure, StoreEvent,
    batches::{Call, Flight, Links, Task},
    connection::Connection,
    failure::{Failure, Fault, is_response},
    hash_slots,
    nodes::Node,
    parts,
    shared_store::SharedStore,
};
use crate::{
    PeerId,
    quota::PartCall,
    script::{
        Batch, Command, EncodedRequest, LIFE_ARGUMENT, Reply, Script, Verdict, encode_part, mark, undo_of,
    },
};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, aio::MultiplexedConnection, cmd};
use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{clock::Clock, limit::Timestamp, store::Key};

/// Pause before a call is sent again if the keys of its hash slot are being moved.
const MIGRATION_PAUSE: Duration = Duration::from_millis(1);

impl SharedStore {
    /// Sends one command, and passes the results to its callers.
    pub(super) async fn send(self: &Arc<Self>, node: &Arc<Node>, mut connection: Connection, flight: Flight) {
        let (commands, run, sent) = (&mut connection.commands, &connection.run, self.clock.now());
        let Flight { calls, batch } = &flight;
        let Some(Call { group, is_asking, .. }) = calls.first() else { return };
        let result = match flight.command() {
            None => {
                self.counts.sent(calls.len());
                let reply = self.evaluate(commands, *group, run, batch, *is_asking).await;
                reply.map(|reply| (Some(reply), 0))
            }
            Some(command) => {
                let counted = self.send_alone(commands, *group, command, *is_asking).await;
                counted.map(|counted| (None, counted))
            }
        };
        let duration = self.clock.now().since(sent);
        // A late response does not count as one: the callers have given up.
        if duration <= self.settings.timeout && result.as_ref().err().is_none_or(is_response) {
            node.responded();
        }
        match result {
            Ok((reply, counted)) => {
                self.counts.round_trips.add(duration, 1);
                self.respond(node, flight.calls, reply, counted);
            }
            Err(error) => self.call_failed(node, &connection, flight, &error).await,
        }
    }

    /// Sends the calls again if the node has stated that it ran nothing. Else passes on the failure, and stops using what it puts in doubt.
    async fn call_failed(
        self: &Arc<Self>,
        node: &Arc<Node>,
        connection: &Connection,
        flight: Flight,
        error: &RedisError,
    ) {
        let Flight { calls, batch } = flight;
        let Some(calls) = self.redirect(node, error, calls).await else { return };
        let (flight, mut failure) = (Flight { calls, batch }, Failure::Failed);
        match Fault::of(error) {
            Fault::Connection => {
                // The store may have closed an idle connection, or a firewall may have dropped it. The next connection shows whether the
                // store still responds.
                connection.has_ended.store(true, Ordering::Relaxed);
                // The link has counted the calls without a response in time.
                if !error.is_timeout() && node.is_of_present(connection) {
                    self.no_response(node, 1, error);
                }
            }
            Fault::Counters => {
                failure = Failure::Damaged;
                let group = flight.calls.first().map_or(0, |call| call.group);
                self.note_damage(node, group, flight.keys().iter().copied(), Some(error));
            }
            Fault::Node => self.fail(node, error),
        }
        flight.calls.into_iter().for_each(|call| call.fail(failure));
    }

    /// Passes on the verdicts of the reply, or what a command has counted.
    fn respond(self: &Arc<Self>, node: &Node, calls: Vec<Call>, reply: Option<Reply>, counted: u64) {
        if let Some(reply) = &reply {
            note_loss(node, reply);
        }
        let mut verdicts = reply.into_iter().flat_map(|reply| reply.verdicts);
        for call in calls {
            match call.task {
                Task::Decide { request, peer, reply } => {
                    let verdict = verdicts.next().ok_or(Failure::Failed);
                    let verdict = verdict.and_then(|verdict| verdict.map_err(Failure::from));
                    match verdict {
                        Err(Failure::Damaged) => self.note_damage(node, call.group, request.keys(), None),
                        Err(Failure::Clocks) => note_clocks(node),
                        _ => {}
                    }
                    if let Err(Ok(verdict)) = reply.send(verdict) {
                        self.respond_to_none((call.group, peer), &request, &verdict);
                    }
                }
                Task::Command { reply, .. } => _ = reply.send(Ok(counted)),
            }
        }
    }

    /// Takes back the hits of a request whose caller has given up, if the caller then denied the request or returned an error. Hits of a
    /// request that another policy has admitted stay charged.
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

    /// Logs the keys of a call with a damaged counter, and the error of the script if there is one. At most once between two heartbeats.
    fn note_damage(
        &self,
        node: &Node,
        group: u16,
        keys: impl Iterator<Item = Key>,
        error: Option<&RedisError>,
    ) {
        if !node.has_logged_damage.swap(true, Ordering::Relaxed) {
            let mut named = Cmd::new();
            self.write_keys(group, keys, &mut named);
            let keys = named.args_iter().filter_map(|arg| match arg {
                redis::Arg::Simple(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
                _ => None,
            });
            let keys = keys.collect::<Vec<_>>().join(" ");
            let error = error.map(tracing::field::display);
            tracing::error!(%node, keys, error, "a counter in the shared store is damaged: delete its key");
        }
    }

    /// Calls the script without requests if the key of the layout is missing, so that the script writes it. False if another server has
    /// written its own.
    pub(super) async fn keep_layout(
        &self,
        connection: &mut MultiplexedConnection,
        node: &Node,
    ) -> Result<bool, RedisError> {
        match cmd("GET").arg(self.layout_key(0)).query_async::<Option<String>>(connection).await? {
            Some(found) => return Ok(found.starts_with(&self.layout.load().text)),
            None => {
                let run = self.store_run(connection).await?;
                note_loss(node, &self.evaluate(connection, 0, &run, &Batch::default(), false).await?);
            }
        }
        Ok(true)
    }

    /// Sends the calls again if the node has stated that it ran nothing, because it does not have their hash slot. Returns the calls if the
    /// error is another one.
    async fn redirect(
        self: &Arc<Self>,
        node: &Arc<Node>,
        error: &RedisError,
        calls: Vec<Call>,
    ) -> Option<Vec<Call>> {
        let ErrorKind::Server(kind) = error.kind() else { return Some(calls) };
        let host = node.address.as_ref().map_or("", |(host, _)| host);
        let target = error.redirect_node().and_then(|(address, _)| hash_slots::address(address, host));
        let group = calls.first().map(|call| call.group);
        let (target, is_asking) = match (kind, target) {
            (ServerErrorKind::Moved, Some(address)) => {
                // Other hash slots have probably moved too: wakes the keeper, which reads the map.
                self.failed.notify_one();
                (self.nodes.at(address, group), false)
            }
            (ServerErrorKind::Ask, Some(address)) => (self.nodes.at(address, None), true),
            (ServerErrorKind::TryAgain, _) => {
                tokio::time::sleep(MIGRATION_PAUSE).await;
                self.failed.notify_one();
                (Arc::clone(node), calls.iter().any(|call| call.is_asking))
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
            command.arg(1 + batch.keys.len() + batch.given.len());
            command.arg(self.layout_key(group));
            self.write_keys(group, batch.keys.iter().copied(), command);
            self.write_marks(group, batch.given.iter().copied(), command);
            command.arg(&self.layout.load().text).arg(&batch.requests).arg(run).arg(&batch.lease_requests);
            batch.limits.iter().for_each(|limit| _ = command.arg(&limit[..]));
        };
        let value = self.run(connection, Script::Decide, is_asking, write).await?;
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

    /// Sends a command. Returns the number that it counted.
    async fn send_alone(
        &self,
        connection: &mut MultiplexedConnection,
        group: u16,
        command: &Command,
        is_asking: bool,
    ) -> Result<u64, RedisError> {
        let keys = command.keys(&self.key_prefix(group));
        let write = |call: &mut Cmd| _ = call.arg(keys.len()).arg(&keys).arg(&command.arguments);
        let number = |value: &Value| match value {
            Value::Int(number) => Ok(u64::try_from(*number).unwrap_or(0)),
            _ => Err((ErrorKind::UnexpectedReturnType, "not the numbers of a script").into()),
        };
        match &self.run(connection, command.script, is_asking, write).await? {
            _ if command.script == Script::Undo => Ok(0),
            // For reservations, the number of others that had passed their deadlines follows.
            Value::Array(numbers) if let [counted, lost] = &numbers[..] => {
                self.counts.lost(number(lost)?);
                number(counted)
            }
            counted => number(counted),
        }
    }

    /// Calls the script that changes parts of quota. Returns its reply.
    pub(super) async fn request_parts(
        &self,
        connection: &mut MultiplexedConnection,
        run: &[u8],
        calls: &[PartCall],
        now: Timestamp,
    ) -> Result<Vec<Vec<u8>>, RedisError> {
        let write = |command: &mut Cmd| {
            command.arg(1 + calls.len());
            command.arg(self.layout_key(0));
            self.write_keys(0, calls.iter().map(|call| call.bucket), command);
            command.arg(&self.layout.load().text).arg(run).arg(LIFE_ARGUMENT);
            calls.iter().for_each(|call| _ = command.arg(encode_part(&call.request, &call.algorithm, now)));
        };
        let reply = self.run(connection, Script::Quota, false, write).await?;
        redis::from_redis_value(reply).map_err(RedisError::from)
    }

    /// Calls a script. `write` adds the number of keys, the keys and the arguments. Calls again with the text of the script if the node
    /// states that it does not have it, and has therefore run nothing.
    async fn run(
        &self,
        connection: &mut MultiplexedConnection,
        script: Script,
        is_asking: bool,
        write: impl Fn(&mut Cmd),
    ) -> Result<Value, RedisError> {
        let command = |name: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script);
            write(&mut command);
            command
        };
        // A store that was never reached has no script yet.
        let digest = self.digests.get().map_or("", |digests| &digests[script as usize]);
        match send(connection, command("EVALSHA", digest), is_asking).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.counts.events.count(StoreEvent::ScriptLoad);
                send(connection, command("EVAL", script.text()), is_asking).await
            }
            result => result,
        }
    }

    /// The beginning of the keys of a group, with its hash tag if the store is a cluster.
    pub(super) fn key_prefix(&self, group: u16) -> String {
        key_prefix(&self.settings.prefix, self.is_cluster.then_some(group))
    }

    /// The key of a group's layout.
    pub(super) fn layout_key(&self, group: u16) -> String {
        self.key_prefix(group) + "layout"
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

/// Logs that requests with calendars are not decided. At most once between two heartbeats.
fn note_clocks(node: &Node) {
    if !node.has_logged_clocks.swap(true, Ordering::Relaxed) {
        tracing::error!(
            %node,
            "requests with a calendar limit are not decided: the clocks of the shared store and of this server are more than an \
             hour apart"
        );
    }
}

/// Logs once that a store had lost its keys.
fn note_loss(node: &Node, reply: &Reply) {
    if reply.is_new_store && !node.has_logged_loss.swap(true, Ordering::Relaxed) {
        tracing::warn!(%node, "the shared store has lost keys: counters begin anew");
    }
}

/// The beginning of the keys of a group in a cluster, or of all keys in another store.
pub(super) fn key_prefix(prefix: &str, group: Option<u16>) -> String {
    group.map_or_else(|| prefix.to_owned(), |group| prefix.to_owned() + &hash_slots::hash_tag(group))
}

/// Sends a command. If the node does not have its hash slot yet, ASKING precedes it. Both are written together.
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
