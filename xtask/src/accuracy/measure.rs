//! Figures of a subject on some traffic.
//!
//! Every decision is compared with an exact count: the number of hits of the source that the subject itself counted in the last window, to
//! the nanosecond. The exact count would have admitted the request if it is less than the limit.

use super::{LIMIT, WINDOW_NANOS, subjects::Subject, traffic::Traffic};
use std::collections::VecDeque;

/// Figures of one subject on one traffic. Shares are in per cent.
pub(super) struct Figures {
    /// The most hits of one source that were admitted in any interval of a window's length.
    pub(super) worst_window: u32,
    /// Requests that were admitted where the exact count would have denied them.
    pub(super) wrongly_admitted: f64,
    /// Requests that were denied where the exact count would have admitted them.
    pub(super) wrongly_denied: f64,
    /// Over requests that found hits counted: the difference between the hits taken as used and the exact count, as a share of the exact
    /// count.
    pub(super) count_error: f64,
    /// Over sources: the difference between the hits admitted and the hits that an exact log admits, as a share of the latter.
    pub(super) admitted_error: f64,
}

impl Figures {
    /// Requests that were decided wrongly.
    pub(super) fn wrong(&self) -> f64 {
        self.wrongly_admitted + self.wrongly_denied
    }
}

/// A mean of shares, in billionths, so that sums do not depend on their order.
#[derive(Default)]
struct Mean {
    billionths: u128,
    number: u64,
}

impl Mean {
    fn add(&mut self, value: u64, exact: u64) {
        if exact > 0 {
            self.billionths += u128::from(value.abs_diff(exact)) * 1_000_000_000 / u128::from(exact);
            self.number += 1;
        }
    }

    fn percent(&self) -> f64 {
        self.billionths as f64 / self.number.max(1) as f64 / 1e7
    }
}

/// Hits of the last window, in the order of arrival.
#[derive(Default)]
struct LastWindow(VecDeque<u64>);

impl LastWindow {
    /// Number of hits at `now`.
    fn count(&mut self, now: u64) -> u64 {
        while self.0.front().is_some_and(|&at| at + WINDOW_NANOS <= now) {
            self.0.pop_front();
        }
        self.0.len() as u64
    }

    fn add(&mut self, now: u64) {
        self.0.push_back(now);
    }
}

/// Measures a subject.
pub(super) fn figures(subject: &Subject, traffic: &Traffic) -> Figures {
    let (mut worst_window, mut requests) = (0, 0_u64);
    let (mut wrongly_admitted, mut wrongly_denied) = (0_u64, 0_u64);
    let (mut count_error, mut admitted_error) = (Mean::default(), Mean::default());
    for source in &traffic.sources {
        let (mut decide, mut admissions, mut of_a_log) = (subject.counter(), 0, 0);
        let (mut counted, mut admitted) = (LastWindow::default(), LastWindow::default());
        // Implemented here, since Tidegate's exact log is itself a subject.
        let mut log = LastWindow::default();
        for &now in source {
            let exact = counted.count(now);
            let (outcome, fits) = (decide(now), exact < u64::from(LIMIT));
            requests += 1;
            wrongly_admitted += u64::from(outcome.is_admitted && !fits);
            wrongly_denied += u64::from(!outcome.is_admitted && fits);
            count_error.add(outcome.used, exact);
            if outcome.is_counted {
                counted.add(now);
            }
            if outcome.is_admitted {
                admissions += 1;
                admitted.add(now);
                worst_window = worst_window.max(admitted.count(now));
            }
            if log.count(now) < u64::from(LIMIT) {
                log.add(now);
                of_a_log += 1;
            }
        }
        admitted_error.add(admissions, of_a_log);
    }
    let share = |number| number as f64 * 100.0 / requests as f64;
    Figures {
        worst_window: worst_window as u32,
        wrongly_admitted: share(wrongly_admitted),
        wrongly_denied: share(wrongly_denied),
        count_error: count_error.percent(),
        admitted_error: admitted_error.percent(),
    }
}
