//! Rule files: every text loads or is refused with an error, and loading the same file again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::{
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Semantics, Source},
    store::{OnFull, Seed, StoreSettings},
};

fuzz_target!(|text: &str| {
    for semantics in [Semantics::Exact, Semantics::Reference] {
        let options = LoadOptions { semantics, ..LoadOptions::default() };
        let source = [Source::file("fuzz.yaml", text)];
        match RuleSet::parse(&source, &options) {
            Ok(rules) => {
                let known = rules.limits().to_vec();
                let store =
                    StoreSettings { seed: Seed::from_bytes([1; 16]), counters_max: 1, on_full: OnFull::Deny };
                let limiter = Limiter::new(rules, store, false);
                let next = limiter.update_rules().build(&source, &options).expect("it loaded before");
                assert_eq!(next.rules().limits().to_vec(), known);
            }
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
});
