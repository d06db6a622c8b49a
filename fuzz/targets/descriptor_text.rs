//! Descriptors on the command line: parsed entries, escaped and written again, parse to the same entries.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_core::limit::DescriptorText;

fuzz_target!(|text: &str| {
    let Ok(DescriptorText(entries)) = text.parse() else { return };
    assert!(!entries.is_empty());
    let escaped = |text: &str| text.replace('\\', r"\\").replace(',', r"\,");
    let written: Vec<String> =
        entries.iter().map(|(key, value)| format!("{}={}", escaped(key), escaped(value))).collect();
    assert_eq!(written.join(",").parse().ok(), Some(DescriptorText(entries)));
});
