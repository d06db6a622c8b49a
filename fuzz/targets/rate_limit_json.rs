//! Bodies of `POST /json`: a message that was read and written again is read as the same message.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::rate_limit_json;

fuzz_target!(|body: &[u8]| {
    let Some((message, text)) = rate_limit_json(body) else { return };
    assert_eq!(rate_limit_json(&text), Some((message, text)));
});
