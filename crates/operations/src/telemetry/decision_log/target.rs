//! The target of lines.

use std::{fmt, path::PathBuf};

/// The target of lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// This file, to which lines are appended.
    File(PathBuf),
    /// Standard output.
    Stdout,
    /// A Unix stream socket on which a log collector listens.
    Socket(PathBuf),
}

impl std::str::FromStr for Target {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match (text, text.strip_prefix("unix:")) {
            ("-", _) => Self::Stdout,
            (_, Some(path)) => Self::Socket(path.into()),
            (path, None) => Self::File(path.into()),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stdout => f.write_str("-"),
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
        }
    }
}
