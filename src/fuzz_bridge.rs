//! Entry points for the fuzzers (`cargo xtask fuzz`): the decoders of untrusted bytes. Not part of the interface.

pub use crate::{
    api::fuzz_bridge::{CONTROL_METHODS, control_json, rate_limit_json, xds_source},
    api::rls::fuzz_bridge::{request_by_fast_path, request_by_prost},
};
pub use tidegate_http2::fuzz_bridge::http2_server;
pub use tidegate_snapshot::fuzz_bridge::{import_lines, reencode_manifest, reencode_pages, restore_records};
