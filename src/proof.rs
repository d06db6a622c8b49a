//! Doors that only the fuzzers and the simulator go through: what decodes the bytes of others, and is otherwise nobody's
//! to call. Not part of the interface.

pub use crate::{
    cli::proof::{descriptor_text, http2_client},
    grpc::proof::{request_by_prost, request_leanly},
    http2::proof::http2_server,
    snapshot::proof::{MemoryDisk, import_lines, manifest_again, pages_again, restored, start_in_memory},
};
