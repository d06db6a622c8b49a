//! What was built: the version, and the commit where the build names it.

/// The version of a server, and its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The version.
    pub version: &'static str,
    /// The commit of the sources, or `unknown`.
    pub commit: &'static str,
}
