//! Cargo, as a program that these commands run.

use std::{env, process::Command};

/// Cargo.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    forget_package(&mut cargo);
    cargo
}

/// Removes the variables about this program's own package that Cargo has set. With them, build scripts that read such a variable
/// (ring's build script does) run again in a command that builds, and all packages that depend on them are built again.
pub(crate) fn forget_package(command: &mut Command) {
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
        command.env_remove(name);
    }
}
