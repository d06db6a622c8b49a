//! The keys with the most admitted and the most denied hits in the last minute and the last hour.
//!
//! Each thread samples its decisions into its own sketches, which a background thread collects. Memory is bounded by constants: with four
//! threads it is below 4 MiB.
//!
//! A thread that makes few decisions samples all of them. If it makes more than [`SAMPLES_PER_INTERVAL`] in an interval, it samples one in
//! so many, at random, and a sample counts for all decisions that it stands for. A request counts with at most as many hits as its limit
//! has.

mod key;
mod outcome;
mod sketch;
mod windows;

pub use key::{KeyEntry, SketchKey};
pub use outcome::KeyOutcome;
pub use sketch::Estimate;
pub use windows::{Report, ReportWindow};

use key::{BorrowedKey, KEY_BYTES_MAX};
use outcome::ByOutcome;
use parking_lot::Mutex;
use sketch::Sketch;
use std::{
    cell::Cell,
    sync::{Arc, LazyLock},
};
use tidegate_core::limit::{Code, DenialCause, Hits, Timestamp};
use tidegate_counts::{PerThread, ThreadIndex};
use tidegate_service::Event;
use windows::Windows;

/// The most keys that a thread keeps until they are collected, for each outcome.
const LANE_KEYS: usize = 512;
/// The interval after which a thread adapts its rate.
const INTERVAL_NANOS: u64 = 100_000_000;
/// Samples of a thread in an interval. They take some 0.2 ms.
const SAMPLES_PER_INTERVAL: u32 = 1_000;
/// The most decisions that one sample stands for.
const STRIDE_MAX: u32 = 4_096;
/// After this time without a sample, the next decision is sampled, however many were to be skipped.
const SILENCE_NANOS: u64 = 500_000_000;

thread_local! {
    static PACE: Cell<Pace> = const { Cell::new(Pace { skip: 0, until: 0 }) };
}

/// Number of decisions that this thread skips, and the time until which it does.
#[derive(Clone, Copy)]
struct Pace {
    skip: u32,
    until: u64,
}

/// The keys with the most hits.
pub struct TopKeys {
    lanes: PerThread<Mutex<Lane>>,
    collected: Mutex<Collected>,
}

#[derive(Default)]
struct Collected {
    windows: Windows,
    /// Empty sketches, exchanged with those of a lane, so that its thread does not wait for summaries.
    spare: Option<LaneSketches>,
}

/// Instead of the rule, if it is not the rule that denies hits. No path has these texts.
static OTHER_CAUSES: LazyLock<[Arc<str>; 2]> =
    LazyLock::new(|| ["(counters full)", "(shared store away)"].map(Arc::from));

type LaneSketches = ByOutcome<Sketch<Arc<SketchKey>>>;

/// The samples of one thread.
struct Lane {
    sketches: LaneSketches,
    sampler: Sampler,
    /// The encoded key.
    bytes: Vec<u8>,
}

/// Decides which decisions are samples.
struct Sampler {
    /// Number of decisions that the next sample stands for.
    stride: u32,
    interval_start: u64,
    samples: u32,
    /// Number of decisions that the samples of the interval stand for.
    decisions: u64,
    random: u64,
}

impl Sampler {
    fn new(seed: u64) -> Self {
        Self { stride: 1, interval_start: 0, samples: 0, decisions: 0, random: seed | 1 }
    }

    /// Takes a sample. Returns the number of decisions that it stands for, and the number to skip after it.
    fn sample(&mut self, now: u64) -> (u64, u32) {
        let stands_for = u64::from(self.stride);
        self.samples += 1;
        self.decisions += stands_for;
        let elapsed = now.saturating_sub(self.interval_start);
        if elapsed >= INTERVAL_NANOS {
            let per_interval = self.decisions * INTERVAL_NANOS / elapsed;
            let stride = per_interval.div_ceil(u64::from(SAMPLES_PER_INTERVAL));
            self.stride = u32::try_from(stride).unwrap_or(STRIDE_MAX).clamp(1, STRIDE_MAX);
            (self.interval_start, self.samples, self.decisions) = (now, 0, 0);
        } else if self.samples >= SAMPLES_PER_INTERVAL * 2 {
            self.stride = (self.stride * 2).min(STRIDE_MAX);
            self.samples = SAMPLES_PER_INTERVAL;
        }
        (stands_for, self.gap())
    }

    /// A random number whose mean is one less than the stride.
    fn gap(&mut self) -> u32 {
        // xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 32) as u32 % (2 * self.stride - 1)
    }
}

impl Default for TopKeys {
    fn default() -> Self {
        let mut seed = 0_u64;
        let lane = || {
            seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
            Mutex::new(Lane { sketches: empty_sketches(), sampler: Sampler::new(seed), bytes: Vec::new() })
        };
        Self { lanes: PerThread::new(lane), collected: Mutex::default() }
    }
}

fn empty_sketches() -> LaneSketches {
    [Sketch::new(LANE_KEYS), Sketch::new(LANE_KEYS)]
}

impl TopKeys {
    /// Counts the decision if it is a sample.
    #[inline]
    pub(super) fn read(&self, event: &Event<'_, '_, '_>) {
        let pace = PACE.get();
        let now = event.received.as_nanos();
        if pace.skip > 0 && now < pace.until {
            PACE.set(Pace { skip: pace.skip - 1, ..pace });
            return;
        }
        self.sample(event, now);
    }

    #[inline(never)]
    fn sample(&self, event: &Event<'_, '_, '_>, now: u64) {
        // While a lane is collected, its thread takes no sample. The next decision is sampled instead.
        let Some(mut lane) = self.lanes.of(ThreadIndex::current()).try_lock() else { return };
        let (stands_for, skip) = lane.sampler.sample(now);
        PACE.set(Pace { skip, until: now.saturating_add(SILENCE_NANOS) });
        let Lane { sketches, bytes, .. } = &mut *lane;
        for (descriptor, status) in event.request.descriptors().iter().zip(&event.decision.statuses) {
            let Hits::Take(hits) = descriptor.hits else { continue };
            let Some(limit) = &status.limit else { continue };
            let outcome = match (event.decision.code, status.code) {
                (Code::Ok, _) => KeyOutcome::Admitted,
                (Code::OverLimit, Code::OverLimit) => KeyOutcome::Denied,
                (Code::OverLimit, Code::Ok) => continue,
            };
            // Callers choose the number of hits: a request of 2^50 hits would hide all other keys.
            let hits = hits.get().min(u64::from(limit.capacity).max(1));
            bytes.clear();
            bytes.reserve(KEY_BYTES_MAX);
            key::encode(event.request.domain(), &descriptor.entries, bytes);
            let rule = match event.decision.cause(status) {
                None => status.rule.map(|rule| &rule.path),
                // The rule is not the cause.
                Some(DenialCause::CountersFull) => Some(&OTHER_CAUSES[0]),
                Some(DenialCause::StoreAway) => Some(&OTHER_CAUSES[1]),
            };
            let borrowed = BorrowedKey { bytes, rule: rule.map_or("", |rule| rule) };
            let owned = || Arc::new(SketchKey::new(bytes, rule));
            sketches[outcome as usize].add(&borrowed, hits.saturating_mul(stands_for), owned);
        }
    }

    /// Whether the next `decisions` of this thread, at `now`, contain no sample, so that they need not be read.
    #[inline]
    pub(super) fn passes_over(&self, decisions: usize, now: Timestamp) -> bool {
        let pace = PACE.get();
        match u32::try_from(decisions) {
            Ok(decisions) if decisions <= pace.skip && now.as_nanos() < pace.until => {
                PACE.set(Pace { skip: pace.skip - decisions, ..pace });
                true
            }
            _ => false,
        }
    }

    /// Collects the samples of all threads. Called every second.
    pub fn collect(&self, now: Timestamp) {
        let mut collected = self.collected.lock();
        let Collected { windows, spare } = &mut *collected;
        for lane in self.lanes.iter() {
            let mut lane = lane.lock();
            if lane.sketches.iter().all(Sketch::is_empty) {
                continue;
            }
            let sketches = spare.get_or_insert_with(empty_sketches);
            std::mem::swap(sketches, &mut lane.sketches);
            drop(lane);
            windows.add(&sketches.each_mut().map(Sketch::take), now);
        }
        windows.advance(now);
    }

    /// The keys of a window, after the samples of all threads were collected.
    pub fn report(&self, window: ReportWindow, outcome: KeyOutcome, now: Timestamp) -> Report {
        self.collect(now);
        self.collected.lock().windows.report(window, outcome, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The time between decisions is constant. The sum over the samples estimates their number.
    #[test]
    fn samples_stand_for_all_decisions_and_are_bounded_in_time() {
        for (nanos_between, error_max) in [(10_000_000, 0.0), (200_000, 0.0), (10_000, 0.05), (1_000, 0.05)] {
            let (mut sampler, mut skip, mut counted, mut samples) = (Sampler::new(7), 0, 0, 0u64);
            let decisions = 2_000_000_000 / nanos_between;
            for number in 0..decisions {
                if skip > 0 {
                    skip -= 1;
                    continue;
                }
                let (stands_for, gap) = sampler.sample(1_000_000_000 + number * nanos_between);
                (counted, samples, skip) = (counted + stands_for, samples + 1, gap);
            }
            let error = counted.abs_diff(decisions) as f64 / decisions as f64;
            assert!(error <= error_max, "{counted} for {decisions}");
            // In each of 20 intervals, twice as many until the rate is adapted.
            assert!(samples <= 20 * 2 * u64::from(SAMPLES_PER_INTERVAL), "{samples} of {decisions}");
        }
    }

    /// Adds new keys of the longest kind, as many as the sketches of this lane keep.
    fn fill(top_keys: &TopKeys, lane: usize, numbers: &mut impl Iterator<Item = usize>) {
        let rule: Arc<str> = "user".into();
        let lane = top_keys.lanes.iter().nth(lane).expect("lanes of 64 threads");
        for sketch in &mut lane.lock().sketches {
            for number in numbers.by_ref().take(LANE_KEYS) {
                let bytes = format!("{number:0KEY_BYTES_MAX$}").into_bytes();
                let borrowed = BorrowedKey { bytes: &bytes, rule: &rule };
                sketch.add(&borrowed, 1, || Arc::new(SketchKey::new(&bytes, Some(&rule))));
            }
        }
    }

    /// Four threads with full sketches, and full windows.
    #[test]
    fn memory_is_below_four_mebibytes_with_four_threads() {
        let (mut top_keys, mut numbers) = (None, 0..);
        let used = allocation_counter::measure(|| {
            let top_keys = top_keys.insert(TopKeys::default());
            let hour = (0..13).map(|interval| interval * 300);
            let minute = (0..8).map(|interval| 3_700 + interval * 10);
            for second in hour.chain(minute) {
                (0..4).for_each(|lane| fill(top_keys, lane, &mut numbers));
                top_keys.collect(Timestamp::from_millis(second * 1_000));
            }
            (0..4).for_each(|lane| fill(top_keys, lane, &mut numbers));
        });
        println!("top keys: {} bytes, at most {} at once", used.bytes_current, used.bytes_max);
        assert!(used.bytes_max < 4 << 20, "{}", used.bytes_max);
        // The windows are full: memory is not low because they are empty.
        assert!(used.bytes_current > 1 << 20, "{}", used.bytes_current);
    }
}
