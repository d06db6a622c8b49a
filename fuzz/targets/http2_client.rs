//! The HTTP/2 client half: no bytes from a server make it panic, and the result does not depend on how the bytes are cut.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_bench::fuzz_bridge::http2_client;

fuzz_target!(|sent: &[u8]| {
    let byte_by_byte = http2_client(sent, 1);
    for piece in [2, 9, 13] {
        assert_eq!(http2_client(sent, piece), byte_by_byte, "in pieces of {piece}");
    }
});
