//! `cargo xtask clients`: the client libraries against the server.

mod languages;
mod vectors;

use super::Failure;
use clap::Args;
use comfy_table::Table;
use languages::{GROUPS, LANGUAGES, Language};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

/// Tests the client libraries in `clients/` against a server built from this tree.
///
/// A language whose toolchain is missing is skipped, unless TIDEGATE_REQUIRE lists it: python, go, node, java, rust.
#[derive(Args)]
pub(super) struct Clients {
    /// Convert tests/vectors to the clients' conformance cases, and do nothing else.
    #[arg(long)]
    write_vectors: bool,
    /// Languages to test (python, go, node, java, rust); by default all.
    #[arg(value_name = "LANGUAGE")]
    only: Vec<String>,
}

/// Results of one language: tests that passed and all tests, by group.
type Counts = [(usize, usize); GROUPS.len()];

impl Clients {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        if self.write_vectors {
            let path = repository.join(vectors::CONVERTED);
            fs::write(&path, vectors::convert(&repository)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            return Ok(ExitCode::SUCCESS);
        }
        let server = build_server(&repository)?;
        let required = env::var("TIDEGATE_REQUIRE").unwrap_or_default();
        let mut table = Table::new();
        table.set_header(["client"].iter().chain(&GROUPS));
        let mut failed = Vec::new();
        for language in LANGUAGES {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == language.toolchain) {
                continue;
            }
            if !language.probes.iter().all(|probe| succeeds(probe)) {
                if required.split(',').any(|name| name == language.toolchain) {
                    failed.push(format!("{}: {} is not installed", language.name, language.toolchain));
                }
                table.add_row([language.name, "skipped: no toolchain"]);
                continue;
            }
            match test(language, &repository, &server) {
                Ok((counts, has_passed)) => {
                    let cells = counts.map(|(passed, all)| format!("{passed} of {all}"));
                    table.add_row([language.name.to_owned()].into_iter().chain(cells));
                    if !has_passed {
                        failed.push(format!("{}: tests failed", language.name));
                    }
                }
                Err(failure) => {
                    table.add_row([language.name, "failed before its tests"]);
                    failed.push(format!("{}: {failure}", language.name));
                }
            }
        }
        println!("{table}");
        if failed.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(failed.join("; ")) }
    }
}

/// Builds the server, and returns its path.
fn build_server(repository: &Path) -> Result<PathBuf, Failure> {
    let cargo = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let built = Command::new(cargo)
        .args(["build", "--locked", "--message-format=json-render-diagnostics"])
        .current_dir(repository)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo build: {error}"))?;
    let messages = String::from_utf8_lossy(&built.stdout).into_owned();
    let executables = messages.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    let mut servers = executables.filter(|path| path.file_stem().is_some_and(|name| name == "tidegate"));
    servers.next().ok_or_else(|| "cargo build made no server".into())
}

fn succeeds(command: &[&str]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    let run = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Prepares and tests one language: the counts, and whether the tests succeeded as a whole.
fn test(language: &Language, repository: &Path, server: &Path) -> Result<(Counts, bool), Failure> {
    let folder = repository.join("clients").join(language.folder);
    for command in language.prepare {
        let status = in_folder(command, &folder, server)?.status();
        let status = status.map_err(|error| format!("{}: {error}", command.join(" ")))?;
        if !status.success() {
            return Err(format!("`{}` failed", command.join(" ")));
        }
    }
    let output = in_folder(language.test, &folder, server)?.stderr(Stdio::inherit()).output();
    let output = output.map_err(|error| format!("{}: {error}", language.test.join(" ")))?;
    let text = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        eprintln!("{text}");
    }
    let mut counts = Counts::default();
    for (name, has_passed) in text.lines().filter_map(language.outcome) {
        let (passed, all) = &mut counts[languages::group(name)];
        *passed += usize::from(has_passed);
        *all += 1;
    }
    let is_complete = counts.iter().all(|(_, all)| *all > 0);
    Ok((counts, output.status.success() && is_complete))
}

/// A command in a folder; programs with a `/` are relative to it.
fn in_folder(command: &[&str], folder: &Path, server: &Path) -> Result<Command, Failure> {
    let [program, arguments @ ..] = command else { return Err("an empty command".into()) };
    let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).env("TIDEGATE_BIN", server);
    Ok(command)
}
