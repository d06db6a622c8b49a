//! The cost of a decision without the wire: nanoseconds with few and with many keys, alone and together with others, and
//! what a second thread adds. The steps of a decision are measured by `benches/decide.rs`.
//!
//! Prints `name=number` lines. Each number is the best of several repeats, because whatever else the machine does can only
//! make it worse. The cost of making the request is measured and subtracted.

use smallvec::smallvec;
use std::{array, hint::black_box, ops::Range, sync::Barrier, thread};
use tidegate_core::{
    clock::{Clock as _, SystemClock},
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const REPEATS: u32 = 7;
const DECISIONS: u64 = 1_000_000;
const FEW_KEYS: u64 = 1_000;
const MANY_KEYS: u64 = 1_000_000;
/// Requests of one batch, as on a connection with as many streams.
const TOGETHER: usize = 16;
/// Each thread's own, small enough to stay in its core's cache.
const KEYS_PER_THREAD: u64 = 1_000;

const START: u64 = 1_700_000_000_000_000_000;

const RULES: &str = "
domain: edge
descriptors:
  - key: plan
    value: free
    descriptors:
      - key: remote_address
        rate_limit: { unit: day, requests_per_unit: 4000000000 }
";

fn main() {
    println!("decide_1000_keys_ns={:.1}", decide_nanos(FEW_KEYS));
    println!("decide_1m_keys_ns={:.1}", decide_nanos(MANY_KEYS));
    println!("decide_all_1m_keys_ns={:.1}", decide_all_nanos(MANY_KEYS));
    println!("two_threads_ratio={:.2}", two_threads_ratio());
}

fn limiter() -> Limiter {
    let source = Source::file("edge.yaml", RULES);
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("the rules are good");
    let store = StoreSettings {
        seed: Seed::from_bytes([7; 16]),
        counters_max: 2 * MANY_KEYS as usize,
        on_full: OnFull::Deny,
    };
    Limiter::new(rules, store, false)
}

/// Time of one decision, with this many live keys in random order.
fn decide_nanos(keys: u64) -> f64 {
    let limiter = limiter();
    ask(keys, |number| number % keys, |request, now| decide(&limiter, request, now));
    let work = |each: fn(&Limiter, &Request<'_>, Timestamp)| {
        let mut random = random(0..keys);
        ask(DECISIONS, |_| random(), |request, now| each(&limiter, request, now));
    };
    let nothing = |_: &Limiter, request: &Request<'_>, now| {
        black_box((request, now));
    };
    best(|| work(decide)) - best(|| work(nothing))
}

/// The same for a batch.
fn decide_all_nanos(keys: u64) -> f64 {
    let limiter = limiter();
    ask(keys, |number| number % keys, |request, now| decide(&limiter, request, now));
    let work = |each: fn(&Limiter, &[Request<'_>], Timestamp)| {
        let mut random = random(0..keys);
        ask_together(DECISIONS, |_| random(), |requests, now| each(&limiter, requests, now));
    };
    let nothing = |_: &Limiter, requests: &[Request<'_>], now| {
        black_box((requests, now));
    };
    best(|| work(decide_all)) - best(|| work(nothing))
}

/// Nanoseconds for each decision of the work, at best.
fn best(work: impl Fn()) -> f64 {
    let clock = SystemClock::new();
    let nanos = (0..REPEATS).map(|_| timed(&clock, &work));
    nanos.min().expect("there is at least one repeat") as f64 / DECISIONS as f64
}

/// Decisions of two threads on keys of their own, as a multiple of those of one thread.
fn two_threads_ratio() -> f64 {
    let limiter = limiter();
    let work = |first_key: u64| {
        let mut random = random(first_key..first_key + KEYS_PER_THREAD);
        ask(DECISIONS, |_| random(), |request, now| decide(&limiter, request, now));
    };
    let clock = SystemClock::new();
    let best = |threads: u64| {
        let nanos = (0..REPEATS).map(|_| {
            let barrier = Barrier::new(threads as usize + 1);
            thread::scope(|scope| {
                for thread in 0..threads {
                    let (barrier, work) = (&barrier, &work);
                    scope.spawn(move || {
                        barrier.wait();
                        work(thread * KEYS_PER_THREAD);
                        barrier.wait();
                    });
                }
                barrier.wait();
                timed(&clock, || {
                    barrier.wait();
                })
            })
        });
        nanos.min().expect("there is at least one repeat") as f64
    };
    2.0 * best(1) / best(2)
}

fn decide(limiter: &Limiter, request: &Request<'_>, now: Timestamp) {
    black_box(limiter.pin().decide(request, now));
}

fn decide_all(limiter: &Limiter, requests: &[Request<'_>], now: Timestamp) {
    limiter.pin().decide_all(requests.iter(), now, |_, decision| {
        black_box(decision);
    });
}

fn timed(clock: &SystemClock, work: impl FnOnce()) -> u64 {
    let start = clock.now().as_nanos();
    work();
    clock.now().as_nanos() - start
}

/// Makes requests one after the other and hands them to `each`, a microsecond apart.
fn ask(count: u64, mut key: impl FnMut(u64) -> u64, mut each: impl FnMut(&Request<'_>, Timestamp)) {
    for number in 0..count {
        let digits = decimal(key(number));
        let mut request = Request::new("edge");
        request.push(descriptor(&digits));
        each(&request, Timestamp::from_nanos(START + number * 1_000));
    }
}

/// The same, some requests at a time.
fn ask_together(
    count: u64,
    mut key: impl FnMut(u64) -> u64,
    mut each: impl FnMut(&[Request<'_>], Timestamp),
) {
    for first in (0..count).step_by(TOGETHER) {
        let digits: [_; TOGETHER] = array::from_fn(|index| decimal(key(first + index as u64)));
        // Filled where they stay, as a server fills them: a request is large.
        let mut requests: [_; TOGETHER] = array::from_fn(|_| Request::new("edge"));
        for (request, digits) in requests.iter_mut().zip(&digits) {
            request.push(descriptor(digits));
        }
        each(&requests, Timestamp::from_nanos(START + first * 1_000));
    }
}

#[inline]
fn descriptor(digits: &[u8]) -> Descriptor<'_> {
    let value = str::from_utf8(digits).expect("digits are UTF-8");
    let entries = smallvec![Entry { key: "plan", value: "free" }, Entry { key: "remote_address", value }];
    Descriptor { entries, limit: None, hits: Hits::ONE }
}

/// Eight digits: cheaper to make than the decision that is measured.
fn decimal(mut number: u64) -> [u8; 8] {
    let mut digits = [b'0'; 8];
    for digit in digits.iter_mut().rev() {
        *digit += (number % 10) as u8;
        number /= 10;
    }
    digits
}

/// Keys of the range in an order that no processor foresees.
fn random(keys: Range<u64>) -> impl FnMut() -> u64 {
    let mut state = keys.start;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        keys.start + (state >> 33) % (keys.end - keys.start)
    }
}
