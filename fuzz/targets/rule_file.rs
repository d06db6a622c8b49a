//! Rule files: every text is good or told what is wrong with it, and a good one loaded again changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::rules::{LoadOptions, RuleSet, Semantics, Source};

fuzz_target!(|text: &str| {
    for semantics in [Semantics::Exact, Semantics::Reference] {
        let options = LoadOptions { semantics, merge_domains: false };
        let source = [Source { name: "fuzz.yaml".into(), text: text.into() }];
        match RuleSet::parse(&source, &options, None) {
            Ok(rules) => {
                let known = rules.limits().to_vec();
                let again = RuleSet::parse(&source, &options, Some(&rules)).expect("it was good");
                assert_eq!(again.limits().to_vec(), known);
            }
            Err(errors) => assert!(!errors.to_string().is_empty()),
        }
    }
});
