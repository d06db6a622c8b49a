//! Descriptors on the command line: parsed entries, escaped and written again, parse to the same entries.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::descriptor_text;

fuzz_target!(|text: &str| {
    let Some(entries) = descriptor_text(text) else { return };
    assert!(!entries.is_empty());
    let escaped = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let written: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
    assert_eq!(descriptor_text(&written.join(",")), Some(entries));
});
