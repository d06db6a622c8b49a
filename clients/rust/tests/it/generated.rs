//! The generated messages are those of `clients/proto`.

use std::{env, fs, path::Path};

#[test]
fn the_generated_code_is_that_of_the_protos() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let descriptors =
        protox::compile(["tidegate/client/v1/rls.proto"], [here.join("../proto")]).expect("valid protos");
    let output = tempfile::tempdir().expect("a directory");
    prost_build::Config::new().out_dir(output.path()).compile_fds(descriptors).expect("code");
    let generated = fs::read_to_string(output.path().join("tidegate.client.v1.rs")).expect("the code");
    let committed = here.join("src/generated/tidegate.client.v1.rs");
    if env::var_os("TIDEGATE_GENERATE").is_some() {
        fs::write(&committed, &generated).expect("it is written");
    }
    let is_current = fs::read_to_string(&committed).expect("the file") == generated;
    assert!(is_current, "the generated code is stale; run this test with TIDEGATE_GENERATE=1");
}
