//! The server's side of HTTP/2: whatever a client sends, it does not panic, says whole frames, and how the bytes happen to
//! be cut changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::http2_server;

fuzz_target!(|sent: &[u8]| {
    let at_once = http2_server(sent, sent.len().max(1));
    let mut rest = at_once.0.as_slice();
    while let Some((&[high, middle, low, ..], after)) = rest.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        rest = after.get(length..).expect("a frame is as long as it says");
    }
    assert!(rest.is_empty(), "the last frame is cut short");
    for piece in [1, 9, 13] {
        assert_eq!(http2_server(sent, piece), at_once, "in pieces of {piece}");
    }
});
