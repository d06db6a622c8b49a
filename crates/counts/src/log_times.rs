//! Times at which events of each kind were last logged.

use crate::Label;
use std::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};

/// Times of the last log lines by label, for events that a client can cause at any rate.
pub struct LogTimes<L: Label> {
    interval: Duration,
    /// In nanoseconds; zero before the first line.
    logged_at: L::Cells,
    /// Events since the last line.
    events: L::Cells,
}

impl<L: Label> LogTimes<L> {
    /// At most one line of each label in `interval`.
    pub fn every(interval: Duration) -> Self {
        Self { interval, logged_at: L::Cells::default(), events: L::Cells::default() }
    }

    /// Notes an event. If a line is due, returns the number of events of this label since the last line, with this one.
    pub fn event(&self, label: L, now: Duration) -> Option<u64> {
        let (logged_at, events) =
            (&self.logged_at.as_ref()[label.index()], &self.events.as_ref()[label.index()]);
        events.fetch_add(1, Relaxed);
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let last = logged_at.load(Relaxed);
        let is_due = last == 0 || u128::from(now.saturating_sub(last)) >= self.interval.as_nanos();
        let is_logged = is_due && logged_at.compare_exchange(last, now.max(1), Relaxed, Relaxed).is_ok();
        is_logged.then(|| events.swap(0, Relaxed))
    }
}

impl<L: Label> fmt::Debug for LogTimes<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogTimes").field("interval", &self.interval).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Attempt;

    #[test]
    fn each_label_has_a_line_an_interval_with_the_number_of_events_since() {
        let times = LogTimes::every(Duration::from_secs(10));
        let at = |millis| Duration::from_secs(1_000) + Duration::from_millis(millis);
        assert_eq!(times.event(Attempt::Failed, at(0)), Some(1));
        assert_eq!(times.event(Attempt::Failed, at(1)), None);
        assert_eq!(times.event(Attempt::Succeeded, at(1)), Some(1));
        assert_eq!(times.event(Attempt::Failed, at(9_999)), None);
        assert_eq!(times.event(Attempt::Failed, at(10_000)), Some(3));
    }
}
