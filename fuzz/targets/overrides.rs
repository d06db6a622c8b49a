//! Kept overrides and blocks: a file that was read and written again is read as the same, and its content can be put in force or is
//! refused with an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::rules::{DEMO, LoadOptions, RuleSet, Source};
use tidegate_operations::control::Overlays;

fuzz_target!(|file: &[u8]| {
    let Ok(read) = serde_json::from_slice::<Overlays>(file) else { return };
    let written = serde_json::to_vec_pretty(&read).expect("texts and numbers are JSON");
    assert_eq!(serde_json::from_slice::<Overlays>(&written).expect("it was just written"), read);
    let overrides = read.overrides.into_values().map(|stored| Source::of_override(stored.declared));
    let blocks = read.blocks.into_values().map(|stored| stored.declared).collect();
    let sources = [Source::file("demo.yaml", DEMO), Source::of_blocks("blocks", blocks)].into_iter();
    let sources: Vec<Source> = sources.chain(overrides).collect();
    for shared_counters in [false, true] {
        let options = LoadOptions { shared_counters, ..LoadOptions::default() };
        if let Err(errors) = RuleSet::parse(&sources, &options) {
            assert!(!errors.to_string().is_empty());
        }
    }
});
