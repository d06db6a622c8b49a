//! Compiles the same protos as Tidegate.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    const PROTO: &str = "../../proto";
    println!("cargo:rerun-if-changed={PROTO}");
    let descriptors = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [PROTO])?;
    tonic_prost_build::configure()
        .build_client(false)
        .include_file("includes.rs")
        .compile_fds(descriptors)?;
    Ok(())
}
