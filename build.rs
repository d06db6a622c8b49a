//! Generates the messages and services of `proto/`, from the descriptor set that `cargo protos` compiles: a build needs neither
//! protoc nor a compiler of protobuf in Rust. Keeps the descriptors for gRPC reflection.

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use std::{collections::BTreeSet, env, error::Error, fs, path::PathBuf, process::Command};

/// What reflection lists.
const PROTOS: &[&str] = &[
    "envoy/service/ratelimit/v3/rls.proto",
    "envoy/service/rate_limit_quota/v3/rlqs.proto",
    "kuadrant/service/ratelimit/v1/rls.proto",
    "grpc/health/v1/health.proto",
];

/// Served where it is enabled, with descriptors of its own for reflection and JSON.
const CONTROL_PROTO: &str = "tidegate/v1/control.proto";

/// Served where it is enabled, with descriptors of its own for reflection.
const LEASES_PROTO: &str = "tidegate/v1/leases.proto";

const DESCRIPTORS: &str = "proto/descriptors.binpb";

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(commit) = commit() {
        println!("cargo:rustc-env=SOURCE_COMMIT={commit}");
    }
    println!("cargo:rerun-if-changed={DESCRIPTORS}");
    let all = FileDescriptorSet::decode(&*fs::read(DESCRIPTORS)?)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), with_imports(&all, PROTOS).encode_to_vec())?;
    fs::write(out.join("control_descriptors.bin"), with_imports(&all, &[CONTROL_PROTO]).encode_to_vec())?;
    fs::write(out.join("leases_descriptors.bin"), with_imports(&all, &[LEASES_PROTO]).encode_to_vec())?;
    tonic_prost_build::configure().include_file("includes.rs").compile_fds(all)?;
    Ok(())
}

/// The commit of the checkout that this package is the top of; none without git, in a development build, which would be compiled again
/// at each commit, and where the build sets SOURCE_COMMIT itself.
fn commit() -> Option<String> {
    println!("cargo:rerun-if-env-changed=SOURCE_COMMIT");
    if env::var("PROFILE").ok()? != "release" || env::var_os("SOURCE_COMMIT").is_some() {
        return None;
    }
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(&package).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    // A package that was unpacked within another checkout has no commit of its own.
    let is_top =
        fs::canonicalize(git(&["rev-parse", "--show-toplevel"])?).ok()? == fs::canonicalize(&package).ok()?;
    let head = package.join(git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    if head.exists() {
        println!("cargo:rerun-if-changed={}", head.display());
    }
    git(&["rev-parse", "HEAD"]).filter(|_| is_top)
}

/// The files of these names and those that they import, in the order of the set: imports come first.
fn with_imports(all: &FileDescriptorSet, names: &[&str]) -> FileDescriptorSet {
    let mut wanted: BTreeSet<String> = names.iter().map(|&name| name.to_owned()).collect();
    let is_wanted = |file: &&FileDescriptorProto| {
        let is_wanted = wanted.contains(file.name());
        if is_wanted {
            wanted.extend(file.dependency.iter().cloned());
        }
        is_wanted
    };
    let mut file: Vec<_> = all.file.iter().rev().filter(is_wanted).cloned().collect();
    file.reverse();
    FileDescriptorSet { file }
}
