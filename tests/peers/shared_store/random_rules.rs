//! Random rules of each kind of limit, and random requests for them.

use std::collections::BTreeSet;
use tidegate_core::limit::{Descriptor, Entry, Hits, Request, RequestLimit, RequestLimits, Unit};

/// Pseudo-random numbers (SplitMix64) of a seed.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    pub fn choose<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// Limits of the reference server that are counted alone once they are over.
pub(super) const COUNTING_STOPS: &str = "reference, counting stops";

/// The kinds of limits, each with its keys in a rule file.
pub(super) const KINDS: [(&str, &str); 12] = [
    ("sliding_window", ""),
    ("sliding_window precision", "precision: "),
    ("sliding_log", "algorithm: sliding_log, "),
    ("fixed_window clock", "algorithm: fixed_window, "),
    ("fixed_window first_hit", "algorithm: fixed_window, aligned: first_hit, "),
    ("fixed_window calendar", "calendar"),
    ("token_bucket greedy", "algorithm: token_bucket, "),
    ("token_bucket intervals", "algorithm: token_bucket, refill: intervals, "),
    ("leaky_bucket", "algorithm: leaky_bucket, "),
    ("reference", "reference"),
    (COUNTING_STOPS, "reference"),
    ("all, with changes of rules", "all"),
];

/// Number of the first kinds, which are algorithms.
pub(super) const ALGORITHMS: usize = 9;

const UNITS: [Unit; 4] = [Unit::Second, Unit::Minute, Unit::Hour, Unit::Day];

/// The longest window, in microseconds, of meters that count hits beyond their limit.
const LONGEST_FEW: u64 = 10_800_000_000;

pub(super) fn is_meter(kind: usize) -> bool {
    (6..=8).contains(&kind) || kind == KINDS.len() - 1
}

/// A limit of a kind, and its window in microseconds.
pub(super) fn limit(random: &mut Random, kind: usize) -> (String, u64) {
    let (keys, window, _) = limit_and_size(random, kind);
    (keys, window)
}

/// A limit of a kind; in microseconds, its window, and the time in which a full counter becomes empty: for a bucket, the time of its size.
fn limit_and_size(random: &mut Random, kind: usize) -> (String, u64, u64) {
    let is_all = kind == KINDS.len() - 1;
    let kind = if is_all { random.below(9) as usize } else { kind };
    let windows = ["1ms", "7ms", "250ms", "1s", "10s", "90s", "7m", "3h", "11d", "900d", "3650d"];
    let micros =
        [1, 7, 250, 1_000, 10_000, 90_000, 420_000, 10_800_000, 950_400_000, 77_760_000_000, 315_360_000_000];
    // Hits of one limit become hits of another when rules change: see `LONGEST_FEW`.
    let is_short = is_all && (6..=8).contains(&kind);
    let index = random.below(if is_short { 8 } else { windows.len() as u64 }) as usize;
    let many = !is_all && random.one_in(6);
    let requests = if many { 1 + random.below(u64::from(u32::MAX)) } else { random.below(30) };
    let window = micros[index] * 1_000;
    let mut empty = window;
    let (keys, requests) = match kind {
        1 => (format!("precision: {}, ", 2 + random.below(254)), requests),
        2 => (KINDS[2].1.to_owned(), requests.min(40)),
        5 => {
            let (unit, days) = *random.choose(&[("day", 1), ("week", 7), ("month", 30), ("year", 365)]);
            let zone = random.choose(&["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"]);
            let anchor = match unit {
                _ if random.one_in(2) => "true",
                "day" => "{day: 02:30}",
                "week" => "{week: thursday 09:00}",
                "month" => "{month: 31 06:00}",
                _ => "{year: 02-29}",
            };
            let keys = format!(
                "algorithm: fixed_window, calendar: {anchor}, time_zone: {zone}, unit: {unit}, requests_per_unit: {requests}"
            );
            return (keys, days * 86_400_000_000, days * 86_400_000_000);
        }
        // A bucket has to drain within 100 years.
        6..=8 => {
            let requests = if many { requests } else { requests.max(1) };
            let size = if many { requests.min(1 + random.below(1_000)) } else { 1 + random.below(40) };
            let name = if kind == 8 { "burst" } else { "size" };
            let size = size.min(10 * requests);
            empty = (u128::from(size) * u128::from(window) / u128::from(requests)) as u64;
            (format!("{}{name}: {size}, ", KINDS[kind].1), requests)
        }
        9 | 10 => (String::new(), requests),
        _ => (KINDS[kind].1.to_owned(), requests),
    };
    (format!("{keys}per: {}, requests_per_unit: {requests}", windows[index]), window, empty)
}

/// Rules of a domain; in microseconds, a window of one of them, and the shortest time in which a full counter of any of them becomes empty.
pub(super) fn rules(random: &mut Random, kind: usize) -> (String, u64, u64) {
    let mut text = "domain: d\ndescriptors:\n".to_owned();
    let (mut window, mut shortest) = (1, u64::MAX);
    for key in ["a", "b", "c"] {
        text += &format!("- key: {key}\n");
        if random.one_in(8) {
            text += "  shadow_mode: true\n";
        }
        if random.one_in(4) {
            text += "  quota_mode: true\n";
        }
        let several = if random.one_in(4) { 2 } else { 1 };
        text += "  rate_limits:\n";
        for index in 0..several {
            let (keys, empty);
            (keys, window, empty) = limit_and_size(random, kind);
            shortest = shortest.min(empty);
            // A meter holds 126 years of draining at most: only hits beyond the limit exceed that.
            let is_bounded = !is_meter(kind) || window <= LONGEST_FEW;
            let always = if is_bounded && random.one_in(5) { ", charge: always" } else { "" };
            let bounds_debt = !always.is_empty() && random.one_in(2);
            let debt = if bounds_debt { format!(", debt_max: {}", random.below(4)) } else { String::new() };
            text += &format!("  - {{name: {key}{index}, {keys}{always}{debt}}}\n");
        }
    }
    (text, window, shortest)
}

/// A request as data: hits of descriptors, each with a key, a value and perhaps a limit.
pub(super) type Sketch = Vec<(usize, usize, Hits, Option<RequestLimit>)>;

pub(super) fn sketch(random: &mut Random, has_few_hits: bool) -> Sketch {
    let count = if random.one_in(2) { 1 } else { 1 + random.below(4) };
    let one = |random: &mut Random| {
        let (key, value) = (random.below(3) as usize, random.below(2) as usize);
        let number = match random.below(12) {
            0 | 1 if has_few_hits => 1 + random.below(100),
            0 => random.next() >> random.below(64),
            1 => 1 + random.below(u64::from(u32::MAX)),
            _ => 1 + random.below(5),
        };
        let hits = match random.below(10) {
            0 => Hits::Peek,
            1 => Hits::new(Some(number), 0, true),
            _ => Hits::new(Some(number), 0, false),
        };
        let own = random
            .one_in(10)
            .then(|| RequestLimit { requests: random.below(9) as u32, unit: *random.choose(&UNITS) });
        (key, value, hits, own)
    };
    (0..count).map(|_| one(random)).collect()
}

pub(super) fn one_charge_per_counter(sketch: &mut Sketch) {
    let mut counters = BTreeSet::new();
    sketch.retain(|&(key, value, ..)| counters.insert((key, value)));
}

pub(super) fn request(sketch: &Sketch) -> Request<'static> {
    let mut request = Request::new("d");
    for &(key, value, hits, limit) in sketch {
        let entry = Entry { key: ["a", "b", "c"][key], value: ["x", "y"][value] };
        request.push(Descriptor { entries: [entry].into_iter().collect(), limit, hits });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

/// The next time, in microseconds: usually later, by a part of the window or a little; sometimes the clock is set back.
pub(super) fn later(random: &mut Random, now: u64, window: u64, back_max: u64) -> u64 {
    let next = match random.below(20) {
        0 => now.saturating_sub(random.below(window.min(back_max).max(1))),
        1..=4 => now,
        5..=8 => now + random.below(3),
        9..=17 => now + random.below(1 + window / 8),
        18 => now + random.below(3 * window),
        _ => (now / window + 1) * window - random.below(2),
    };
    // The store's time is valid until 2255, and the day of a calendar is known from the time before it.
    next.clamp(1_000_000_000_000_000, 4_000_000_000_000_000)
}
