//! Counts of hits and requests for each limit, by outcome.
//!
//! The limits are those of the rules and change. Each thread therefore counts in a table that grows, instead of
//! [`tidegate_counts::Counts`]. What always holds:
//!
//! - A count belongs to the name of its limit: it continues when rules are reloaded, and starts at zero when its number is given to another
//!   name.
//! - Numbers are bounded: limits beyond the bound share one number, and so do values of descriptors.
//!
//! Limits whose rules show values in metrics are counted by value, under a lock for which only scrapes contend.

mod outcome;

pub use outcome::{Outcome, OutcomeCounts};

use std::{
    collections::HashMap,
    fmt::Write,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};
use tidegate_core::limit::{
    AppliedLimit, BanPhase, Code, Decision, Descriptor, Hits, Request, SeriesId, Status,
};
use tidegate_counts::{CountsByText, Label, PerThread, ThreadIndex};

/// Settings of the counts of limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitCountSettings {
    /// Names of limits that are counted apart, and as many values of descriptors.
    pub series_max: usize,
    /// Percentage of a limit above which admitted hits are near it.
    pub near_limit_percent: u8,
}

impl Default for LimitCountSettings {
    fn default() -> Self {
        Self { series_max: 10_000, near_limit_percent: 80 }
    }
}

/// The counts of one limit in one thread. The most frequent outcomes are in the first cache line.
#[derive(Default)]
#[repr(C, align(64))]
struct Cells {
    /// Use number of the [`SeriesId`] that is counted here.
    use_number: AtomicU32,
    by_outcome: [OutcomeCells; Outcome::ALL.len()],
}

#[derive(Default)]
struct OutcomeCells {
    hits: AtomicU64,
    requests: AtomicU64,
}

impl Cells {
    #[inline]
    fn add(&self, thread: ThreadIndex, outcome: Outcome, hits: u64) {
        let cells = &self.by_outcome[outcome as usize];
        // Callers choose the number of hits of a request, up to 2^64 - 1.
        thread.add_saturating(&cells.hits, hits);
        thread.add(&cells.requests, 1);
    }

    /// Starts at zero for another name.
    #[cold]
    fn reset(&self, use_number: u32) {
        for OutcomeCells { hits, requests } in &self.by_outcome {
            hits.store(0, Ordering::Relaxed);
            requests.store(0, Ordering::Relaxed);
        }
        self.use_number.store(use_number, Ordering::Relaxed);
    }

    fn counts(&self) -> OutcomeCounts {
        OutcomeCounts {
            hits: self.by_outcome.each_ref().map(|cells| cells.hits.load(Ordering::Relaxed)),
            requests: self.by_outcome.each_ref().map(|cells| cells.requests.load(Ordering::Relaxed)),
        }
    }
}

/// Numbers that are allocated at once, when a thread first counts in one of them.
const CHUNK: usize = 128;

type Chunk = Box<[Cells; CHUNK]>;

/// The counts of one thread.
struct ThreadCounts {
    chunks: Box<[OnceLock<Chunk>]>,
}

/// Counts for each limit.
pub struct LimitCounts {
    settings: LimitCountSettings,
    threads: PerThread<ThreadCounts>,
    /// By series and values. The values beyond the bound share a count in each series.
    by_values: CountsByText<OutcomeCounts>,
}

/// The value that stands for all values beyond the bound.
pub const OTHER_VALUES: &str = "other";

impl Default for LimitCounts {
    fn default() -> Self {
        Self::new(LimitCountSettings::default())
    }
}

impl LimitCounts {
    /// Counts of nothing yet.
    pub fn new(settings: LimitCountSettings) -> Self {
        let chunks = settings.series_max / CHUNK + 1;
        let empty = || ThreadCounts { chunks: (0..chunks).map(|_| OnceLock::new()).collect() };
        Self { settings, threads: PerThread::new(empty), by_values: CountsByText::new(settings.series_max) }
    }

    /// Counts a decision that is sent.
    pub fn count(&self, request: &Request<'_>, decision: &Decision<'_>, was_queued: bool) {
        let thread = ThreadIndex::current();
        let counts = (thread, self.threads.of(thread));
        for (index, (descriptor, status)) in (0..).zip(request.descriptors().iter().zip(&decision.statuses)) {
            let Some(limit) = status.limit else { continue };
            let applied = AppliedLimit {
                descriptor: index,
                capacity: limit.capacity,
                remaining: status.remaining,
                series: status.series,
                is_over: status.is_over,
                reset: status.reset,
                ban: status.ban,
            };
            self.count_one(counts, &applied, descriptor, status, decision, was_queued);
        }
        for applied in &decision.beside {
            let index = applied.descriptor as usize;
            let (descriptor, status) = (&request.descriptors()[index], &decision.statuses[index]);
            self.count_one(counts, applied, descriptor, status, decision, was_queued);
        }
    }

    #[inline]
    fn count_one(
        &self,
        (thread, counts): (ThreadIndex, &ThreadCounts),
        applied: &AppliedLimit,
        descriptor: &Descriptor<'_>,
        status: &Status<'_>,
        decision: &Decision<'_>,
        was_queued: bool,
    ) {
        let (hits, is_give_back) = match descriptor.hits {
            Hits::Take(hits) => (hits.get(), false),
            Hits::Peek => (0, false),
            Hits::GiveBack(hits) => (hits.get(), true),
        };
        let outcome = match (applied.is_over, decision.code) {
            _ if is_give_back => Outcome::GivenBack,
            (true, Code::OverLimit) if status.code == Code::OverLimit => {
                Outcome::of_denial(decision.cause_of(true, applied.reset))
            }
            (true, _) => Outcome::of_shadow_denial(decision.cause_of(true, applied.reset)),
            (false, Code::Ok) if !status.is_over && was_queued => Outcome::Queued,
            (false, Code::Ok) if !status.is_over => Outcome::Admitted,
            (false, _) => Outcome::DeniedByOther,
        };
        let near = match outcome {
            Outcome::Admitted | Outcome::Queued => self.near(applied, hits),
            _ => 0,
        };
        if status.shows_values && applied.series != SeriesId::OTHER {
            self.count_values(applied, descriptor, status, (outcome, hits), near);
            return;
        }
        let cells = counts.cells(applied.series);
        cells.add(thread, outcome, hits);
        if near > 0 {
            cells.add(thread, Outcome::NearLimit, near);
        }
        if applied.ban != BanPhase::None {
            of_ban(applied.ban, |outcome| cells.add(thread, outcome, hits));
        }
    }

    /// The part of `hits` admitted hits that is beyond the percentage at which a limit is near.
    #[inline]
    fn near(&self, applied: &AppliedLimit, hits: u64) -> u64 {
        let capacity = u64::from(applied.capacity);
        // Floored, as in the reference server.
        let threshold = capacity * u64::from(self.settings.near_limit_percent) / 100;
        (capacity.saturating_sub(threshold)).saturating_sub(u64::from(applied.remaining)).min(hits)
    }

    #[cold]
    fn count_values(
        &self,
        &AppliedLimit { series, ban, .. }: &AppliedLimit,
        descriptor: &Descriptor<'_>,
        status: &Status<'_>,
        (outcome, hits): (Outcome, u64),
        near: u64,
    ) {
        let write = |text: &mut String, is_other| {
            // Writing to a string does not fail.
            let _ = write!(text, "{}.{} ", series.number, series.use_number);
            match is_other {
                true => text.push_str(OTHER_VALUES),
                false => write_values(text, descriptor, status.rule.map_or(0, |rule| rule.shown_values)),
            }
        };
        let add = |counts: &mut OutcomeCounts| {
            counts.add(outcome, hits);
            if near > 0 {
                counts.add(Outcome::NearLimit, near);
            }
            of_ban(ban, |outcome| counts.add(outcome, hits));
        };
        self.by_values.of_thread().add(write, |_| OutcomeCounts::default(), add);
    }

    /// Reads the counts of series.
    pub fn reader(&self) -> CountsReader<'_> {
        let has_counted = |counts: &&ThreadCounts| counts.chunks.iter().any(|chunk| chunk.get().is_some());
        CountsReader(self.threads.iter().filter(has_counted).collect())
    }

    /// The counts by values, and the number of values that are counted apart. Drops series for which `is_alive` is false.
    pub fn by_values(
        &self,
        is_alive: impl Fn(SeriesId) -> bool,
    ) -> (HashMap<(SeriesId, Box<str>), OutcomeCounts>, usize) {
        let number =
            self.by_values.retain(|text| series_and_values(text).is_some_and(|(series, _)| is_alive(series)));
        let mut sums: HashMap<(SeriesId, Box<str>), OutcomeCounts> = HashMap::new();
        self.by_values.for_each(|text, counts| {
            if let Some((series, values)) = series_and_values(text) {
                let sum = sums.entry((series, values.into())).or_default();
                *sum = sum.plus(counts);
            }
        });
        (sums, number)
    }
}

/// The parts of a text in [`LimitCounts::by_values`].
fn series_and_values(text: &str) -> Option<(SeriesId, &str)> {
    let (series, values) = text.split_once(' ')?;
    let (number, use_number) = series.split_once('.')?;
    Some((SeriesId { number: number.parse().ok()?, use_number: use_number.parse().ok()? }, values))
}

/// Reads counts of the threads that had counted when it was made.
pub struct CountsReader<'c>(Vec<&'c ThreadCounts>);

impl CountsReader<'_> {
    /// The counts of one series.
    pub fn counts(&self, series: SeriesId) -> OutcomeCounts {
        let cells = self.0.iter().filter_map(|counts| counts.existing(series));
        let of_series = cells.filter(|cells| cells.use_number.load(Ordering::Relaxed) == series.use_number);
        of_series.fold(OutcomeCounts::default(), |sum, cells| sum.plus(&cells.counts()))
    }
}

impl ThreadCounts {
    /// The cells of a series, for counting.
    #[inline]
    fn cells(&self, series: SeriesId) -> &Cells {
        let number = series.number as usize;
        // If the rules were loaded with a larger bound, numbers beyond the bound share the first.
        let (chunk, number) = match self.chunks.get(number / CHUNK) {
            Some(chunk) => (chunk, number % CHUNK),
            None => (&self.chunks[0], 0),
        };
        let cells = &chunk.get_or_init(|| Box::new(std::array::from_fn(|_| Cells::default())))[number];
        if cells.use_number.load(Ordering::Relaxed) != series.use_number {
            cells.reset(series.use_number);
        }
        cells
    }

    fn existing(&self, series: SeriesId) -> Option<&Cells> {
        let number = series.number as usize;
        Some(&self.chunks.get(number / CHUNK)?.get()?[number % CHUNK])
    }
}

/// The outcomes that hits have because of a ban, in addition to their own.
#[cold]
fn of_ban(ban: BanPhase, mut add: impl FnMut(Outcome)) {
    if ban != BanPhase::None {
        add(Outcome::Banned);
    }
    if ban == BanPhase::Begins {
        add(Outcome::BanBegun);
    }
}

/// Appends `key=value → key=value`, with the values of the entries in the mask.
fn write_values(text: &mut String, descriptor: &Descriptor<'_>, mask: u64) {
    for (index, entry) in (0..).zip(&descriptor.entries) {
        let separator = if index > 0 { " → " } else { "" };
        // Writing to a string does not fail.
        let _ = match mask.checked_shr(index).unwrap_or(0) & 1 {
            0 => write!(text, "{separator}{}", entry.key),
            _ => write!(text, "{separator}{}={}", entry.key, entry.value),
        };
    }
}

#[cfg(test)]
mod tests;
