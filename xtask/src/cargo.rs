//! Cargo, as a program that these commands run.

use std::{env, process::Command};

/// Cargo, without the variables about this program's own package that Cargo has set for it. With them, build scripts that read such a
/// variable (that of ring) run again, and all that depends on them is built again.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in names.filter(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
        cargo.env_remove(name);
    }
    cargo
}
