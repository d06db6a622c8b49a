//! The counters of a node, read some at a time.

use redis::{RedisResult, aio::MultiplexedConnection, cmd, pipe};

/// Keys that are read at once.
const KEYS_AT_ONCE: usize = 500;

/// A scan of the counters under a prefix. It may return a counter twice.
pub(super) struct Scan {
    pattern: String,
    /// None at the end.
    cursor: Option<u64>,
}

/// The value of a key; none if the key has expired since, an error if the key is of another type.
pub(super) type ScannedValue = RedisResult<Option<Vec<u8>>>;

impl Scan {
    /// A scan of the counters whose names are the prefix, the pattern of a hash tag, and their keys.
    pub(super) fn new(prefix: &str, tag: &str) -> Self {
        let pattern = format!("{}{tag}{}", escaped(prefix), "[0-9a-f]".repeat(32));
        Self { pattern, cursor: Some(0) }
    }

    /// The names and values of some more counters; none at the end.
    pub(super) async fn next(
        &mut self,
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<Option<Vec<(String, ScannedValue)>>> {
        let Some(cursor) = self.cursor else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(&self.pattern).arg("COUNT").arg(KEYS_AT_ONCE);
        let (next, names): (u64, Vec<String>) = scan.query_async(connection).await?;
        self.cursor = Some(next).filter(|next| *next > 0);
        if names.is_empty() {
            return Ok(Some(Vec::new()));
        }
        // Not MGET, as its keys have to be in one hash slot.
        let mut reads = pipe();
        names.iter().for_each(|name| _ = reads.cmd("GET").arg(name));
        let values: Vec<ScannedValue> = reads.ignore_errors().query_async(connection).await?;
        Ok(Some(names.into_iter().zip(values).collect()))
    }
}

/// Escapes a text for use in a pattern that matches only this text.
fn escaped(text: &str) -> String {
    let special = |character| matches!(character, '*' | '?' | '[' | ']' | '^' | '\\');
    text.chars()
        .flat_map(|character| special(character).then_some('\\').into_iter().chain([character]))
        .collect()
}
