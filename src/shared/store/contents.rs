//! The content of a store, for operators.

use super::{
    ConnectError, SharedSettings,
    connect::{START_TIMEOUT, connect, version},
};
use crate::shared::script::algorithm_of;
use redis::{aio::MultiplexedConnection, cmd, pipe};
use std::collections::BTreeMap;

/// The content of a store under one prefix.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Contents {
    /// Version of the store.
    pub version: String,
    /// Memory that all of the store uses.
    pub memory_bytes: u64,
    /// Whether the key of the layout exists, and is of this version.
    pub layout: bool,
    /// Servers with a recent sign of life.
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
    /// Reads all keys under the prefix. Counters that are created or expire meanwhile may be counted or not, and some twice.
    pub async fn read(settings: &SharedSettings) -> Result<Self, ConnectError> {
        let address = settings.address.to_string();
        let failed = |error| ConnectError::Store { address: address.clone(), error };
        let mut connection = connect(settings, START_TIMEOUT).await.map_err(failed)?;
        let info: String = cmd("INFO").query_async(&mut connection).await.map_err(failed)?;
        let layout: Option<String> = cmd("GET")
            .arg(format!("{}layout", settings.prefix))
            .query_async(&mut connection)
            .await
            .map_err(failed)?;
        let servers = cmd("ZCARD")
            .arg(format!("{}servers", settings.prefix))
            .query_async(&mut connection)
            .await
            .map_err(failed)?;
        let mut contents = Self {
            version: version(&info).unwrap_or("unknown").to_owned(),
            memory_bytes: super::connect::field(&info, "used_memory")
                .and_then(|text| text.parse().ok())
                .unwrap_or(0),
            layout: layout.is_some_and(|layout| super::connect::seed(&layout).is_some()),
            servers,
            ..Self::default()
        };
        let pattern = format!("{}{}", escaped(&settings.prefix), "[0-9a-f]".repeat(32));
        let mut cursor = 0_u64;
        loop {
            let scan =
                cmd("SCAN").arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(KEYS_AT_ONCE).clone();
            let keys: Vec<String>;
            (cursor, keys) = scan.query_async(&mut connection).await.map_err(failed)?;
            contents.add(&mut connection, &keys).await.map_err(failed)?;
            if cursor == 0 {
                return Ok(contents);
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
        let states: Vec<Option<Vec<u8>>> = cmd("MGET").arg(keys).query_async(connection).await?;
        for (kind_and_expiry, state) in kinds.chunks(2).zip(states) {
            let [kind, expiry] = kind_and_expiry else { continue };
            let is_text = matches!(kind, redis::Value::SimpleString(kind) if kind == "string");
            match state.as_deref().and_then(algorithm_of) {
                Some(algorithm) => *self.counters.entry(algorithm).or_default() += 1,
                // It has expired since.
                None if state.is_none()
                    && (is_text || matches!(kind, redis::Value::SimpleString(kind) if kind == "none")) => {}
                None => self.damaged += 1,
            }
            self.without_expiry += u64::from(matches!(expiry, redis::Value::Int(-1)));
        }
        Ok(())
    }
}

/// A text as a pattern that matches nothing else.
fn escaped(text: &str) -> String {
    let special = |character| matches!(character, '*' | '?' | '[' | ']' | '^' | '\\');
    text.chars()
        .flat_map(|character| special(character).then_some('\\').into_iter().chain([character]))
        .collect()
}
