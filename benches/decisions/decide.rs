//! The time of a decision by kind of request: `cargo bench --package decisions --bench decide`.
//!
//! The steps of one decision, one by one and on hot data; the whole of them; and what makes a decision dearer: more
//! descriptors, more rules, more limits. The cost of a decision with many keys, and on two threads, is measured by
//! `benches/in_process`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::{fmt::Write, hint::black_box};
use tidegate_core::{
    algorithm::{Algorithm, SlidingWindow, Standing, Taken},
    limit::{Descriptor, Entry, Hits, Request, Timestamp, Window, client_text},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Counter, Fingerprint, Key, OnFull, Seed, Store, StoreSettings},
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const SEED: Seed = Seed::from_bytes([1; 16]);
/// That of `--max-text-bytes`.
const TEXT_BYTES_MAX: usize = 8_192;
const USER: &str = "10.1.2.3";

/// The last of them names no value.
fn rules(siblings: usize) -> RuleSet {
    let mut text =
        String::from("domain: edge\ndescriptors:\n  - key: plan\n    value: free\n    descriptors:\n");
    for number in 0..siblings {
        let _ = writeln!(
            text,
            "      - {{ key: user, value: u{number}, rate_limit: {{ unit: day, requests_per_unit: 9 }} }}"
        );
    }
    text.push_str(
        "      - { key: user, rate_limit: { unit: minute, requests_per_unit: 4000000000 } }
      - { key: none, rate_limit: { unit: minute, requests_per_unit: 0 } }
      - key: two
        rate_limits:
          - { unit: minute, requests_per_unit: 4000000000 }
          - { unit: hour, requests_per_unit: 4000000000 }
",
    );
    let source = Source::file("bench.yaml", text);
    RuleSet::parse(&[source], &LoadOptions::default()).expect("good rules")
}

fn store() -> StoreSettings {
    StoreSettings { seed: SEED, counters_max: 1_000_000, on_full: OnFull::Deny }
}

/// The steps, as the decision of one descriptor of two entries under one limit takes them.
fn steps(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");

    let rules = rules(10);
    let domain = rules.domain("edge").expect("is there");
    let entries = [Entry { key: "plan", value: "free" }, Entry { key: "user", value: USER }];
    group.bench_function("rules", |b| b.iter(|| black_box(domain.find(black_box(&entries)))));

    let mut of_rule = Fingerprint::new(&SEED);
    ["edge", "plan", "free", "user"].into_iter().for_each(|text| of_rule.text(text));
    group.bench_function("key, from its rule's part on", |b| {
        b.iter(|| {
            let mut fingerprint = black_box(of_rule);
            fingerprint.text(black_box(USER));
            black_box(fingerprint.finish())
        });
    });

    let store = Store::new(store());
    group.bench_function("lock", |b| b.iter(|| drop(black_box(store.lock(black_box(7))))));

    let mut shard = store.lock(7);
    // Half a page, as pages are on average.
    let key = |number: u64| Key::from_halves(number.wrapping_mul(0x9e37_79b9), number);
    for number in 0..32 {
        shard.insert(key(number), Counter::default(), START);
    }
    group.bench_function("find the counter", |b| b.iter(|| black_box(shard.find(black_box(key(17))))));

    let window = Window::from_secs(60).expect("a minute");
    let algorithm = Algorithm::SlidingWindow(SlidingWindow { limit: u32::MAX, window });
    let (mut now, mut words) = (START, [0, 0]);
    group.bench_function("count", |b| {
        b.iter(|| {
            now = now.saturating_add_nanos(1_000);
            let taken = black_box(&algorithm).take(words, 1, now);
            if let Some(Taken::Admitted(Standing { state: after, .. })) = &taken {
                words = *after;
            }
            black_box(taken)
        });
    });
}

/// One decision after another on the same counters.
fn whole(c: &mut Criterion, name: &str, siblings: usize, descriptors: &[(&str, &str)]) {
    let limiter = Limiter::new(rules(siblings), store(), false);
    let mut request = Request::new("edge");
    for &(key, value) in descriptors {
        let entries = [Entry { key: "plan", value: "free" }, Entry { key, value }];
        request.push(Descriptor { entries: entries.into_iter().collect(), limit: None, hits: Hits::ONE });
    }
    let mut now = START;
    c.bench_function(&format!("decide/{name}"), |b| {
        b.iter(|| {
            now = now.saturating_add_nanos(1_000);
            black_box(limiter.pin().decide(black_box(&request), now));
        });
    });
}

/// The text of what a client has sent, and a decision on it: the time of a byte, whatever the bytes are.
fn client_values(c: &mut Criterion) {
    let mut group = c.benchmark_group("value of a client");
    let limiter = Limiter::new(rules(10), store(), false);
    for (name, bytes) in [
        ("8 bytes", &b"10.1.2.3"[..]),
        ("2 KB", &[b'a'; 2_048]),
        ("2 KB, no UTF-8", &[0xff; 2_048]),
        ("60 KB", &[b'a'; 60_000]),
        ("60 KB, no UTF-8", &[0xff; 60_000]),
    ] {
        let mut now = START;
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| {
                now = now.saturating_add_nanos(1_000);
                let text = client_text(black_box(bytes), TEXT_BYTES_MAX);
                let entries = [Entry { key: "plan", value: "free" }, Entry { key: "user", value: &text }];
                let mut request = Request::new("edge");
                let entries = entries.into_iter().collect();
                request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
                black_box(limiter.pin().decide(&request, now));
            });
        });
    }
}

fn wholes(c: &mut Criterion) {
    let users = ["10.1.2.3", "10.1.2.4", "10.1.2.5", "10.1.2.6"];
    let [one, four] =
        [&users[..1], &users].map(|users| users.iter().map(|&user| ("user", user)).collect::<Vec<_>>());
    whole(c, "one descriptor", 10, &one);
    whole(c, "one descriptor, denied", 10, &[("none", USER)]);
    whole(c, "one descriptor, 10,000 sibling rules", 10_000, &one);
    whole(c, "one descriptor, two limits", 10, &[("two", USER)]);
    whole(c, "four descriptors", 10, &four);
    let [first, second, third, _] = four[..] else { unreachable!("four users") };
    whole(c, "four descriptors, two of one counter: the long way", 10, &[first, second, third, first]);
}

/// A decision under limits with conditions, for one descriptor: `limits` of which the first applies.
fn conditional(c: &mut Criterion, name: &str, limits: &str) {
    let rules = RuleSet::parse(&[Source::file("limits.yaml", limits)], &LoadOptions::default());
    let limiter = Limiter::new(rules.expect("good limits"), store(), false);
    let entries = [("route", "0"), ("method", "HEAD"), ("path", "/api/v1"), ("user", USER)];
    let entries = entries.into_iter().map(|(key, value)| Entry { key, value }).collect();
    let mut request = Request::new("edge");
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    let mut now = START;
    c.bench_function(&format!("decide/conditions: {name}"), |b| {
        b.iter(|| {
            now = now.saturating_add_nanos(1_000);
            black_box(limiter.pin().decide(black_box(&request), now));
        });
    });
}

fn conditionals(c: &mut Criterion) {
    let limit = |condition: &str| {
        format!(
            "- {{ namespace: edge, max_value: 4000000000, seconds: 60, conditions: ['{condition}'], variables: ['descriptors[0].user'] }}\n"
        )
    };
    let by_equality = |route: usize| limit(&format!(r#"descriptors[0].route == "{route}""#));
    conditional(c, "one by equality", &by_equality(0));
    conditional(c, "1,000 by equality", &(0..1_000).map(by_equality).collect::<String>());
    let evaluated = r#"descriptors[0].path.startsWith("/api") && (descriptors[0].method in ["GET", "HEAD"] || size(descriptors) > 1)"#;
    conditional(c, "one evaluated", &limit(evaluated));
}

/// A decision under a rule that is found by a network or a pattern, among others; a key alone is what they are compared with.
fn matching(c: &mut Criterion) {
    let limit = "rate_limit: { unit: minute, requests_per_unit: 4000000000 }";
    let of_rules = |c: &mut Criterion, name: &str, (key, value): (&str, &str), rules: String| {
        let text = format!("domain: edge\ndescriptors:\n{rules}");
        let rules = RuleSet::parse(&[Source::file("bench.yaml", text)], &LoadOptions::default());
        let limiter = Limiter::new(rules.expect("good rules"), store(), false);
        let mut request = Request::new("edge");
        let entries = [Entry { key, value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        let mut now = START;
        c.bench_function(&format!("decide/matching: {name}"), |b| {
            b.iter(|| {
                now = now.saturating_add_nanos(1_000);
                black_box(limiter.pin().decide(black_box(&request), now));
            });
        });
    };
    let address = ("address", "10.77.40.9");
    of_rules(c, "a key alone", address, format!("- {{ key: address, {limit} }}\n"));
    let network = |number: u32| {
        let (upper, lower) = (number / 65_536, number % 65_536);
        let [high, low] = (lower as u16).to_be_bytes();
        format!("- {{ key: address, value_network: {}.{high}.{low}.0/24, {limit} }}\n", 10 + upper)
    };
    of_rules(c, "one network", address, network(19_752));
    of_rules(c, "one of 1,000 networks", address, (19_500..20_500).map(network).collect());
    of_rules(c, "one of 100,000 networks", address, (0..100_000).map(network).collect());
    let path = ("path", "/v7/export/99/of/a/customer");
    of_rules(c, "a key alone, of a path", path, format!("- {{ key: path, {limit} }}\n"));
    let pattern =
        |number: u32| format!("- {{ key: path, value_regex: '^/v[0-9]+/export/{number}/.*$', {limit} }}\n");
    of_rules(c, "one pattern", path, pattern(99));
    of_rules(c, "one of 100 patterns", path, (0..100).map(pattern).collect());
}

criterion_group!(all, steps, wholes, client_values, conditionals, matching);
criterion_main!(all);
