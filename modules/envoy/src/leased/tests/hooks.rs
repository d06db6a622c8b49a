//! Random sequences of hooks where a server decides: calls are late, lost or damaged, and the server restarts.

use super::{
    super::{
        Leased,
        exchanges::Exchanges,
        shared::{Shared, now},
    },
    SECOND, TIME,
    world::{BEGAN, Faults, MILLI, Network, Server},
};
use crate::{
    filter::{Config, Decider},
    metrics::{Event, Metrics, Place},
    rng::Rng,
    settings,
    tests::{
        assert_hooks_wait_for_nothing,
        sequences::{Sequences, VALUES, count, entries},
    },
};
use allocation_counter::measure;
use serde_json::{Value as Json, json};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};
use tidegate_core::{limit::Timestamp, store::Seed};
use tidegate_envoy_abi::ConfigHost;
use tidegate_shared::lease::Monotonic;
use tokio::time::timeout;

/// Streams of one filter.
const STREAMS: u64 = 4_000;
/// Limits per hour. Counters of smaller limits are not leased.
const LIMITS: [(&str, u64); 2] = [("x-first", 500), ("x-second", 700)];

pub(super) const HEADERS: [&[&str]; 2] = [&["x-first", "x-second"], &["x-second", "x-first"]];

fn rules() -> String {
    let rules = LIMITS.map(|(key, limit)| {
        format!("{{ key: {key}, rate_limit: {{ unit: hour, requests_per_unit: {limit}, algorithm: fixed_window }} }}")
    });
    format!("{{ domain: d, descriptors: [ {} ] }}", rules.join(", "))
}

/// A filter with a server, and the thread's part to be played by the test.
pub(super) fn filter(headers: &[&str], seed: u64) -> (Config, Arc<Leased>) {
    filter_of(&entries(headers), seed)
}

/// The filter with these `rate_limits`.
pub(super) fn filter_of(rate_limits: &Json, seed: u64) -> (Config, Arc<Leased>) {
    let text = json!({
        "domain": "d", "failure_mode_deny": true, "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limits": rate_limits, "tidegate": {"server": {"address": "unix:/nobody"}},
    });
    let settings = settings::filter(text.to_string().as_bytes()).unwrap();
    let server = settings.local.server.clone().unwrap();
    let shared = Shared::new(server, seed + 1, Seed::from_bytes([seed as u8; 16]));
    let leased = Arc::new(Leased { shared: Arc::new(shared), thread: None });
    let metrics = Arc::new(Metrics::new(&ConfigHost::of_test(), ""));
    (Config { settings, decider: Decider::Server(Arc::clone(&leased)), metrics }, leased)
}

/// Calls hooks of some streams; returns the most requests that went on with one value of the first header.
fn run(seed: u64, damaged: u64) -> u64 {
    let mut rng = Rng::of_seed(seed);
    let headers = HEADERS[(seed % 2) as usize];
    let (config, leased) = filter(headers, seed);
    let mut server = Server::new(&rules());
    let (mut exchanges, mut network) = (Exchanges::new(seed + 1), Network::default());
    let mut sequences = Sequences::new(&config, headers);
    let mut time = SECOND;
    while sequences.begun < STREAMS {
        TIME.set(Some(time));
        sequences.step(&mut rng);
        if rng.once_in(4) {
            time += rng.below(MILLI);
        }
        if !rng.once_in(8) {
            let (now, at) = (Monotonic::from_nanos(time), BEGAN + time);
            let questions = std::mem::take(&mut *leased.shared.questions.lock());
            exchanges.push(questions);
            let faults = Faults { lost: 1, damaged };
            network.send(&mut exchanges, &leased.shared.known, (now, at), &mut rng);
            network.receive(&mut exchanges, &leased.shared.known, &server, (now, at), &mut rng, faults);
            exchanges.expire(now);
        }
        if rng.once_in(4_000) {
            server.restart(Timestamp::from_nanos(BEGAN + time));
        }
        if rng.once_in(4_000) {
            server.load(&rules());
        }
    }
    sequences.finish();
    exchanges.fail_all(Monotonic::from_nanos(time));
    TIME.set(None);
    let [here, there] =
        [Place::Envoy, Place::Server].map(|place| config.metrics.pending(Event::DecidedIn(place)));
    assert!(here > 100 && there > 100, "{here} decisions by credits and kept denials, {there} by the server");
    let most = sequences.passed.values().copied().max().unwrap_or(0);
    assert!(sequences.passed.len() as u64 > VALUES / 2, "too few requests went on to show anything");
    most
}

#[test]
fn no_sequence_of_hooks_panics_leaks_or_passes_the_limit_of_the_server() {
    run(0, 0);
    for seed in 0..count().div_ceil(STREAMS) {
        let mut most = 0;
        let allocated = measure(|| most = run(seed, 0));
        let (_, limit) = LIMITS[(seed % 2) as usize];
        assert!((limit / 5..=limit).contains(&most), "seed {seed}: {most} of a limit of {limit}");
        assert_eq!(allocated.count_current, 0, "seed {seed}: objects that were not freed");
    }
}

#[test]
fn no_damaged_response_panics_or_leaks() {
    run(0, 100);
    for seed in 0..count().div_ceil(STREAMS) {
        let allocated = measure(|| _ = run(seed, 100));
        assert_eq!(allocated.count_current, 0, "seed {seed}: objects that were not freed");
    }
}

/// With the real thread, and in real time.
#[test]
fn hooks_wait_for_nothing_while_the_thread_exchanges() {
    let (config, leased) = filter(HEADERS[0], 1);
    let shared = Arc::clone(&leased.shared);
    thread::scope(|scope| {
        scope.spawn(|| {
            let (server, mut exchanges) = (Server::new(&rules()), Exchanges::new(1));
            let (mut network, mut rng) = (Network::default(), Rng::of_seed(1));
            let runtime = super::super::link::runtime().unwrap();
            while !shared.is_stopped.load(Ordering::Relaxed) {
                let now = now();
                let (at, faults) = (BEGAN + now.as_nanos(), Faults { lost: 0, damaged: 0 });
                exchanges.push(std::mem::take(&mut *shared.questions.lock()));
                network.send(&mut exchanges, &shared.known, (now, at), &mut rng);
                network.receive(&mut exchanges, &shared.known, &server, (now, at), &mut rng, faults);
                exchanges.expire(now);
                runtime.block_on(async {
                    // The error means that the time is over.
                    let _ = timeout(Duration::from_millis(1), shared.wake.notified()).await;
                });
            }
            exchanges.fail_all(now());
        });
        // Also if a hook blocked, the thread has to end.
        let outcome = catch_unwind(AssertUnwindSafe(|| assert_hooks_wait_for_nothing(&config, HEADERS[0])));
        shared.is_stopped.store(true, Ordering::Relaxed);
        shared.wake.notify_one();
        outcome.unwrap_or_else(|panic| resume_unwind(panic));
    });
    let [here, there] =
        [Place::Envoy, Place::Server].map(|place| config.metrics.pending(Event::DecidedIn(place)));
    assert!(here > 0 && there > 0, "{here} decisions by credits and kept denials, {there} by the server");
}
