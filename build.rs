//! Compiles `proto/` to Rust with protox (no protoc is needed) and keeps the descriptor set for gRPC reflection.

#[cfg(feature = "server")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    const PROTOS: &[&str] = &[
        "envoy/service/ratelimit/v3/rls.proto",
        "kuadrant/service/ratelimit/v1/rls.proto",
        "grpc/health/v1/health.proto",
    ];
    // Of the server as a client of control planes: compiled, but not among what reflection lists.
    const CLIENT_PROTOS: &[&str] =
        &["envoy/service/discovery/v3/ads.proto", "ratelimit/config/ratelimit/v3/rls_conf.proto"];
    // Served where it is enabled, with descriptors of its own for reflection and JSON.
    const CONTROL_PROTO: &str = "tidegate/v1/control.proto";
    // For tests: compiled, but not among what reflection lists.
    const TEST_PROTOS: &[&str] = &["tidegate/test/v1/clock.proto"];
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(PROTOS, ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&descriptors))?;
    let control = protox::compile([CONTROL_PROTO], ["proto"])?;
    std::fs::write(out.join("control_descriptors.bin"), prost::Message::encode_to_vec(&control))?;
    let all = [PROTOS, CLIENT_PROTOS, TEST_PROTOS, &[CONTROL_PROTO]].concat();
    tonic_prost_build::configure()
        .include_file("includes.rs")
        .compile_fds(protox::compile(all, ["proto"])?)?;
    Ok(())
}

#[cfg(not(feature = "server"))]
fn main() {
    println!("cargo:rerun-if-changed=build.rs");
}
