//! The load generator's HTTP/2 client: whatever a server sends, it does not panic, and how the bytes happen to be cut
//! changes nothing.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::http2_client;

fuzz_target!(|sent: &[u8]| {
    let byte_by_byte = http2_client(sent, 1);
    for piece in [2, 9, 13] {
        assert_eq!(http2_client(sent, piece), byte_by_byte, "in pieces of {piece}");
    }
});
