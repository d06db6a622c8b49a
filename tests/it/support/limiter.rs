//! A limiter without a server. Other test programs include this file too, so it imports nothing from the files beside it.

use tidegate_core::{
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// A limiter with these rules, no counters yet, and room for as many as most tests need.
pub fn limiter(yaml: &str) -> Limiter {
    limiter_with_room(yaml, 1_000, OnFull::Deny)
}

/// A limiter with these rules, and no counters yet.
pub fn limiter_with_room(yaml: &str, counters_max: usize, on_full: OnFull) -> Limiter {
    let source = Source::file("test.yaml", yaml);
    let rules =
        RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"));
    Limiter::new(rules, StoreSettings { seed: Seed::from_bytes([4; 16]), counters_max, on_full }, false)
}
