//! Resets by operators: of counters by their keys, and of all counters of a rule or a domain.
//!
//! The store has no list of a rule's counters. The time of a rule's reset is kept in a hash, and is part of the keys of the rule's counters
//! ([`SharedResets`]). Servers read it every half second, and count in new keys afterwards. If the store has lost it, they write the resets
//! that they have, because all servers have to count in the same keys.

use super::{
    batches::Links, connect::connect, failure::Failure, releases::by_group, shared_store::SharedStore,
};
use crate::script::Command;
use redis::{RedisError, aio::MultiplexedConnection, cmd};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tidegate_core::{limiter::SharedResets, store::Key};

/// Time limit of a reset if that of decisions is shorter.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Writes the times of resets, in pairs of field and time, except where a later time is known: other servers write at the same time.
const WRITE: &str = "for i = 1, #ARGV, 2 do
  local known = tonumber(redis.call('HGET', KEYS[1], ARGV[i]))
  if not known or known < tonumber(ARGV[i + 1]) then
    redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
  end
end";

impl SharedStore {
    /// The resets of rules that this server knows.
    pub fn resets(&self) -> SharedResets {
        self.resets.lock().clone()
    }

    /// Resets counters, each with its group. Returns how many there were. Credits of leases stay counted until they are reported or expire.
    /// Denials that other servers keep end within a second.
    pub async fn reset(self: &Arc<Self>, counters: &[(u16, Key)]) -> Result<u64, Failure> {
        let groups = by_group(counters.iter().copied());
        let is_available = |group: &u16| self.nodes.of(*group).is_some_and(|node| node.is_available());
        if !groups.keys().all(is_available) {
            return Err(Failure::Unavailable);
        }
        let send = |(group, keys)| Links::command(self, group, Arc::new(Command::reset(keys)));
        let responses: Vec<_> = groups.into_iter().map(send).collect();
        let mut found = 0;
        for response in responses {
            let response = tokio::time::timeout(self.settings.timeout.max(TIMEOUT), response).await;
            found += response.map_err(|_| Failure::Timeout)?.map_err(|_| Failure::Failed)??;
        }
        counters.iter().for_each(|(_, key)| self.holders.drop_denial(*key));
        Ok(found)
    }

    /// Resets all counters of a rule, or of the domain. Returns all resets, to be put in force.
    ///
    /// The time of the reset is later than all known ones of the domain, also if the store's clock has gone back since. Otherwise the later
    /// one would stay in force.
    pub async fn reset_rule(&self, domain: &str, path: Option<&str>) -> Result<SharedResets, Failure> {
        let node = self.nodes.of(0).filter(|node| node.is_available()).ok_or(Failure::Unavailable)?;
        let timeout = self.settings.timeout.max(TIMEOUT);
        let written = async {
            let mut connection = connect(&self.settings, &node, timeout).await?;
            let (seconds, micros): (u64, u64) = cmd("TIME").query_async(&mut connection).await?;
            self.agree_on_resets(&mut connection).await?;
            let last = self.resets.lock().last_in(domain);
            let time = (seconds * 1_000_000 + micros).max(last.saturating_add(1));
            let reset = (domain, path.unwrap_or_default(), time);
            self.write_resets(&mut connection, std::iter::once(reset)).await?;
            let mut known = self.resets.lock();
            known.add(domain, path.unwrap_or_default(), time);
            Ok(known.clone())
        };
        written.await.map_err(|error: RedisError| {
            tracing::error!(%error, "a reset was not written to the shared store");
            Failure::Failed
        })
    }
}

impl SharedStore {
    async fn write_resets<'r>(
        &self,
        connection: &mut MultiplexedConnection,
        resets: impl Iterator<Item = (&'r str, &'r str, u64)>,
    ) -> Result<(), RedisError> {
        let mut command = cmd("EVAL");
        command.arg(WRITE).arg(1).arg(self.resets_key());
        for (domain, path, time) in resets {
            command.arg(field(domain, path)).arg(time);
        }
        command.query_async(connection).await
    }

    /// Notes the resets that the store has, and writes those that it does not have.
    pub(super) async fn agree_on_resets(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), RedisError> {
        let found = self.read_resets(connection).await?;
        let known = {
            let mut known = self.resets.lock();
            known.add_all(&found);
            known.clone()
        };
        let missing: Vec<_> = known.missing_in(&found).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.write_resets(connection, missing.into_iter()).await
    }

    /// Reads all resets. Fields that this version cannot read are left out.
    async fn read_resets(&self, connection: &mut MultiplexedConnection) -> Result<SharedResets, RedisError> {
        let fields: HashMap<String, u64> =
            cmd("HGETALL").arg(self.resets_key()).query_async(connection).await?;
        let mut resets = SharedResets::default();
        for (field, time) in &fields {
            if let Some((domain, path)) = of_field(field) {
                resets.add(domain, path, *time);
            }
        }
        Ok(resets)
    }

    /// The key of the resets. In a cluster, it is in the first group.
    fn resets_key(&self) -> String {
        format!("{}resets", self.key_prefix(0))
    }
}

/// The field of a rule: the length of the domain, the domain, and the path. The path is empty for all rules of the domain.
fn field(domain: &str, path: &str) -> String {
    format!("{}:{domain}{path}", domain.len())
}

/// The domain and the path in a field.
fn of_field(field: &str) -> Option<(&str, &str)> {
    let (length, texts) = field.split_once(':')?;
    texts.split_at_checked(length.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domain_and_path_are_read_from_a_field_as_they_were_written() {
        for (domain, path) in [("d", "user"), ("a:b", ""), ("3:ab", "user=4:x › path"), ("ä", "ö")] {
            assert_eq!(of_field(&field(domain, path)), Some((domain, path)));
        }
        for malformed in ["", "d", "x:d", "9:d", "1:ä"] {
            assert_eq!(of_field(malformed), None, "{malformed}");
        }
    }
}
