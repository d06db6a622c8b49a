//! Generates the messages and services of `proto/`, from the descriptor set that `cargo protos` compiles: a build needs neither
//! protoc nor a compiler of protobuf in Rust. Keeps the descriptors for gRPC reflection.

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet, field_descriptor_proto::Type};
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
    tonic_prost_build::configure().include_file("includes.rs").compile_fds(with_client_bytes(all)?)?;
    Ok(())
}

/// The messages whose fields `key` and `value` are what clients of a proxy choose.
const OF_CLIENTS: &[(&str, &[&str])] = &[
    ("envoy.extensions.common.ratelimit.v3", &["RateLimitDescriptor", "Entry"]),
    ("envoy.service.rate_limit_quota.v3", &["BucketId", "BucketEntry"]),
];

/// Declares the keys and values of clients as bytes, which they are on the wire: the generated code would refuse a whole message for a
/// text that is no UTF-8. A map of them is declared as the list of pairs that it is on the wire, since keys of maps are no bytes.
fn with_client_bytes(mut all: FileDescriptorSet) -> Result<FileDescriptorSet, Box<dyn Error>> {
    for (package, path) in OF_CLIENTS {
        let mut messages = Vec::new();
        for file in all.file.iter_mut().filter(|file| file.package() == *package) {
            // The comments of the file have no place for the fields of a map's pairs.
            file.source_code_info = None;
            messages.extend(&mut file.message_type);
        }
        let (name, above) = path.split_last().ok_or("an empty path")?;
        for above in above {
            messages.retain(|message| message.name() == *above);
            messages = messages.into_iter().flat_map(|message| &mut message.nested_type).collect();
        }
        let found = messages.into_iter().find(|message| message.name() == *name);
        let message = found.ok_or_else(|| format!("{package} has no message {path:?}"))?;
        message.options = None;
        message.field.iter_mut().for_each(|field| field.set_type(Type::Bytes));
    }
    Ok(all)
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
