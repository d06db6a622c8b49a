//! Exported snapshots: every file is read whole, or refused with the number of the malformed line.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::import_lines;
use tidegate_snapshot::ImportError;

fuzz_target!(|file: &[u8]| {
    match import_lines(file) {
        Ok(store) => assert_eq!(store.counters(), counters(file)),
        Err(ImportError::Line { line, .. }) => {
            assert!(line as usize <= file.split(|&byte| byte == b'\n').count());
        }
        Err(_) => {}
    }
});

/// Lines with a counter.
fn counters(file: &[u8]) -> usize {
    let is_counter = |line: &&[u8]| {
        let line: Option<serde_json::Value> = serde_json::from_slice(line).ok();
        line.is_some_and(|line| line.get("counter").is_some())
    };
    file.split(|&byte| byte == b'\n').filter(is_counter).count()
}
