//! The lean reader of messages: what it understands is what prost understands, to the last field.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate::proof::{request_by_prost, request_leanly};

fuzz_target!(|message: &[u8]| {
    if let Some(request) = request_leanly(message) {
        assert_eq!(Some(request), request_by_prost(message));
    }
});
