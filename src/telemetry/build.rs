//! What was built: the version, and the commit where the build names it.

/// The version of the server.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit of the sources, from the variable `SOURCE_COMMIT` of the build; `unknown` without it. Builds of a working tree do not read
/// it from git: each commit would compile the crate again.
pub const COMMIT: &str = match option_env!("SOURCE_COMMIT") {
    Some(commit) if !commit.is_empty() => commit,
    _ => "unknown",
};
