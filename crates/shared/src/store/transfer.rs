//! Moves counters out of a store and into it while no server uses it.

use super::{
    SharedSettings, StoreAddress,
    connect::{connect, field},
    connect_error::ConnectError,
    join::{START_TIMEOUT, set_if_new},
    layout::Layout,
    nodes::Nodes,
    scan::Scan,
};
use crate::script::{counter_name, encode, read_value};
use redis::{RedisError, aio::MultiplexedConnection, cmd, pipe};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tidegate_core::{
    algorithm::{Algorithm, NotShareable, State},
    limit::Timestamp,
    rules::LimitInfo,
    store::{Key, Seed},
};

/// Counters that are written at once.
const KEYS_AT_ONCE: usize = 500;

/// A key outlives its counter by this time, as in the script.
const SLACK: Duration = Duration::from_secs(1);

/// The reason why counters are not moved.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The store cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The store failed.
    #[error("the store failed: {0}")]
    Store(#[from] RedisError),
    /// It is a cluster, in which the place of a counter depends on the request.
    #[error(
        "counters are not moved to or from a cluster: the slot of a counter follows from the entries of its requests"
    )]
    Cluster,
    /// No server has used the prefix.
    #[error("the store has no counters with this --counters-prefix")]
    Nothing,
    /// The keys were made with another secret.
    #[error(
        "the store has a secret of its own, with which requests would not find these counters; use another \
         --counters-prefix, or an empty store"
    )]
    OtherSecret,
    /// Servers use the store.
    #[error("{servers} servers use the store; stop them first")]
    InUse {
        /// Their number.
        servers: u64,
    },
}

/// Numbers of counters by what became of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Counters that were moved.
    pub counters: u64,
    /// Counters without hits that count now.
    pub expired: u64,
    /// Counters that the store had already.
    pub present: u64,
    /// Counters of limits that a shared store cannot count.
    pub not_shareable: u64,
    /// Counters whose state cannot be read.
    pub damaged: u64,
    /// Number of counters for each limit that a shared store cannot count, with the reason, and names of counters that cannot be read: up
    /// to [`NAMES_MAX`] entries.
    pub left_out: BTreeMap<String, u64>,
}

impl Moved {
    fn leave_out(&mut self, what: String) {
        if self.left_out.len() < NAMES_MAX || self.left_out.contains_key(&what) {
            *self.left_out.entry(what).or_default() += 1;
        }
    }
}

/// The most limits and names that are listed.
const NAMES_MAX: usize = 100;

/// A store that no server uses.
pub struct Transfer {
    connection: MultiplexedConnection,
    prefix: String,
    /// The secret of the keys, if servers have used the store.
    pub seed: Option<Seed>,
    /// The time of the store when it was opened.
    pub now: Timestamp,
    /// Number of keys in the store, counters or not.
    pub keys: u64,
}

impl Transfer {
    /// Connects to the store.
    pub async fn open(settings: &SharedSettings) -> Result<Self, TransferError> {
        if matches!(settings.address, StoreAddress::Cluster(_)) {
            return Err(TransferError::Cluster);
        }
        let address = settings.address.to_string();
        let topology = Nodes::one().now();
        let node = topology.of(0).ok_or(TransferError::Nothing)?;
        let mut connection = connect(settings, node, START_TIMEOUT)
            .await
            .map_err(|error| ConnectError::Store { address, error })?;
        let info: String = cmd("INFO").arg("server").query_async(&mut connection).await?;
        if field(&info, "redis_mode") == Some("cluster") {
            return Err(ConnectError::Cluster.into());
        }
        let prefix = settings.prefix.clone();
        let found: Option<String> =
            cmd("GET").arg(format!("{prefix}layout")).query_async(&mut connection).await?;
        let seed = match found {
            Some(found) => Some(Layout::of(&found).ok_or(ConnectError::Layout { found })?.seed),
            None => None,
        };
        let servers: u64 = cmd("ZCARD").arg(format!("{prefix}servers")).query_async(&mut connection).await?;
        if servers > 0 {
            return Err(TransferError::InUse { servers });
        }
        let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await?;
        let now = Timestamp::from_nanos(seconds * 1_000_000_000 + micros * 1_000);
        let keys = cmd("DBSIZE").query_async(&mut connection).await?;
        Ok(Self { connection, prefix, seed, now, keys })
    }

    /// Reads every counter that has hits.
    pub async fn export<E: From<TransferError>>(
        &mut self,
        mut take: impl FnMut(Key, Algorithm, &State) -> Result<(), E>,
    ) -> Result<Moved, E> {
        // A scan may return a key twice.
        let (mut moved, mut seen) = (Moved::default(), HashSet::new());
        let mut scan = Scan::new(&self.prefix, "");
        while let Some(counters) = scan.next(&mut self.connection).await.map_err(TransferError::Store)? {
            for (name, value) in counters {
                let Some(value) = value.map_err(TransferError::Store)? else { continue };
                let number = u128::from_str_radix(&name[self.prefix.len()..], 16).ok();
                let Some(number) = number.filter(|number| seen.insert(*number)) else { continue };
                let key = Key::from_halves((number >> 64) as u64, number as u64);
                match read_value(&value, self.now) {
                    Some(Some((algorithm, state))) if algorithm.expires(&state) > self.now => {
                        take(key, algorithm, &state)?;
                        moved.counters += 1;
                    }
                    Some(_) => moved.expired += 1,
                    None => {
                        moved.damaged += 1;
                        moved.leave_out(format!("{name}: its value is not one of this version"));
                    }
                }
            }
        }
        Ok(moved)
    }

    /// Writes counters whose keys were made with this secret. Skips counters that the store has already.
    pub async fn import(
        &mut self,
        secret: &Seed,
        counters: impl IntoIterator<Item = (Key, Arc<LimitInfo>, State)>,
        mut progress: impl FnMut(u64),
    ) -> Result<Moved, TransferError> {
        if self.seed.as_ref().is_some_and(|seed| seed != secret) {
            return Err(TransferError::OtherSecret);
        }
        let key = format!("{}layout", self.prefix);
        set_if_new(&mut self.connection, &key, &Layout::new(secret.clone()).text).await?;
        self.seed = Some(secret.clone());
        let (mut moved, mut batch, mut read) = (Moved::default(), Vec::new(), 0);
        for (key, info, state) in counters {
            let LimitInfo { identity, algorithm } = &*info;
            read += 1;
            match self.value(algorithm, state) {
                Ok(Some(value)) => batch.push((key, value)),
                Ok(None) => moved.expired += 1,
                Err(reason) => {
                    moved.not_shareable += 1;
                    moved.leave_out(format!("{identity}: {reason}"));
                }
            }
            if batch.len() == KEYS_AT_ONCE {
                self.write(&mut batch, &mut moved).await?;
                progress(read);
            }
        }
        self.write(&mut batch, &mut moved).await?;
        Ok(moved)
    }

    /// The value of a counter, and the time for which it is kept. None if the counter is empty.
    fn value(
        &self,
        algorithm: &Algorithm,
        state: State,
    ) -> Result<Option<(Vec<u8>, Duration)>, NotShareable> {
        let state = algorithm.without_leases(state, self.now);
        if state == State::EMPTY || algorithm.expires(&state) <= self.now {
            return Ok(None);
        }
        let shared = algorithm.in_microseconds_of(&state, self.now)?;
        let state = shared.take_over(algorithm, state, u64::MAX, self.now);
        let expires = shared.expires(&state);
        let value = encode(&state, &shared).ok_or(NotShareable::State)?;
        Ok(Some((value, expires.since(self.now) + SLACK)))
    }

    async fn write(
        &mut self,
        batch: &mut Vec<(Key, (Vec<u8>, Duration))>,
        moved: &mut Moved,
    ) -> Result<(), TransferError> {
        if batch.is_empty() {
            return Ok(());
        }
        let mut writes = pipe();
        for (key, (value, kept_for)) in batch.drain(..) {
            let millis = u64::try_from(kept_for.as_millis()).unwrap_or(u64::MAX);
            writes.cmd("SET").arg(counter_name(&self.prefix, key)).arg(value).arg("PX").arg(millis).arg("NX");
        }
        let written: Vec<Option<String>> = writes.query_async(&mut self.connection).await?;
        let new = written.iter().flatten().count() as u64;
        moved.counters += new;
        moved.present += written.len() as u64 - new;
        Ok(())
    }
}
