//! The HTTP/2 server half: no bytes from a client make it panic, it writes whole frames only, and the result does not depend
//! on how the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::http2_server;

fuzz_target!(|sent: &[u8]| {
    let whole = http2_server(sent, sent.len().max(1));
    let mut rest = whole.0.as_slice();
    while let Some((&[high, middle, low, ..], after)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        rest = after.get(length..).expect("a whole frame");
    }
    assert!(rest.is_empty(), "the last frame is cut short");
    for piece in [1, 9, 13] {
        assert_eq!(http2_server(sent, piece), whole, "in pieces of {piece}");
    }
});
