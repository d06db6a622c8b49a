//! Generates the messages and services of the same protos as Tidegate.

use prost::Message as _;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    const DESCRIPTORS: &str = "../../proto/descriptors.binpb";
    println!("cargo:rerun-if-changed={DESCRIPTORS}");
    let descriptors = prost_types::FileDescriptorSet::decode(&*std::fs::read(DESCRIPTORS)?)?;
    tonic_prost_build::configure()
        .build_client(false)
        .include_file("includes.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
