//! Activity of a connection. It is published, so that a server with too many connections can end the idlest.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::sync::Notify;

/// The activity of one connection, shared by the connection and its server.
///
/// Published at the connection's ticks, so it lags by as much; a request costs nothing.
#[derive(Debug)]
pub struct Activity {
    /// Start of the connection, on the server's time line.
    opened: Duration,
    rank: AtomicU64,
    evicted: Notify,
}

/// Rank of a connection with a request in progress.
const BUSY: u64 = u64::MAX;
/// Set in the ranks of connections that have received a whole request.
const USED: u64 = 1 << 63;

impl Default for Activity {
    /// The activity of a connection that no server ranks.
    fn default() -> Self {
        Self::new(Duration::ZERO)
    }
}

impl Activity {
    /// A connection that was opened at `opened` on the server's time line and has not received a request yet.
    pub fn new(opened: Duration) -> Self {
        Self { opened, rank: AtomicU64::new(millis(opened)), evicted: Notify::new() }
    }

    /// The connection's place in the order of eviction, least first: connections without a request, oldest first, then idle connections,
    /// longest idle first. None while a request is in progress.
    pub fn rank(&self) -> Option<u64> {
        Some(self.rank.load(Ordering::Relaxed)).filter(|&rank| rank != BUSY)
    }

    /// Evicts the connection: it finishes the requests that it has received in full, and accepts no more.
    pub fn evict(&self) {
        self.evicted.notify_one();
    }

    /// Completes when the connection has to end.
    pub(super) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Publishes the time, counted from the connection's start, since which it is idle, and whether it has received a request.
    pub fn publish(&self, idle_since: Option<Duration>, has_had_request: bool) {
        let rank = match idle_since {
            _ if !has_had_request => millis(self.opened),
            Some(since) => USED | millis(self.opened.saturating_add(since)),
            None => BUSY,
        };
        self.rank.store(rank, Ordering::Relaxed);
    }
}

/// Milliseconds, in the bits below [`USED`] and distinct from [`BUSY`].
fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(USED - 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_a_request_rank_before_idle_ones_and_busy_ones_do_not_rank() {
        let second = Duration::from_secs(1);
        let activity = |opened, idle_since, has_had_request| {
            let activity = Activity::new(opened);
            activity.publish(idle_since, has_had_request);
            activity.rank()
        };
        let ranks = [
            activity(second, Some(Duration::ZERO), false),
            // A request that never ends must not protect a connection.
            activity(second * 2, None, false),
            activity(second * 4, Some(Duration::ZERO), true),
            activity(second, Some(second * 4), true),
        ];
        assert!(ranks.is_sorted() && ranks.iter().all(Option::is_some), "{ranks:?}");
        assert_eq!(activity(second, None, true), None);
    }
}
