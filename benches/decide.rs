//! Nanoseconds of a decision, without the wire: `cargo bench --bench decide`.
//!
//! One descriptor of two entries against one rule; hot counters (1,000) and many (1,000,000); four descriptors; ten and
//! ten thousand sibling rules; and the parts: matching, the key.

use criterion::{Criterion, criterion_group, criterion_main};
use std::{
    fmt::Write,
    hint::black_box,
    time::{Duration, Instant},
};
use tidegate::{
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Fingerprint, OnFull, Seed, StoreSettings},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn rules(siblings: usize) -> RuleSet {
    let mut text =
        String::from("domain: edge\ndescriptors:\n  - key: plan\n    value: free\n    descriptors:\n");
    for number in 0..siblings {
        let _ = writeln!(
            text,
            "      - {{ key: user, value: u{number}, rate_limit: {{ unit: day, requests_per_unit: 9 }} }}"
        );
    }
    text.push_str("      - { key: user, rate_limit: { unit: minute, requests_per_unit: 1000000 } }\n");
    let source = Source { name: "bench.yaml".into(), text };
    RuleSet::parse(&[source], &LoadOptions::default(), None).expect("good rules")
}

fn limiter(siblings: usize) -> Limiter {
    let seed = Seed::from_bytes([1; 16]);
    let store = StoreSettings { seed, counters_max: 20_000_000, on_full: OnFull::Deny };
    Limiter::new(rules(siblings), store, false)
}

fn request(users: &[String]) -> Request<'_> {
    let mut request = Request::new("edge");
    for user in users {
        let entries = [Entry { key: "plan", value: "free" }, Entry { key: "user", value: user }];
        request.push(Descriptor { entries: entries.into_iter().collect(), limit: None, hits: Hits::ONE });
    }
    request
}

fn names(count: u32) -> Vec<String> {
    (0..count)
        .map(|number| format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255))
        .collect()
}

/// Requests that are laid out before the clock starts: what is measured is the decision.
const BATCH: usize = 256;

/// Decides for one name after another, in an order that no cache foresees.
fn decisions(c: &mut Criterion, label: &str, limiter: &Limiter, count: u32, descriptors: usize) {
    let names = names(count);
    let (mut now, mut random) = (0u64, 1u64);
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        names[(random % u64::from(count)) as usize].as_str()
    };
    c.bench_function(label, |b| {
        b.iter_custom(|iterations| {
            let pinned = limiter.pin();
            let mut elapsed = Duration::ZERO;
            for start in (0..iterations).step_by(BATCH) {
                let size = BATCH.min((iterations - start) as usize);
                // The names are copied, so that only the counters are cold.
                let users: Vec<String> = (0..size * descriptors).map(|_| next().to_owned()).collect();
                let requests: Vec<_> = users.chunks(descriptors).map(request).collect();
                #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
                let started = Instant::now();
                for request in &requests {
                    now += 1_000;
                    black_box(pinned.decide(request, START.saturating_add_nanos(now)));
                }
                elapsed += started.elapsed();
            }
            elapsed
        });
    });
}

fn benches(c: &mut Criterion) {
    decisions(c, "decide, 1 descriptor, 1,000 counters", &limiter(10), 1_000, 1);
    decisions(c, "decide, 1 descriptor, 1,000,000 counters", &limiter(10), 1_000_000, 1);
    decisions(c, "decide, 4 descriptors, 1,000 counters", &limiter(10), 1_000, 4);
    decisions(c, "decide, 10,000 sibling rules, 1,000 counters", &limiter(10_000), 1_000, 1);

    let rules = rules(10);
    let domain = rules.domain("edge").expect("is there");
    let entries = [Entry { key: "plan", value: "free" }, Entry { key: "user", value: "10.1.2.3" }];
    c.bench_function("match, two entries", |b| b.iter(|| black_box(domain.find(black_box(&entries)))));
    let seed = Seed::from_bytes([1; 16]);
    c.bench_function("key, two entries", |b| {
        b.iter(|| {
            let mut fingerprint = Fingerprint::new(&seed);
            for text in black_box(["edge", "plan", "free", "user", "10.1.2.3"]) {
                fingerprint.text(text);
            }
            black_box(fingerprint.finish())
        });
    });
}

criterion_group!(all, benches);
criterion_main!(all);
