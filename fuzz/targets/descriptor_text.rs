//! Descriptors as the command line takes them: what was read, written with its backslashes, is read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::descriptor_text;

fuzz_target!(|text: &str| {
    let Some(entries) = descriptor_text(text) else { return };
    assert!(!entries.is_empty());
    let protected = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let written: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}={}", protected(key), protected(value))).collect();
    assert_eq!(descriptor_text(&written.join(",")), Some(entries));
});
