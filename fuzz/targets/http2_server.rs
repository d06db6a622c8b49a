//! The server's HTTP/2 connection: whatever a client sends, it does not panic, and how the bytes happen to be cut changes
//! no word of its answers.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::proof::http2_server;

fuzz_target!(|sent: &[u8]| {
    let byte_by_byte = http2_server(sent, 1);
    for piece in [7, 13, usize::MAX] {
        assert_eq!(http2_server(sent, piece), byte_by_byte, "in pieces of {piece}");
    }
});
