//! The store and its snapshots at scale: `cargo bench --bench store_scale [-- KEYS...]`, 1 and 10 million unless given
//! otherwise. Each number of keys runs in a process of its own, so that its memory is its own.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]
#![allow(clippy::unwrap_used, reason = "a measurement that cannot run has nothing better to do than to stop")]

use hdrhistogram::Histogram;
use std::{
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tidegate_core::{
    clock::ManualClock,
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, PageCopies, Seed, StoreSettings, Wanted},
};
use tidegate_snapshot::{self, OnBadSnapshot, Started};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const RULES: &str =
    "domain: d\ndescriptors:\n- key: user\n  rate_limit: {unit: hour, requests_per_unit: 1000000}\n";
const HOUR_NANOS: u64 = 3_600_000_000_000;
const SNAPSHOTS: u64 = 50;

fn main() {
    let numbers = || std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    if std::env::args().any(|argument| argument == "--one") {
        numbers().for_each(measure);
        return;
    }
    let mut all: Vec<u64> = numbers().collect();
    if all.is_empty() {
        all = vec![1_000_000, 10_000_000];
    }
    for keys in all {
        let this = std::env::current_exe().unwrap();
        assert!(Command::new(this).args(["--one", &keys.to_string()]).status().unwrap().success());
    }
}

fn row(what: &str, value: impl std::fmt::Display) {
    println!("| {what} | {value} |");
}

fn now() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

fn build(seed: Seed) -> Limiter {
    let source = Source::file("bench", RULES);
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).unwrap();
    Limiter::new(rules, StoreSettings { seed, counters_max: 1 << 30, on_full: OnFull::Deny }, false)
}

fn start(directory: &Path) -> Started {
    tidegate_snapshot::start(
        directory,
        OnBadSnapshot::Refuse,
        Seed::from_bytes([9; 16]),
        build,
        now(),
        |_| {},
    )
    .unwrap()
}

fn status_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

fn rss_bytes() -> u64 {
    status_kb("VmRSS:") * 1024
}

/// One hit of the key.
fn hit(limiter: &Limiter, key: u64, now: Timestamp) {
    let text = format!("{key:016x}");
    let entries = [Entry { key: "user", value: &text }].into_iter().collect();
    let mut request = Request::new("d");
    request.push(Descriptor { entries, hits: Hits::ONE, limit: None });
    std::hint::black_box(limiter.pin().decide(&request, now));
}

/// Nanoseconds of each of the hits.
fn timed(limiter: &Limiter, keys: impl Iterator<Item = u64>, now: Timestamp) -> Histogram<u64> {
    let mut histogram = Histogram::new(3).unwrap();
    for key in keys {
        let began = Instant::now();
        hit(limiter, key, now);
        histogram.record(began.elapsed().as_nanos() as u64).unwrap();
    }
    histogram
}

fn quantiles(histogram: &Histogram<u64>) -> String {
    let at = |quantile| histogram.value_at_quantile(quantile);
    let (p50, p99, p999) = (at(0.5), at(0.99), at(0.999));
    format!("p50 {p50} ns, p99 {p99} ns, p99.9 {p999} ns, max {} µs", histogram.max() / 1000)
}

/// Keys in a random order, some of them more than once.
fn random(below: u64, seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 20) % below
    })
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

fn measure(keys: u64) {
    println!("\n| {keys} keys | |\n|---|---|");
    let directory = tempfile::tempdir().unwrap();
    let Started { limiter, mut writer, .. } = start(directory.path());
    let limiter = Arc::new(limiter);
    let before = rss_bytes();
    let growing = timed(&limiter, 0..keys, now());
    row("decisions while growing from 0", quantiles(&growing));
    row(
        "memory of a counter (RSS growth)",
        format!("{:.1} bytes", (rss_bytes() - before) as f64 / keys as f64),
    );

    let alone = timed(&limiter, random(keys, 1).take(2_000_000), now());
    row("decisions on random keys", quantiles(&alone));
    row("locks to copy pages", quantiles(&locks_to_copy(&limiter)));

    let (clock, rules) = (ManualClock::new(now()), limiter.rules());
    let mut pass = || {
        let began = Instant::now();
        let pass = writer.pass(limiter.store(), rules.limits(), &clock).unwrap();
        (began.elapsed(), pass, writer.disk_bytes().unwrap())
    };
    let (took, full, disk) = pass();
    row(
        "first snapshot",
        format!("{took:.2?}, {} of records, {} on disk", megabytes(full.bytes), megabytes(disk)),
    );
    (0..keys / 1000).for_each(|key| hit(&limiter, key, now()));
    let (took, part, _) = pass();
    row("snapshot after 0.1 % of the counters changed", format!("{took:.2?}, {}", megabytes(part.bytes)));
    let (mut most, mut total) = (0, Duration::ZERO);
    for round in 0..SNAPSHOTS {
        random(keys, round + 2).take(keys as usize / 100).for_each(|key| hit(&limiter, key, now()));
        let (took, _, disk) = pass();
        (most, total) = (most.max(disk), total + took);
    }
    let (_, _, disk) = pass();
    let mean = total / SNAPSHOTS as u32;
    let sizes = format!("{} then, {} at most between two", megabytes(disk), megabytes(most));
    row("on disk after 50 more, 1 % changed before each", format!("{sizes}; {mean:.2?} each"));

    let done = Arc::new(AtomicBool::new(false));
    let (other, stop) = (Arc::clone(&limiter), Arc::clone(&done));
    let snapshots = std::thread::spawn(move || {
        let mut passes = 0;
        while !stop.load(Ordering::Relaxed) {
            writer.pass(other.store(), other.rules().limits(), &ManualClock::new(now())).unwrap();
            passes += 1;
        }
        passes
    });
    let meanwhile = timed(&limiter, random(keys, 99).take(4_000_000), now());
    done.store(true, Ordering::Relaxed);
    let passes = snapshots.join().unwrap();
    row(&format!("decisions with {passes} snapshots running meanwhile"), quantiles(&meanwhile));
    row("most memory so far (peak RSS)", megabytes(status_kb("VmHWM:") * 1024));

    measure_expiry(&limiter, keys);
    drop(limiter);
    let began = Instant::now();
    let started = start(directory.path());
    assert_eq!(started.restored.counters, keys);
    row("restore", format!("{:.2?}", began.elapsed()));
}

/// Time for which a shard is locked to copy some pages, over the whole store.
fn locks_to_copy(limiter: &Limiter) -> Histogram<u64> {
    let (mut locks, mut copies) = (Histogram::new(3).unwrap(), PageCopies::new());
    for shard in 0..limiter.store().shard_count() {
        let mut next = Some(0);
        while let Some(from) = next {
            let began = Instant::now();
            next = limiter.store().lock(shard).copy_pages(from, Wanted::All, &mut copies);
            locks.record(began.elapsed().as_nanos() as u64).unwrap();
        }
    }
    locks
}

/// All counters expire, are swept in the sweeper's steps, and are followed by as many new ones.
fn measure_expiry(limiter: &Limiter, keys: u64) {
    let later = now().saturating_add_nanos(3 * HOUR_NANOS);
    let (mut locks, began, full) = (Histogram::new(3).unwrap(), Instant::now(), rss_bytes());
    for shard in 0..limiter.store().shard_count() {
        loop {
            let step = Instant::now();
            let swept = limiter.store().sweep(shard, 16, later);
            locks.record(step.elapsed().as_nanos() as u64).unwrap();
            if swept.finished {
                break;
            }
        }
    }
    assert_eq!(limiter.store().counters(), 0);
    let took = began.elapsed();
    row("sweeping all, expired", format!("{took:.2?}; locks: {}", quantiles(&locks)));
    let swept = rss_bytes();
    (keys..2 * keys).for_each(|key| hit(limiter, key, later));
    let sizes = [full, swept, rss_bytes()].map(megabytes).join(" → ");
    row("RSS before the sweep, after it, after as many new keys", sizes);
}
