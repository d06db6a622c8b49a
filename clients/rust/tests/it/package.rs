//! The package as users get it: the README's first lines in an empty project.

use crate::servers::{program, start};
use std::{env, fs, path::Path, process::Command};

/// Builds every dependency again, so only where `TIDEGATE_REQUIRE` lists `rust`.
#[test]
fn the_readme_works_with_the_package_in_an_empty_project() {
    if !env::var("TIDEGATE_REQUIRE").is_ok_and(|required| required.split(',').any(|name| name == "rust")) {
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().expect("a directory");
    let run = |command: &mut Command| {
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let cargo = || Command::new(env!("CARGO"));
    let packed = folder.path().join("packed");
    run(cargo()
        .args(["package", "--no-verify", "--allow-dirty", "--target-dir"])
        .arg(&packed)
        .current_dir(here));
    let name = concat!("tidegate-client-", env!("CARGO_PKG_VERSION"));
    let archive = packed.join(format!("package/{name}.crate"));
    run(Command::new("tar").arg("-xzf").arg(&archive).current_dir(folder.path()));

    let server = start(&program(), &["serve", "--listen", "127.0.0.1:0", "--log-format", "json"], None);
    let readme = fs::read_to_string(here.join("README.md")).expect("a file");
    let (_, rest) = readme.split_once("```rust\n").expect("Rust code");
    let (lines, _) = rest.split_once("```").expect("its end");
    let (import, lines) = lines.split_once("\n\n").expect("an import");
    let project = folder.path().join("empty");
    fs::create_dir_all(project.join("src")).expect("a directory");
    let manifest = format!(
        "[package]\nname = \"empty\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         tidegate-client = {{ path = \"../{name}\" }}\n\
         tokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n"
    );
    fs::write(project.join("Cargo.toml"), manifest).expect("it is written");
    let program = format!(
        "{import}\n\n#[tokio::main]\nasync fn main() -> Result<(), Box<dyn std::error::Error>> {{\n{}Ok(())\n}}\n",
        lines.replace("127.0.0.1:8081", &server.address)
    );
    fs::write(project.join("src/main.rs"), program).expect("it is written");
    // The versions of the repository, which are downloaded already.
    fs::copy(here.join("../../Cargo.lock"), project.join("Cargo.lock")).expect("it is copied");
    let target = here.join("../../target/client-package");
    let mut output = String::new();
    // The demo rule admits 5 a minute: on a slow machine the first hit may fit again.
    for expected in [&["true Some(4) None\n"][..], &["true Some(3) None\n", "true Some(4) None\n"]] {
        let printed =
            run(cargo().args(["run", "--quiet"]).env("CARGO_TARGET_DIR", &target).current_dir(&project));
        assert!(expected.contains(&printed.as_str()), "{printed}");
        output += &printed;
    }
    if let Some(path) = env::var_os("TIDEGATE_README_TRANSCRIPT") {
        fs::write(path, format!("{import}\n\n{lines}\nOutput of two runs:\n{output}"))
            .expect("it is written");
    }
}
