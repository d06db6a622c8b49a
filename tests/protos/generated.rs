//! The generated messages and services, and the descriptors for reflection, are those of `proto/`. No protoc is needed.

use prost::Message as _;
use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
};

/// The services that reflection lists.
const LISTED: &[&str] = &[
    "envoy/service/ratelimit/v3/rls.proto",
    "kuadrant/service/ratelimit/v1/rls.proto",
    "grpc/health/v1/health.proto",
];
/// Of the server as a client of control planes, and for tests.
const UNLISTED: &[&str] = &[
    "envoy/service/discovery/v3/ads.proto",
    "ratelimit/config/ratelimit/v3/rls_conf.proto",
    "tidegate/test/v1/clock.proto",
];
/// Served where it is enabled, with descriptors of its own for reflection and JSON.
const CONTROL: &str = "tidegate/v1/control.proto";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Writes the code and the descriptors of `proto/`.
fn generate(output: &Path) {
    let proto = root().join("proto");
    let compile = |protos: &[&str]| protox::compile(protos, [&proto]).expect("valid protos");
    let descriptors = |protos: &[&str], name: &str| {
        fs::write(output.join(name), compile(protos).encode_to_vec()).expect("descriptors are written");
    };
    descriptors(LISTED, "descriptors.bin");
    descriptors(&[CONTROL], "control_descriptors.bin");
    tonic_prost_build::configure()
        .out_dir(output)
        .include_file("includes.rs")
        .compile_fds(compile(&[LISTED, UNLISTED, &[CONTROL]].concat()))
        .expect("code");
}

/// The files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let name = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    entries.map(|path| (name(&path), fs::read(&path).expect("a file"))).collect()
}

#[test]
fn the_generated_code_is_that_of_the_protos() {
    let output = tempfile::tempdir().expect("a folder");
    generate(output.path());
    let generated = files(output.path());
    let folder = root().join("src/api/generated");
    if env::var_os("TIDEGATE_GENERATE").is_some() {
        fs::remove_dir_all(&folder).expect("the old code is removed");
        fs::create_dir(&folder).expect("the folder is made");
        for (name, content) in &generated {
            fs::write(folder.join(name), content).expect("it is written");
        }
    }
    let committed = files(&folder);
    let names = generated.keys().chain(committed.keys());
    let mut stale: Vec<&String> = names.filter(|name| generated.get(*name) != committed.get(*name)).collect();
    stale.dedup();
    assert!(
        stale.is_empty(),
        "src/api/generated/ is not that of proto/: {stale:?}; run TIDEGATE_GENERATE=1 cargo test --package protos"
    );
}
