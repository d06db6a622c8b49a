//! The content of a store, for operators.

use super::{
    SharedSettings, StoreAddress,
    commands::key_prefix,
    connect::{connect, hash_slots, version},
    connect_error::ConnectError,
    join::START_TIMEOUT,
    layout,
    nodes::Nodes,
};
use crate::script::algorithm_of;
use redis::{aio::MultiplexedConnection, cmd, pipe};
use std::collections::BTreeMap;

/// The content of a store under one prefix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Version of the store.
    pub version: String,
    /// Number of its nodes: 1, or the primaries of a cluster.
    pub nodes: u32,
    /// Memory that the whole store uses.
    pub memory_bytes: u64,
    /// Whether the key of the layout exists and has this version.
    pub layout: bool,
    /// Servers with a recent heartbeat.
    pub servers: u32,
    /// Number of counters, by algorithm.
    pub counters: BTreeMap<&'static str, u64>,
    /// Counters whose state cannot be read.
    pub damaged: u64,
    /// Counters without an expiry.
    pub without_expiry: u64,
}

/// Keys that are read at once.
const KEYS_AT_ONCE: usize = 500;

impl Contents {
    /// Reads all keys under the prefix. Counters that are created or expire meanwhile may be missing, and some may be counted twice.
    pub async fn read(settings: &SharedSettings) -> Result<Self, ConnectError> {
        let address = settings.address.to_string();
        let failed = |error| ConnectError::Store { address: address.clone(), error };
        let nodes = match hash_slots(settings, None, START_TIMEOUT).await.map_err(failed)? {
            Some(map) => Nodes::cluster(map),
            None => Nodes::one(),
        };
        let topology = nodes.now();
        let is_cluster = matches!(settings.address, StoreAddress::Cluster(_));
        let prefix = key_prefix(&settings.prefix, is_cluster.then_some(0));
        let mut contents = Self::default();
        for node in &topology.nodes {
            let mut connection = connect(settings, node, START_TIMEOUT).await.map_err(failed)?;
            let info: String = cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
            contents.version = version(&info).unwrap_or("unknown").to_owned();
            let memory = super::connect::field(&info, "used_memory").and_then(|text| text.parse().ok());
            contents.memory_bytes += memory.unwrap_or(0);
            contents.nodes += 1;
            if topology.of(0).is_some_and(|first| first.number == node.number) {
                let layout: Option<String> = cmd("GET")
                    .arg(format!("{prefix}layout"))
                    .query_async(&mut connection)
                    .await
                    .map_err(failed)?;
                contents.layout = layout.is_some_and(|layout| layout::seed(&layout).is_some());
                contents.servers = cmd("ZCARD")
                    .arg(format!("{prefix}servers"))
                    .query_async(&mut connection)
                    .await
                    .map_err(failed)?;
            }
            let tag = if is_cluster { "{*}" } else { "" };
            let pattern = format!("{}{tag}{}", escaped(&settings.prefix), "[0-9a-f]".repeat(32));
            contents.scan(&mut connection, &pattern).await.map_err(failed)?;
        }
        Ok(contents)
    }

    async fn scan(
        &mut self,
        connection: &mut MultiplexedConnection,
        pattern: &str,
    ) -> redis::RedisResult<()> {
        let mut cursor = 0_u64;
        loop {
            let scan =
                cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(KEYS_AT_ONCE).clone();
            let keys: Vec<String>;
            (cursor, keys) = scan.query_async(connection).await?;
            self.add(connection, &keys).await?;
            if cursor == 0 {
                return Ok(());
            }
        }
    }

    async fn add(
        &mut self,
        connection: &mut MultiplexedConnection,
        keys: &[String],
    ) -> redis::RedisResult<()> {
        if keys.is_empty() {
            return Ok(());
        }
        let mut commands = pipe();
        for key in keys {
            commands.cmd("TYPE").arg(key).cmd("PTTL").arg(key);
        }
        let kinds: Vec<redis::Value> = commands.query_async(connection).await?;
        // Not MGET, as its keys have to be in one hash slot.
        let mut reads = pipe();
        keys.iter().for_each(|key| _ = reads.cmd("GET").arg(key));
        let states: Vec<redis::RedisResult<Option<Vec<u8>>>> =
            reads.ignore_errors().query_async(connection).await?;
        // A key of another type has no state.
        let states = states.into_iter().map(|state| state.unwrap_or(None));
        for (kind_and_expiry, state) in kinds.chunks(2).zip(states) {
            let [kind, expiry] = kind_and_expiry else { continue };
            let is_text = matches!(kind, redis::Value::SimpleString(kind) if kind == "string");
            match state.as_deref().and_then(algorithm_of) {
                Some(algorithm) => *self.counters.entry(algorithm).or_default() += 1,
                // The key has expired since.
                None if state.is_none()
                    && (is_text || matches!(kind, redis::Value::SimpleString(kind) if kind == "none")) => {}
                None => self.damaged += 1,
            }
            self.without_expiry += u64::from(matches!(expiry, redis::Value::Int(-1)));
        }
        Ok(())
    }
}

/// Escapes a text for use in a pattern that matches only this text.
pub(super) fn escaped(text: &str) -> String {
    let special = |character| matches!(character, '*' | '?' | '[' | ']' | '^' | '\\');
    text.chars()
        .flat_map(|character| special(character).then_some('\\').into_iter().chain([character]))
        .collect()
}
