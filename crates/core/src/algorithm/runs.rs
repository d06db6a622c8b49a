//! The times of hits, in few bytes: a list of runs, where a run is the hits of one instant.
//!
//! A run is written as the nanoseconds since the run before it, then as its number of hits if that is not one; the
//! lowest bit of each integer distinguishes the two, so that runs can be read from either end. Hits a millisecond
//! apart take 3 bytes, a second apart 5, ten years apart 9; the number of hits of an instant takes at most 5 more.
//!
//! Invariants: instants ascend, each at most a longest window after the instant before; `total` is the sum of the
//! runs' hits; the bytes are whole runs.

use crate::limit::Window;
use crate::varint;
use std::collections::VecDeque;

/// Runs of hits, oldest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Runs {
    /// Origin of the first run's nanoseconds.
    base: u64,
    /// The instant of the last run.
    newest: u64,
    /// Hits in all runs.
    total: u64,
    /// The runs as written.
    bytes: VecDeque<u8>,
}

/// The hits of one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// In nanoseconds since the epoch.
    pub at: u64,
    /// At least 1.
    pub hits: u32,
}

/// Marks an integer as a number of hits.
const HITS: u64 = 1;

/// A run's integers as written: nanoseconds since the run before, and the hits if they are not one.
fn written(nanos: u64, hits: u32) -> (u64, Option<u64>) {
    (nanos << 1, (hits > 1).then_some(u64::from(hits) << 1 | HITS))
}

/// Bytes that a run takes.
fn len(nanos: u64, hits: u32) -> usize {
    let (nanos, hits) = written(nanos, hits);
    varint::len(nanos) + hits.map_or(0, varint::len)
}

impl Runs {
    /// The instant of the newest hit; meaningless if there is none.
    #[inline]
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Hits in all runs.
    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Bytes held beyond the struct's own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The runs, oldest first.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Run> {
        let mut bytes = self.bytes.iter().copied();
        let mut at = self.base;
        let mut ahead = varint::read(&mut bytes);
        std::iter::from_fn(move || {
            at += ahead? >> 1;
            ahead = varint::read(&mut bytes);
            let hits = match ahead {
                Some(hits) if hits & HITS != 0 => {
                    ahead = varint::read(&mut bytes);
                    (hits >> 1) as u32
                }
                _ => 1,
            };
            Some(Run { at, hits })
        })
    }

    /// The runs, whose instants must ascend and whose hits must be at least one; none if they do not.
    pub fn from_ascending(runs: impl IntoIterator<Item = Run>) -> Option<Self> {
        let mut all = Self::default();
        for Run { at, hits } in runs {
            if hits == 0 || all.total > 0 && (at <= all.newest || at - all.newest > Window::NANOS_MAX) {
                return None;
            }
            all.push(at, hits);
        }
        Some(all)
    }

    /// Adds hits, which must be at least one, at an instant that is not before the newest. An instant holds up to
    /// `u32::MAX` hits.
    pub(super) fn push(&mut self, at: u64, hits: u32) {
        let same = self.pop_newest(|newest| newest.at == at);
        self.push_newest(Run { at, hits: same.map_or(hits, |same| same.hits.saturating_add(hits)) });
    }

    /// Adds hits, which must be at least one, at any instant not more than a longest window away from the others.
    pub(super) fn insert(&mut self, at: u64, hits: u32) {
        let mut newer = Vec::new();
        while let Some(run) = self.pop_newest(|newest| newest.at > at) {
            newer.push(run);
        }
        self.push(at, hits);
        newer.into_iter().rev().for_each(|run| self.push_newest(run));
    }

    /// Takes the newest hits away, as many as there are.
    pub(super) fn take_newest(&mut self, mut hits: u64) {
        while hits > 0
            && let Some(newest) = self.pop_newest(|_| true)
        {
            let taken = hits.min(u64::from(newest.hits)) as u32;
            if newest.hits > taken {
                self.push_newest(Run { hits: newest.hits - taken, ..newest });
            }
            hits -= u64::from(taken);
        }
        self.shrink();
    }

    /// Forgets the runs at or before the instant.
    pub(super) fn forget_until(&mut self, at: u64) {
        if self.newest <= at {
            self.bytes.clear();
            self.total = 0;
        }
        while self.pop_oldest(|oldest| oldest.at <= at).is_some() {}
        self.shrink();
    }

    /// Joins all hits beyond the newest `kept` into one run, dated as the newest of them.
    pub(super) fn join_beyond(&mut self, kept: u64) {
        // Compared anew after each join: a run holds up to `u32::MAX` hits, and hits that a join loses are no longer beyond.
        while let total = self.total
            && let Some(oldest) =
                self.pop_oldest(|oldest| u64::from(oldest.hits) < total.saturating_sub(kept))
        {
            let next = self.pop_oldest(|_| true);
            let joined =
                next.map_or(oldest, |next| Run { hits: next.hits.saturating_add(oldest.hits), ..next });
            self.push_oldest(joined);
            if next.is_none() {
                break;
            }
        }
    }

    /// Appends the stored form: the instant from which the first run counts, and the runs.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut before = self.iter().next().map_or(self.newest, |oldest| oldest.at);
        out.extend(varint::bytes(before));
        for run in self.iter() {
            let (nanos, hits) = written(run.at - before, run.hits);
            out.extend(varint::bytes(nanos));
            out.extend(hits.into_iter().flat_map(varint::bytes));
            before = run.at;
        }
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut bytes = bytes.iter().copied().peekable();
        let mut runs = Self::default();
        let mut at = varint::read(&mut bytes)?;
        while bytes.peek().is_some() {
            let nanos = varint::read(&mut bytes)?;
            let is_later = nanos > 0 || runs.total == 0;
            if nanos & HITS != 0 || nanos >> 1 > Window::NANOS_MAX || !is_later {
                return None;
            }
            at = at.checked_add(nanos >> 1)?;
            let has_hits = bytes.peek().is_some_and(|&byte| u64::from(byte) & HITS != 0);
            let hits = if has_hits { varint::read(&mut bytes)? >> 1 } else { 1 };
            runs.push(at, u32::try_from(hits).ok().filter(|&hits| hits > 0)?);
        }
        Some(runs)
    }

    fn push_newest(&mut self, run: Run) {
        if self.bytes.is_empty() {
            (self.base, self.newest) = (run.at, run.at);
        }
        let (nanos, hits) = written(run.at - self.newest, run.hits);
        self.bytes.extend(varint::bytes(nanos));
        self.bytes.extend(hits.into_iter().flat_map(varint::bytes));
        self.newest = run.at;
        self.total += u64::from(run.hits);
    }

    /// Puts back, before all others, a run of the instant that was popped last.
    fn push_oldest(&mut self, run: Run) {
        debug_assert_eq!(run.at, self.base);
        let (nanos, hits) = written(0, run.hits);
        for byte in varint::bytes(nanos).chain(hits.into_iter().flat_map(varint::bytes)).rev() {
            self.bytes.push_front(byte);
        }
        self.total += u64::from(run.hits);
    }

    /// Removes the newest run if `wanted` holds for it.
    fn pop_newest(&mut self, wanted: impl FnOnce(Run) -> bool) -> Option<Run> {
        let mut backwards = self.bytes.iter().rev().copied().peekable();
        let last = varint::read_back(&mut backwards)?;
        let (nanos, hits) = match last & HITS {
            0 => (last >> 1, 1),
            _ => (varint::read_back(&mut backwards)? >> 1, (last >> 1) as u32),
        };
        let run = Run { at: self.newest, hits };
        if !wanted(run) {
            return None;
        }
        self.bytes.truncate(self.bytes.len() - len(nanos, hits));
        self.newest -= nanos;
        self.total -= u64::from(hits);
        Some(run)
    }

    /// Removes the oldest run if `wanted` holds for it.
    #[inline]
    fn pop_oldest(&mut self, wanted: impl FnOnce(Run) -> bool) -> Option<Run> {
        let run = self.iter().next().filter(|&run| wanted(run))?;
        self.bytes.drain(..len(run.at - self.base, run.hits));
        self.base = run.at;
        self.total -= u64::from(run.hits);
        Some(run)
    }

    /// Gives memory back once most of it lies idle.
    fn shrink(&mut self) {
        const IDLE_BYTES_MIN: usize = 64;
        if self.bytes.capacity() > IDLE_BYTES_MIN.max(4 * self.bytes.len()) {
            self.bytes.shrink_to(2 * self.bytes.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operation on a list of hits.
    #[derive(Clone, Debug)]
    enum Step {
        Push { after: u64, hits: u32 },
        TakeNewest(u64),
        Forget(u64),
        JoinBeyond(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let nanos = prop_oneof![Just(0), 1..200u64, 0..1u64 << 58];
        let hits = prop_oneof![Just(1), 1..9u32, 1..=u32::MAX];
        prop_oneof![
            6 => (nanos.clone(), hits).prop_map(|(after, hits)| Step::Push { after, hits }),
            1 => (0..12u64).prop_map(Step::TakeNewest),
            1 => nanos.prop_map(Step::Forget),
            1 => (0..12u64).prop_map(Step::JoinBeyond),
        ]
    }

    /// The same on a plain list of instants and numbers.
    fn apply(plain: &mut Vec<(u64, u64)>, now: u64, step: &Step) {
        let total = |plain: &[(u64, u64)]| plain.iter().map(|run| run.1).sum::<u64>();
        match *step {
            Step::Push { hits, .. } => match plain.last_mut() {
                Some(last) if last.0 == now => last.1 = (last.1 + u64::from(hits)).min(u64::from(u32::MAX)),
                _ => plain.push((now, u64::from(hits))),
            },
            Step::TakeNewest(hits) => {
                for _ in 0..hits {
                    let Some(last) = plain.last_mut() else { return };
                    last.1 -= 1;
                    plain.retain(|run| run.1 > 0);
                }
            }
            Step::Forget(before) => plain.retain(|run| run.0 > now.saturating_sub(before)),
            Step::JoinBeyond(kept) => {
                // The newest run that has, with all newer ones, more than `kept` hits.
                let newest = (0..plain.len()).rev().find(|&run| total(&plain[run..]) > kept);
                if let Some(newest) = newest {
                    let joined = total(&plain[..=newest]).min(u64::from(u32::MAX));
                    plain.drain(..newest);
                    plain[0].1 = joined;
                }
            }
        }
    }

    proptest! {
        #[test]
        fn the_written_list_is_the_plain_list(steps in prop::collection::vec(step(), 1..60)) {
            let (mut runs, mut plain, mut now) = (Runs::default(), Vec::new(), 1_u64 << 60);
            for step in &steps {
                if let Step::Push { after, hits } = *step {
                    now = now.saturating_add(after);
                    apply(&mut plain, now, step);
                    runs.push(now, hits);
                } else {
                    apply(&mut plain, now, step);
                    match *step {
                        Step::TakeNewest(hits) => runs.take_newest(hits),
                        Step::Forget(before) => runs.forget_until(now.saturating_sub(before)),
                        Step::JoinBeyond(kept) => runs.join_beyond(kept),
                        Step::Push { .. } => unreachable!(),
                    }
                }
                let read: Vec<(u64, u64)> = runs.iter().map(|run| (run.at, u64::from(run.hits))).collect();
                prop_assert_eq!(&read, &plain);
                prop_assert_eq!(runs.total(), plain.iter().map(|run| run.1).sum::<u64>());
                if let Some(last) = plain.last() {
                    prop_assert_eq!(runs.newest(), last.0);
                }
            }
        }
    }

    /// The oldest run is saturated: hits that were lost in it were counted as hits to be joined, and newer runs with them.
    #[test]
    fn joining_a_saturated_run_leaves_newer_runs_alone() {
        let mut runs = Runs::default();
        for (at, hits) in [(0, u32::MAX), (1, 5), (2, 5)] {
            runs.push(at, hits);
            runs.join_beyond(9);
        }
        let left: Vec<_> = runs.iter().collect();
        assert_eq!(left, [Run { at: 1, hits: u32::MAX }, Run { at: 2, hits: 5 }]);
    }

    #[test]
    fn hits_take_few_bytes() {
        let bytes_each = |nanos: u64, hits: u32| {
            let mut runs = Runs::default();
            (0..1_000).for_each(|index| runs.push(index * nanos, hits));
            runs.bytes.len() as f64 / 1_000.0
        };
        assert_eq!(bytes_each(1_000_000, 1).ceil(), 3.0);
        assert_eq!(bytes_each(1_000_000_000, 1).ceil(), 5.0);
        assert_eq!(bytes_each(1_000_000_000, 1_000).ceil(), 7.0);
        let mut runs = Runs::default();
        (0..1_000_000).for_each(|_| runs.push(7, 3));
        assert_eq!(runs.bytes.len(), 5);
    }

    #[test]
    fn memory_is_released_after_most_hits_have_expired() {
        let mut runs = Runs::default();
        (0..10_000).for_each(|index| runs.push(index * 1_000, 1));
        runs.forget_until(9_990_000);
        assert!(runs.heap_bytes() <= 64, "{} bytes", runs.heap_bytes());
    }
}
