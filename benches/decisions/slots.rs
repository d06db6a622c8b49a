//! The CPU time of taking a slot of a request in flight and releasing it: `cargo bench --package decisions --bench slots`.
//!
//! Threads that share two cores, or a busy machine, are measured by the time for which they ran.

use criterion::{Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use std::{array, hint::black_box, thread, time::Duration};
use tidegate_core::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

const RULES: &str = "
domain: edge
descriptors:
  - {key: user, rate_limit: {algorithm: concurrency, requests_in_flight: 1000, max_hold: 1h}}
";

/// Requests in flight of each thread.
const IN_FLIGHT: usize = 16;

fn limiter() -> Limiter {
    let rules = RuleSet::parse(&[Source::file("bench.yaml", RULES)], &LoadOptions::default());
    let store =
        StoreSettings { seed: Seed::from_bytes([1; 16]), counters_max: 100_000, on_full: OnFull::Deny };
    Limiter::new(rules.expect("good rules"), store, false)
}

fn request<'n>(key: &'n str, value: &'n str) -> Request<'n> {
    let mut request = Request::new("edge");
    let entries = [Entry { key, value }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    request
}

/// Takes a slot and returns its ticket.
fn take(limiter: &Limiter, user: &str) -> Box<str> {
    limiter.pin().decide(&request("user", user), NOW).slot.expect("there is room").ticket
}

fn release(limiter: &Limiter, ticket: &str) {
    black_box(limiter.pin().decide(&request("slot", ticket), NOW));
}

/// Ends and starts requests one after the other, with [`IN_FLIGHT`] of them always in flight: each by one of these users.
fn in_flight(limiter: &Limiter, users: &[String], pairs: u64) {
    let mut tickets: [_; IN_FLIGHT] = array::from_fn(|index| take(limiter, &users[index % users.len()]));
    for pair in 0..pairs as usize {
        let index = pair % IN_FLIGHT;
        release(limiter, &tickets[index]);
        tickets[index] = take(limiter, &users[index % users.len()]);
    }
    tickets.iter().for_each(|ticket| release(limiter, ticket));
}

/// The time for which this thread has run.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.try_into().expect("no time is negative")
}

/// Of one pair, over so many threads.
fn threads(c: &mut Criterion, name: &str, threads: u32, users_of: impl Fn(u32) -> Vec<String>) {
    let limiter = limiter();
    c.bench_function(&format!("slots/{name}"), |b| {
        b.iter_custom(|pairs| {
            thread::scope(|scope| {
                let running: Vec<_> = (0..threads)
                    .map(|thread| {
                        let (limiter, users) = (&limiter, users_of(thread));
                        scope.spawn(move || {
                            let began = cpu_time();
                            in_flight(limiter, &users, pairs);
                            cpu_time() - began
                        })
                    })
                    .collect();
                let times = running.into_iter().map(|thread| thread.join().expect("no thread panics"));
                times.sum::<Duration>() / threads
            })
        });
    });
}

fn slots(c: &mut Criterion) {
    let own = |thread: u32| (0..IN_FLIGHT).map(|user| format!("user-{thread}-{user}")).collect();
    threads(c, "one thread, a key for each of 16 requests", 1, own);
    threads(c, "one thread, 16 requests of one key", 1, |thread| vec![format!("user-{thread}")]);
    threads(c, "four threads, a key for each of 16 requests", 4, own);
    threads(c, "four threads, 64 requests of one key", 4, |_| vec!["user".to_owned()]);
}

criterion_group!(all, slots);
criterion_main!(all);
