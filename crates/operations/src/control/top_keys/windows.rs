//! Summaries of the last minute and the last hour. Pure: the time is an argument.
//!
//! A window consists of spans, the last of which is incomplete. A report contains the spans that begin within the window, so that it covers
//! up to one span more.

use super::{
    key::SketchKey,
    outcome::{ByOutcome, KeyOutcome},
    sketch::{Estimate, Summary},
};
use std::{collections::VecDeque, sync::Arc, time::Duration};
use tidegate_core::limit::Timestamp;

/// The most keys of a full span, for each outcome.
const SPAN_KEYS: usize = 128;
/// The most keys of an incomplete span.
const OPEN_SPAN_KEYS: usize = 512;
const MINUTE_SPAN: Duration = Duration::from_secs(10);
const MINUTE_SPANS: usize = 6;
const HOUR_SPAN: Duration = Duration::from_secs(300);
const HOUR_SPANS: usize = 12;

/// A time for which keys are reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportWindow {
    /// The last minute.
    Minute,
    /// The last hour.
    Hour,
}

/// The keys of a window.
#[derive(Debug, Default)]
pub struct Report {
    /// The keys with the most hits first.
    pub keys: Vec<(Arc<SketchKey>, Estimate)>,
    /// Upper bound of the hits of each other key.
    pub absent_max: u64,
    /// Hits of all keys.
    pub total: u64,
    /// The time that the report covers.
    pub covers: Duration,
}

type Summaries = ByOutcome<Summary<Arc<SketchKey>>>;

/// The spans of both windows, by [`ReportWindow`].
pub(super) struct Windows([Spans; 2]);

struct Spans {
    length: Duration,
    count: usize,
    /// The start of each span, the newest last.
    full: VecDeque<(Timestamp, Summaries)>,
    open: Option<(Timestamp, Summaries)>,
}

impl Default for Windows {
    fn default() -> Self {
        let spans = |length, count| Spans { length, count, full: VecDeque::new(), open: None };
        Self([spans(MINUTE_SPAN, MINUTE_SPANS), spans(HOUR_SPAN, HOUR_SPANS)])
    }
}

impl Windows {
    /// Adds hits.
    pub(super) fn add(&mut self, hits: &Summaries, now: Timestamp) {
        self.0.iter_mut().for_each(|spans| spans.add(hits, now));
    }

    /// Drops spans that are too old.
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.0.iter_mut().for_each(|spans| spans.advance(now));
    }

    pub(super) fn report(&self, window: ReportWindow, outcome: KeyOutcome, now: Timestamp) -> Report {
        self.0[window as usize].report(outcome, now)
    }
}

impl Spans {
    fn add(&mut self, hits: &Summaries, now: Timestamp) {
        self.advance(now);
        let (_, open) = self.open.get_or_insert_with(|| (now, Summaries::default()));
        for (open, hits) in open.iter_mut().zip(hits) {
            open.merge(hits);
            open.truncate(OPEN_SPAN_KEYS);
        }
    }

    fn advance(&mut self, now: Timestamp) {
        if let Some((start, mut summaries)) = self.open.take() {
            if now.since(start) < self.length {
                self.open = Some((start, summaries));
            } else {
                for summary in &mut summaries {
                    summary.truncate(SPAN_KEYS);
                    // The full span had room for many more keys, and gets no more.
                    summary.keys.shrink_to_fit();
                }
                self.full.push_back((start, summaries));
            }
        }
        let length_max = self.length * self.count as u32;
        while self.full.front().is_some_and(|(start, _)| now.since(*start) > length_max) {
            self.full.pop_front();
        }
    }

    fn report(&self, outcome: KeyOutcome, now: Timestamp) -> Report {
        let mut sum = Summary::default();
        for (_, summaries) in self.full.iter().chain(&self.open) {
            sum.merge(&summaries[outcome as usize]);
        }
        let first = self.full.front().or(self.open.as_ref());
        let mut keys: Vec<_> = sum.keys.into_iter().collect();
        keys.sort_by(|(one, ours), (other, theirs)| {
            theirs.hits.cmp(&ours.hits).then_with(|| one.texts().0.cmp(&other.texts().0))
        });
        let covers = first.map_or(Duration::ZERO, |(start, _)| now.since(*start));
        Report { keys, absent_max: sum.absent_max, total: sum.total, covers }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(key: &str, hits: u64) -> Summaries {
        let key = Arc::new(SketchKey::new(&[], Some(&key.into())));
        let keys = [(key, Estimate { hits, error: 0 })].into_iter().collect();
        [Summary { keys, absent_max: 0, total: hits }, Summary::default()]
    }

    fn report(windows: &mut Windows, window: ReportWindow, second: u64) -> Vec<(String, u64)> {
        let now = Timestamp::from_millis(second * 1_000);
        windows.advance(now);
        let report = windows.report(window, KeyOutcome::Denied, now);
        report.keys.iter().map(|(key, estimate)| (key.rule().to_owned(), estimate.hits)).collect()
    }

    #[test]
    fn hits_leave_a_window_when_they_are_too_old_for_it() {
        let mut windows = Windows::default();
        let at = |second: u64| Timestamp::from_millis(second * 1_000);
        windows.add(&hits("a", 5), at(1_000));
        windows.add(&hits("b", 9), at(1_030));
        windows.add(&hits("a", 2), at(1_031));
        let key = |key: &str, hits| (key.to_owned(), hits);
        assert_eq!(report(&mut windows, ReportWindow::Minute, 1_035), [key("b", 9), key("a", 7)]);
        assert_eq!(report(&mut windows, ReportWindow::Minute, 1_070), [key("b", 9), key("a", 2)]);
        assert_eq!(report(&mut windows, ReportWindow::Minute, 1_100), []);
        assert_eq!(report(&mut windows, ReportWindow::Hour, 1_100), [key("b", 9), key("a", 7)]);
        assert_eq!(report(&mut windows, ReportWindow::Hour, 5_000), []);
    }
}
