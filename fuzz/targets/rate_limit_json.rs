//! Bodies of `POST /json`: the message that is read is written as a text that is read as the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::rate_limit_json;

fuzz_target!(|body: &[u8]| {
    let Some((message, text)) = rate_limit_json(body) else { return };
    assert_eq!(rate_limit_json(&text), Some((message, text)));
});
