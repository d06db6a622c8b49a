//! Doors that only the fuzzers and the simulator go through: what decodes the bytes of others, and is otherwise nobody's
//! to call. Not part of the interface.

pub use crate::{
    cli::proof::{descriptor_text, http2_client},
    grpc::proof::{request_by_prost, request_leanly},
    http2::proof::http2_server,
    snapshot::fuzz_bridge::{
        SimulatedDisk, import_lines, reencode_manifest, reencode_pages, restore_records, start_simulated,
    },
};
