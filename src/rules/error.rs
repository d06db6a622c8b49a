//! What is wrong with rule files, told so that it can be put right: where, what was found, and what to write instead.

use std::{fmt, sync::Arc};

/// A place in a file, as editors count: the first character is 1:1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// In characters, counted from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A place in one of the files.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Location {
    /// The file as it was named when it was read.
    pub file: Arc<str>,
    /// Where in it.
    pub position: Position,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.position)
    }
}

/// One thing wrong.
///
/// Shown as `rules.yaml:14:26: descriptors[2].rate_limit.unit: "sec" is not a unit; write second, minute, …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// The file as it was named when it was read.
    pub file: Arc<str>,
    /// Where in it; none if the file could not be read.
    pub position: Option<Position>,
    /// The way to the value through the keys of the file; empty for the whole file.
    pub path: String,
    /// What was found, and the remedy.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(position) = self.position {
            write!(f, ":{position}")?;
        }
        f.write_str(": ")?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything wrong with all the files: never empty; in the order of the files, and by place within a file.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct RuleErrors(Vec<RuleError>);

impl RuleErrors {
    /// The errors; at least one.
    pub fn iter(&self) -> std::slice::Iter<'_, RuleError> {
        self.0.iter()
    }
}

/// One line for each error.
impl fmt::Display for RuleErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}

/// Gathers what is wrong while the files are walked; the walk goes on, so that everything is found at once.
#[derive(Default)]
pub(super) struct Problems(Vec<RuleError>);

impl Problems {
    /// Notes a problem at a place.
    pub(super) fn at(&mut self, location: &Location, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(RuleError {
            file: Arc::clone(&location.file),
            position: Some(location.position),
            path: path.into(),
            message: message.into(),
        });
    }

    /// Notes that a file as a whole is of no use.
    pub(super) fn of_file(&mut self, file: &str, message: impl Into<String>) {
        self.0.push(RuleError {
            file: file.into(),
            position: None,
            path: String::new(),
            message: message.into(),
        });
    }

    /// All or nothing: the outcome if no problem was noted.
    pub(super) fn or<T>(mut self, outcome: T) -> Result<T, RuleErrors> {
        if self.0.is_empty() {
            return Ok(outcome);
        }
        // Files keep the order in which their first problem was found: that in which they were walked.
        let mut files: Vec<Arc<str>> = Vec::new();
        for error in &self.0 {
            if !files.contains(&error.file) {
                files.push(Arc::clone(&error.file));
            }
        }
        self.0
            .sort_by_cached_key(|error| (files.iter().position(|file| *file == error.file), error.position));
        Err(RuleErrors(self.0))
    }
}
