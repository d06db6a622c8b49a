//! Sources of declarations.

use tidegate_core::rules::SourceId;

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
    /// The feed of a document.
    pub fn of(id: &SourceId) -> Self {
        match id {
            SourceId::File(_) => Self::Files,
            SourceId::Xds(_) => Self::Xds,
            SourceId::Override(_) => Self::Overrides,
            SourceId::Blocks(_) => Self::Blocks,
        }
    }

    /// Whether a failed load leaves the server with other rules than the feed's until a load succeeds. A refused change of overrides was
    /// never made.
    pub(super) fn stays_behind(self) -> bool {
        self != Self::Overrides
    }

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
