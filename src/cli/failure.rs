//! Why a command failed.

use std::{fmt, path::Path};

/// A failed command, as a message for users.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

impl Failure {
    /// Makes one failure of several, each on lines of its own. Equal ones, of parts that read the same setting, are stated once.
    pub(super) fn all(failures: impl IntoIterator<Item = Self>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for Self(text) in failures {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        Self(texts.join("\n"))
    }

    /// Makes the failure of an error that concerns a file.
    pub(super) fn at<E: fmt::Display>(file: &Path) -> impl Fn(E) -> Self {
        move |error| Self(format!("{}: {error}", file.display()))
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
