//! Compiles `proto/` to Rust with protox (no protoc is needed) and keeps the descriptor set for gRPC reflection.

use std::{error::Error, path::PathBuf};

const PROTOS: &[&str] = &["envoy/service/ratelimit/v3/rls.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    tonic_prost_build::configure().include_file("includes.rs").compile_fds(descriptors)?;
    Ok(())
}
