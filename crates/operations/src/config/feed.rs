//! Sources of declarations.

/// Sources of declarations, in the order in which they are merged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Feed {
    /// Rule files.
    Files,
    /// Resources of an xDS server.
    Xds,
    /// Overrides and blocks set at run time.
    Overrides,
    /// Files of blocks.
    Blocks,
}

impl Feed {
    /// The name in logs and in `GET /rules/status`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Xds => "xds",
            Self::Overrides => "overrides",
            Self::Blocks => "blocks",
        }
    }
}
