//! Traffic of several kinds, each made of sources with a counter of their own. The traffic is drawn from a seed, in whole numbers.

use super::{LIMIT, WINDOW_NANOS};
use std::iter;

/// The start of a window and of each of its parts: 15 November 2023, 00:00 UTC.
const START: u64 = 1_700_006_400_000_000_000;

const SECOND: u64 = 1_000_000_000;

/// Times at which each source requests one hit, in nanoseconds since the epoch, in ascending order.
pub(super) struct Traffic {
    pub(super) name: &'static str,
    /// A description in a sentence.
    pub(super) about: &'static str,
    pub(super) sources: Vec<Vec<u64>>,
}

pub(super) fn traffics() -> Vec<Traffic> {
    let mut random = Random(20);
    vec![
        Traffic {
            name: "population",
            about: "400 sources over half an hour; source k sends at 3/k of the limit, so that few are near it.",
            sources: (1..=400).map(|rank| evenly(&mut random, 30, |_| 3_000 / rank)).collect(),
        },
        Traffic {
            name: "steady",
            about: "12 sources over 20 minutes, each at an even rate: from a quarter of the limit to three times it.",
            sources: (1..=12).map(|part| evenly(&mut random, 20, |_| part * 250)).collect(),
        },
        Traffic {
            name: "bursty",
            about: "12 sources, each with 40 bursts of 20 to 160 requests within 1 to 10 seconds and pauses of 5 to 90.",
            sources: (0..12).map(|_| in_bursts(&mut random)).collect(),
        },
        Traffic {
            name: "diurnal",
            about: "12 sources over a day of 24 minutes: from a tenth of the limit at night to a peak of 0.5 to 2.7 times it.",
            sources: (0..12).map(|number| by_day(&mut random, 500 + number * 200)).collect(),
        },
        Traffic {
            name: "adversarial",
            about: "6 sources that request everything at the last nanosecond of a window, a half, an eighth, a sixtieth of it, \
                    or of the window that their first hit began, and then whatever becomes available.",
            sources: adversaries(),
        },
    ]
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// A number below the bound, which is not 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Requests over a number of windows, at a rate in thousandths of the limit that may depend on the window. The gap
/// between two requests is between zero and twice the mean.
fn evenly(random: &mut Random, windows: u64, rate: impl Fn(u64) -> u64) -> Vec<u64> {
    let (mut now, mut arrivals) = (START + random.below(WINDOW_NANOS), Vec::new());
    while now < START + windows * WINDOW_NANOS {
        arrivals.push(now);
        let rate = rate((now - START) / WINDOW_NANOS).max(1);
        let mean = WINDOW_NANOS * 1_000 / (rate * u64::from(LIMIT));
        now += random.below(2 * mean) + 1;
    }
    arrivals
}

fn in_bursts(random: &mut Random) -> Vec<u64> {
    let (mut now, mut arrivals) = (START + random.below(WINDOW_NANOS), Vec::new());
    for _ in 0..40 {
        let (requests, length) = (20 + random.below(141), (1 + random.below(10)) * SECOND);
        let mut burst: Vec<u64> = (0..requests).map(|_| now + random.below(length)).collect();
        burst.sort_unstable();
        arrivals.extend(burst);
        now += length + (5 + random.below(86)) * SECOND;
    }
    arrivals
}

/// A day of 24 windows: the rate rises from a tenth of the limit at the ends to `peak` thousandths in the middle.
fn by_day(random: &mut Random, peak: u64) -> Vec<u64> {
    const NIGHT: u64 = 100;
    evenly(random, 24, |window| NIGHT + (peak - NIGHT) * (12 - window.abs_diff(12).min(12)) / 12)
}

/// Requests around the window boundaries of every algorithm: each source uses another boundary.
fn adversaries() -> Vec<Vec<u64>> {
    let rounds = (0..3).map(|round| START + round * 4 * WINDOW_NANOS);
    let attack = |from: u64| {
        // Fifty requests a second for a window: whatever becomes free is taken at once.
        iter::repeat_n(from, 2 * LIMIT as usize).chain((1..3_000).map(move |step| from + step * SECOND / 50))
    };
    let at_ends_of_parts = [1, 2, 8, 60].map(|parts: u64| {
        rounds.clone().flat_map(|start| attack(start + WINDOW_NANOS / parts - 1)).collect()
    });
    let first_hits = rounds.map(|start| start + 7 * SECOND);
    let at_their_ends = first_hits.flat_map(|hit| iter::once(hit).chain(attack(hit + WINDOW_NANOS - 1)));
    let always = (0..6_000).map(|step| START + step * SECOND / 10);
    at_ends_of_parts.into_iter().chain([at_their_ends.collect(), always.collect()]).collect()
}
