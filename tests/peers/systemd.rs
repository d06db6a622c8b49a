//! The systemd units of `deploy/`, checked by `systemd-analyze`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Exposure that `systemd-analyze security` may report, from 0 (confined) to 10, times 10.
const EXPOSURE_MAX: u32 = 15;

pub fn is_here() -> bool {
    crate::peer::runs(Command::new("systemd-analyze").arg("--version"))
}

fn units() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd");
    let files = fs::read_dir(folder).expect("the folder").map(|file| file.expect("an entry").path());
    files.collect()
}

fn analyze(args: &[&str], units: &[&Path]) -> (Output, String) {
    let mut command = Command::new("systemd-analyze");
    let output = command.args(args).args(units).stdin(Stdio::null()).output().expect("it runs");
    let text = String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
    (output, text)
}

/// The units as installed, except for the program: it is the program under test, since none is installed here.
async fn the_units_verify() {
    let folder = tempfile::tempdir().expect("a directory");
    let installed: Vec<PathBuf> = units()
        .iter()
        .map(|unit| {
            let text = fs::read_to_string(unit).expect("a unit");
            let text = text.replace("/usr/local/bin/tidegate", env!("CARGO_BIN_EXE_tidegate"));
            let copy = folder.path().join(unit.file_name().expect("a file"));
            fs::write(&copy, text).expect("a copy");
            copy
        })
        .collect();
    let installed: Vec<&Path> = installed.iter().map(PathBuf::as_path).collect();
    let (output, text) = analyze(&["verify", "--man=no"], &installed);
    assert!(output.status.success() && text.is_empty(), "{text}");
}

async fn the_service_is_confined() {
    let service = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd/tidegate.service");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    let (output, text) = analyze(&["security", "--offline=true", "--no-pager", &threshold], &[&service]);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Overall exposure level"), "{text}");
}

crate::tests_with! { SYSTEMD: the_units_verify, the_service_is_confined }
