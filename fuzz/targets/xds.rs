//! Resources of a control plane: each is refused, or makes a document that loads or has located errors.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::xds_source;
use tidegate_core::rules::{LoadOptions, RuleSet};

fuzz_target!(|value: &[u8]| {
    let Some(source) = xds_source(value) else { return };
    match RuleSet::parse(&[source], &LoadOptions::default()) {
        Ok(rules) => assert_eq!(rules.domains().count(), 1),
        Err(errors) => assert!(!errors.to_string().is_empty()),
    }
});
