//! Snapshots with valid checksums: whatever the records contain, restoring is an error, or gives counters that can be used,
//! written and restored again.
//!
//! The bytes are records, each with its kind, the length of its body in two bytes, and its body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::{reencode_manifest, reencode_pages, restore_records};
use tidegate_core::{
    clock::ManualClock,
    limit::{Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

const RULES: &str = "domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 100}}]";

const NOW: Timestamp = Timestamp::from_nanos(1_700_000_000_000_000_000);

fn limiter(seed: Seed) -> Limiter {
    let source = Source::file("fuzz.yaml", RULES);
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("good rules");
    Limiter::new(rules, StoreSettings { seed, counters_max: 1_000, on_full: OnFull::Deny }, false)
}

fn records(mut bytes: &[u8]) -> Vec<(u8, &[u8])> {
    let mut records = Vec::new();
    while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk() {
        let (body, rest) = rest.split_at(rest.len().min(usize::from(u16::from_le_bytes([low, high]))));
        records.push((kind, body));
        bytes = rest;
    }
    records
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(again) = reencode_pages(bytes) {
        assert_eq!(reencode_pages(&again).as_ref(), Some(&again));
    }
    if let Some(again) = reencode_manifest(bytes) {
        assert_eq!(reencode_manifest(&again).as_ref(), Some(&again));
    }
    let Ok((limiter, mut writer, restored)) = restore_records(records(bytes).into_iter(), limiter, NOW)
    else {
        return;
    };
    assert_eq!(limiter.store().counters() as u64, restored.counters);
    let mut request = Request::new("d");
    let entries = [Entry { key: "user", value: "a" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    limiter.pin().decide(&request, NOW);
    let rules = limiter.rules();
    writer.pass(limiter.store(), rules.limits(), &ManualClock::new(NOW)).expect("memory takes it");
});
