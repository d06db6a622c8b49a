//! Figures of a subject on some traffic.
//!
//! Every decision is compared with an exact count: of the hits that the subject itself has counted of the source, those
//! of the last window, to the nanosecond. It would have admitted the request if they are fewer than the limit.

use super::{
    LIMIT, WINDOW_NANOS,
    subject::{Memory, Subject},
    traffic::Traffic,
};
use std::collections::VecDeque;

/// Figures of one subject on one traffic.
#[derive(Default)]
pub(super) struct Figures {
    /// The most hits of one source that were admitted in any interval of a window's length.
    pub(super) worst_window: u32,
    requests: u64,
    /// Requests that were admitted where the exact count would have denied them.
    wrongly_admitted: u64,
    /// Requests that were denied where the exact count would have admitted them.
    wrongly_denied: u64,
    /// Over requests that found hits counted: difference between the hits taken as used and the exact count, as a share
    /// of the latter.
    count_error: Mean,
    /// Over sources: difference between the hits admitted and those that an exact log admits, as a share of the latter.
    admitted_error: Mean,
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

impl Figures {
    /// The worst window as a multiple of the limit.
    pub(super) fn worst_window_ratio(&self) -> f64 {
        f64::from(self.worst_window) / f64::from(LIMIT)
    }

    pub(super) fn wrongly_admitted_percent(&self) -> f64 {
        self.wrongly_admitted as f64 * 100.0 / self.requests as f64
    }

    pub(super) fn wrongly_denied_percent(&self) -> f64 {
        self.wrongly_denied as f64 * 100.0 / self.requests as f64
    }

    pub(super) fn wrong_percent(&self) -> f64 {
        (self.wrongly_admitted + self.wrongly_denied) as f64 * 100.0 / self.requests as f64
    }

    pub(super) fn count_error_percent(&self) -> f64 {
        self.count_error.percent()
    }

    pub(super) fn admitted_error_percent(&self) -> f64 {
        self.admitted_error.percent()
    }
}

/// Measures a subject.
pub(super) fn figures(subject: &Subject, traffic: &Traffic) -> Figures {
    let mut figures = Figures::default();
    for source in &traffic.sources {
        let admitted = play(subject, source, &mut figures);
        figures.admitted_error.add(admitted, admitted_by_a_log(source));
    }
    figures
}

/// Hits of the last window, in the order of arrival.
#[derive(Default)]
struct LastWindow(VecDeque<u64>);

impl LastWindow {
    /// Number of hits at `now`.
    fn count(&mut self, now: u64) -> usize {
        while self.0.front().is_some_and(|&at| at + WINDOW_NANOS <= now) {
            self.0.pop_front();
        }
        self.0.len()
    }

    fn add(&mut self, now: u64) {
        self.0.push_back(now);
    }
}

/// Decides the requests of one source. Returns the number admitted.
fn play(subject: &Subject, source: &[u64], figures: &mut Figures) -> u64 {
    let mut memory: Memory = subject.initial();
    let (mut counted, mut admitted, mut admissions) = (LastWindow::default(), LastWindow::default(), 0);
    for &now in source {
        let exact = counted.count(now);
        let result = subject.decide(&mut memory, now);
        let fits = exact < LIMIT as usize;
        figures.requests += 1;
        figures.wrongly_admitted += u64::from(result.is_admitted && !fits);
        figures.wrongly_denied += u64::from(!result.is_admitted && fits);
        figures.count_error.add(result.used, exact as u64);
        if result.is_counted {
            counted.add(now);
        }
        if result.is_admitted {
            admissions += 1;
            admitted.add(now);
            figures.worst_window = figures.worst_window.max(admitted.count(now) as u32);
        }
    }
    admissions
}

/// Number of the same requests that an exact log would have admitted. Implemented here, since the algorithm of that
/// name is measured itself.
fn admitted_by_a_log(source: &[u64]) -> u64 {
    let (mut log, mut admissions) = (LastWindow::default(), 0);
    for &now in source {
        if log.count(now) < LIMIT as usize {
            log.add(now);
            admissions += 1;
        }
    }
    admissions
}
