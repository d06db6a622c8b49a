//! The content of a store, for operators.

use super::{
    SharedSettings, StoreAddress,
    commands::key_prefix,
    connect::{connect, field, hash_slots},
    connect_error::ConnectError,
    join::START_TIMEOUT,
    layout::Layout,
    nodes::Nodes,
    scan::{Scan, ScannedValue},
};
use crate::script::algorithm_of;
use redis::{RedisResult, aio::MultiplexedConnection, cmd, pipe};
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

impl Contents {
    /// Reads all keys under the prefix. Counters that are created or expire meanwhile may be missing, and some may be counted twice.
    pub async fn read(settings: &SharedSettings) -> Result<Self, ConnectError> {
        let address = settings.address.to_string();
        Self::read_nodes(settings).await.map_err(|error| ConnectError::Store { address, error })
    }

    async fn read_nodes(settings: &SharedSettings) -> RedisResult<Self> {
        let nodes = match hash_slots(settings, None, START_TIMEOUT).await? {
            Some(map) => Nodes::cluster(map),
            None => Nodes::one(),
        };
        let topology = nodes.now();
        let is_cluster = matches!(settings.address, StoreAddress::Cluster(_));
        let prefix = key_prefix(&settings.prefix, is_cluster.then_some(0));
        let mut contents = Self::default();
        for node in &topology.nodes {
            let mut connection = connect(settings, node, START_TIMEOUT).await?;
            let info: String = cmd("INFO").query_async(&mut connection).await?;
            contents.version = field(&info, "redis_version").unwrap_or("unknown").to_owned();
            let memory = field(&info, "used_memory").and_then(|text| text.parse().ok());
            contents.memory_bytes += memory.unwrap_or(0);
            contents.nodes += 1;
            if topology.of(0).is_some_and(|first| first.number == node.number) {
                let layout: Option<String> =
                    cmd("GET").arg(format!("{prefix}layout")).query_async(&mut connection).await?;
                contents.layout = layout.is_some_and(|layout| Layout::of(&layout).is_some());
                contents.servers =
                    cmd("ZCARD").arg(format!("{prefix}servers")).query_async(&mut connection).await?;
            }
            let mut scan = Scan::new(&settings.prefix, if is_cluster { "{*}" } else { "" });
            while let Some(counters) = scan.next(&mut connection).await? {
                contents.add(&mut connection, counters).await?;
            }
        }
        Ok(contents)
    }

    async fn add(
        &mut self,
        connection: &mut MultiplexedConnection,
        counters: Vec<(String, ScannedValue)>,
    ) -> RedisResult<()> {
        if counters.is_empty() {
            return Ok(());
        }
        let mut reads = pipe();
        counters.iter().for_each(|(name, _)| _ = reads.cmd("PTTL").arg(name));
        let expiries: Vec<i64> = reads.query_async(connection).await?;
        for ((_, value), expiry) in counters.into_iter().zip(expiries) {
            match value.map(|value| value.as_deref().map(algorithm_of)) {
                // The key has expired since.
                Ok(None) => {}
                Ok(Some(Some(algorithm))) => *self.counters.entry(algorithm).or_default() += 1,
                Ok(Some(None)) | Err(_) => self.damaged += 1,
            }
            self.without_expiry += u64::from(expiry == -1);
        }
        Ok(())
    }
}
