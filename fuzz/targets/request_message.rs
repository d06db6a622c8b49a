//! The fast path decodes a message as prost does, or falls back to it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::fuzz_bridge::{request_by_fast_path, request_by_prost};

fuzz_target!(|message: &[u8]| {
    if let Some(request) = request_by_fast_path(message) {
        assert_eq!(Some(request), request_by_prost(message));
    }
});
