//! The manifests of `deploy/`, decoded strictly against the types of the Kubernetes API and of Compose by a Go program.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/kubernetes")
}

/// Whether Go is installed and the modules have been downloaded (`go mod download` in the folder of the program).
pub fn is_here() -> bool {
    let mut list = Command::new("go");
    list.args(["list", "-deps", "-test", "./..."]).current_dir(folder()).env("GOPROXY", "off");
    crate::peer::runs(&mut list)
}

async fn the_manifests_decode_strictly() {
    let ran = Command::new("go").args(["test", "-count=1", "./..."]).current_dir(folder()).output();
    let ran = ran.expect("go runs");
    let output = String::from_utf8_lossy(&ran.stdout);
    assert!(
        ran.status.success() && output.contains("ok"),
        "{output}{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

crate::tests_with! { KUBERNETES: the_manifests_decode_strictly }
