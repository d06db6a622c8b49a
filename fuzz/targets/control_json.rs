//! Bodies of the control API: a request that was read and written again is read as the same request.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::{CONTROL_METHODS, control_json};

fuzz_target!(|input: (u8, &[u8])| {
    let (number, body) = input;
    let method = CONTROL_METHODS[usize::from(number) % CONTROL_METHODS.len()];
    let Some(text) = control_json(method, body) else { return };
    assert_eq!(control_json(method, &text).as_ref(), Some(&text), "{method}");
});
