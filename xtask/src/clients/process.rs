//! Processes: the build of the server, and the commands of a language.

use crate::{
    Failure,
    cargo::{cargo, forget_package},
};
use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The repository, and the server that tests start.
pub(super) struct Place<'p> {
    pub(super) repository: &'p Path,
    pub(super) server: &'p Path,
}

impl Place<'_> {
    /// Runs commands in a folder until one fails.
    pub(super) fn prepare(&self, commands: &[Vec<String>], folder: &Path) -> Result<(), Failure> {
        for command in commands {
            let status = self.command(command, folder)?.stdout(Stdio::null()).status();
            let status = status.map_err(|error| format!("{}: {error}", command.join(" ")))?;
            if !status.success() {
                return Err(format!("`{}` failed", command.join(" ")));
            }
        }
        Ok(())
    }

    /// Runs a command in a folder with a variable: its standard output, and whether it succeeded.
    pub(super) fn output(
        &self,
        command: &[String],
        folder: &Path,
        stderr: Stdio,
        (variable, value): (&str, &Path),
    ) -> Result<(String, bool), Failure> {
        let output = self.command(command, folder)?.env(variable, value).stderr(stderr).output();
        let output = output.map_err(|error| format!("{}: {error}", command.join(" ")))?;
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), output.status.success()))
    }

    /// A command in a folder; programs with a `/` are relative to it.
    pub(super) fn command(&self, command: &[String], folder: &Path) -> Result<Command, Failure> {
        let [program, arguments @ ..] = command else { return Err("an empty command".into()) };
        let program = if program.contains('/') { folder.join(program) } else { PathBuf::from(program) };
        let mut command = Command::new(program);
        forget_package(&mut command);
        command.args(arguments).current_dir(folder).env("TIDEGATE_BIN", self.server);
        Ok(command)
    }
}

/// Builds the server and the faulty server, and returns the path of the former.
pub(super) fn build_server(repository: &Path, is_release: bool) -> Result<PathBuf, Failure> {
    let built = cargo()
        .args(["build", "--locked", "--message-format=json-render-diagnostics"])
        // Tests start the faulty server from the folder of the server.
        .args(["--package", "tidegate", "--package", "faulty-server"])
        .args(is_release.then_some("--release"))
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

/// Whether a command succeeds.
pub(super) fn succeeds(command: &[String]) -> bool {
    let [program, arguments @ ..] = command else { return false };
    let run = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}
