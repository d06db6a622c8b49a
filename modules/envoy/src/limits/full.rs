//! The lines in Envoy's log about counters that are full.

use std::time::Duration;
use tidegate_core::store::Store;
use tidegate_shared::lease::Monotonic;

/// The shortest time between two lines.
const BETWEEN: Duration = Duration::from_secs(60);

/// The state of the last line.
#[derive(Default)]
pub(super) struct FullLog {
    /// Requests without room as of the last line.
    logged: usize,
    /// The time before which there is no other line.
    next: Monotonic,
}

impl FullLog {
    /// The next line, if it is due and requests found no room since the last line.
    pub(super) fn line(&mut self, store: &Store, now: Monotonic) -> Option<String> {
        let no_room = store.no_room();
        let count = no_room - self.logged;
        if count == 0 || now < self.next {
            return None;
        }
        (self.logged, self.next) = (no_room, now.plus(BETWEEN));
        let counters_max = store.counters_max();
        Some(format!(
            "tidegate: the counters are full, {counters_max} of them; requests that were denied although they exceed no limit: {count}; raise \
             max_counters or TIDEGATE_MAX_COUNTERS"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::store::{OnFull, Seed, StoreSettings};

    #[test]
    fn counters_that_are_full_are_logged_once_a_minute() {
        let seed = Seed::from_bytes([0; 16]);
        let store = Store::new(StoreSettings { seed, counters_max: 9, on_full: OnFull::Deny });
        let at = |millis: u64| Monotonic::from_nanos(millis * 1_000_000);
        let mut log = FullLog::default();
        assert_eq!(log.line(&store, at(0)), None);
        store.count_no_room();
        let line = log.line(&store, at(5)).unwrap();
        assert!(line.contains("full, 9 of them; ") && line.contains("exceed no limit: 1;"), "{line}");
        store.count_no_room();
        store.count_no_room();
        assert_eq!(log.line(&store, at(60_004)), None);
        assert!(log.line(&store, at(60_005)).unwrap().contains("no limit: 2;"));
        assert_eq!(log.line(&store, at(900_000)), None);
    }
}
