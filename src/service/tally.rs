//! Counts of decisions.

use super::lines::{LINES, ThreadLine};
use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::limit::{Code, Decision, Status};

/// Counts of decisions.
pub struct Tally(Box<[Line]>);

/// The counts of one thread.
#[derive(Default)]
#[repr(align(128))]
struct Line {
    admitted: AtomicU64,
    denied: AtomicU64,
    without_limit: AtomicU64,
}

/// The sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Requests decided as OK.
    pub admitted: u64,
    /// Requests decided as OVER_LIMIT.
    pub denied: u64,
    /// Descriptors that no limit applied to: of an unknown domain, without a rule, or with a rule without limits.
    pub without_limit: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self((0..LINES).map(|_| Line::default()).collect())
    }
}

impl Tally {
    /// Counts a decision that is sent.
    #[inline]
    pub fn count(&self, decision: &Decision<'_>) {
        let thread = ThreadLine::current();
        let line = thread.of(&self.0);
        let by_code = match decision.code {
            Code::Ok => &line.admitted,
            Code::OverLimit => &line.denied,
        };
        thread.add(by_code, 1);
        let without = decision.statuses.iter().filter(|status| **status == Status::NO_LIMIT).count();
        if without > 0 {
            thread.add(&line.without_limit, without as u64);
        }
    }

    /// The sums over all threads.
    pub fn totals(&self) -> Totals {
        self.0.iter().fold(Totals::default(), |sum, line| Totals {
            admitted: sum.admitted + line.admitted.load(Ordering::Relaxed),
            denied: sum.denied + line.denied.load(Ordering::Relaxed),
            without_limit: sum.without_limit + line.without_limit.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_are_not_lost() {
        let tally = Tally::default();
        let decision =
            |code| Decision::new(code, [Status::NO_LIMIT, Status::UNLIMITED].into_iter().collect());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        tally.count(&decision(Code::Ok));
                    }
                    tally.count(&decision(Code::OverLimit));
                });
            }
        });
        assert_eq!(tally.totals(), Totals { admitted: 400, denied: 4, without_limit: 404 });
    }
}
