//! What this server was built from.

use tidegate_operations::telemetry::Build;

/// The version and the commit of this server. The commit is from the variable `SOURCE_COMMIT` of the build, which release builds of a git
/// checkout set themselves (`build.rs`).
pub const BUILD: Build = Build {
    version: env!("CARGO_PKG_VERSION"),
    commit: match option_env!("SOURCE_COMMIT") {
        Some(commit) if !commit.is_empty() => commit,
        _ => "unknown",
    },
};
