//! Hits of a counter that clients of quota may spend.

use super::numbers::StoredNumbers;
use crate::limit::Timestamp;

/// Nanoseconds of a second in thousandths of a hit: what a rate is divided by.
pub(super) const MILLIHIT_SECONDS: u128 = 1_000 * 1_000_000_000;

/// Hits that all clients of quota together may spend without a request; they report late, and acknowledge nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Assigned {
    /// Hits that may be spent at any moment: those of the present.
    pub held: u64,
    /// Thousandths of a hit per second that may be spent besides. Counted as time passes, spent or not.
    pub rate: u64,
    /// Time up to which hits of the rate are counted.
    pub(super) counted: Timestamp,
    /// The part of a hit, in thousandths of a hit by nanoseconds, that is counted already.
    pub(super) ahead: u64,
    /// Time from which on nothing is spent.
    pub end: Timestamp,
    /// Hits that exact decisions admitted or denied since quota was assigned.
    pub demanded: u64,
}

impl Assigned {
    /// No hits, until this time.
    pub fn until(end: Timestamp, now: Timestamp) -> Self {
        Self { counted: now, end, ..Self::default() }
    }

    /// Counts the hits of the rate up to `now` or the end. Returns their number, rounded up over the whole, the time since which they were
    /// spent, and the time from which on the last of them may be.
    pub(super) fn accrue(&mut self, now: Timestamp) -> (u64, Timestamp, Timestamp) {
        let (since, until) = (self.counted, now.min(self.end));
        self.counted = until.max(since);
        let parts = u128::from(self.rate) * self.counted.since(since).as_nanos();
        let Some(due) = parts.checked_sub(u128::from(self.ahead)).filter(|&due| due > 0) else {
            self.ahead -= parts as u64;
            return (0, since, since);
        };
        let hits = due.div_ceil(MILLIHIT_SECONDS);
        let before_last = u128::from(self.ahead) + (hits - 1) * MILLIHIT_SECONDS;
        let last = since.as_nanos() + (before_last / u128::from(self.rate)) as u64;
        self.ahead = (hits * MILLIHIT_SECONDS - due) as u64;
        (u64::try_from(hits).unwrap_or(u64::MAX), since, Timestamp::from_nanos(last))
    }

    /// Appends its stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let Self { held, rate, counted, ahead, end, demanded } = *self;
        for number in [held, rate, counted.as_nanos(), ahead, end.as_nanos(), demanded] {
            out.extend(number.to_le_bytes());
        }
    }

    /// Reads the output of `write`.
    pub(super) fn read(numbers: &mut StoredNumbers<'_>) -> Option<Self> {
        Some(Self {
            held: numbers.long()?,
            rate: numbers.long()?,
            counted: numbers.time()?,
            // Less than a hit, whatever a damaged file has.
            ahead: numbers.long()?.min(MILLIHIT_SECONDS as u64 - 1),
            end: numbers.time()?,
            demanded: numbers.long()?,
        })
    }
}
