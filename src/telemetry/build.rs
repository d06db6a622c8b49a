//! What was built: the version, and the commit where the build names it.

/// The version of the server.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the sources, from the variable `SOURCE_COMMIT` of the build, which release builds of a git checkout set themselves
/// (`build.rs`); `unknown` without it.
pub const COMMIT: &str = match option_env!("SOURCE_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};
