//! What a store reports about its clock and its replicas.

use super::{connect::field, shared_store::SharedStore};
use std::sync::atomic::Ordering;
use tidegate_core::{clock::Clock, limit::Timestamp};

impl SharedStore {
    /// Seconds by which the store's clock, which is at `of_store`, is ahead of this server's.
    pub(super) fn clock_offset(&self, of_store: Timestamp) -> i64 {
        let here = self.clock.now();
        let micros = (of_store.since(here).as_micros() as i64) - here.since(of_store).as_micros() as i64;
        self.counts.clock_offset_micros.store(micros, Ordering::Relaxed);
        (micros as f64 / 1e6).round() as i64
    }
}

/// The number of replicas, and the bytes that the most delayed replica has not received.
pub(super) fn replication(info: &str) -> (u64, u64) {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let sent = field(info, "master_repl_offset").and_then(number).unwrap_or(0);
    let replicas = info.lines().filter(|line| line.starts_with("slave") && line.contains(",offset="));
    let received = replicas.filter_map(|line| number(line.split(",offset=").nth(1)?.split(',').next()?));
    received.fold((0, 0), |(replicas, lag), received| (replicas + 1, lag.max(sent.saturating_sub(received))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_that_of_the_replica_furthest_behind() {
        let info = "role:master\r\nconnected_slaves:2\r\n\
                    slave0:ip=10.0.0.2,port=6379,state=online,offset=990,lag=0\r\n\
                    slave1:ip=10.0.0.3,port=6379,state=online,offset=700,lag=1\r\nmaster_repl_offset:1000\r\n";
        assert_eq!(replication(info), (2, 300));
        assert_eq!(replication("role:master\r\nconnected_slaves:0\r\nmaster_repl_offset:1000\r\n"), (0, 0));
    }
}
