//! The build: the version, and the commit if the build names it.

/// The version of a server, and its sources.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Build {
    /// The version.
    pub version: &'static str,
    /// The commit of the sources, or `unknown`.
    pub commit: &'static str,
}
