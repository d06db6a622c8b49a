//! Origins of rules, and errors in them: place, value found, remedy.

use serde::{Deserialize, Serialize};
use std::{cell::RefCell, cmp::Ordering, fmt, sync::Arc};

/// A place in a text, as editors count: the first character is 1:1.
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

/// The document that declares a rule. In files it is a `kind` and a `name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", content = "name", rename_all = "snake_case")]
pub enum SourceId {
    /// A rule file, by the path that it was read from.
    File(Arc<str>),
    /// A resource of an xDS feed, by name.
    Xds(Arc<str>),
    /// An override set at run time, by id.
    Override(Arc<str>),
    /// A file of blocks, by the path that it was read from.
    Blocks(Arc<str>),
}

impl SourceId {
    /// The rule file of that path.
    pub fn file(path: impl Into<Arc<str>>) -> Self {
        Self::File(path.into())
    }

    /// Whether the document declares overrides or blocks, which apply instead of rules.
    pub fn is_overlay(&self) -> bool {
        matches!(self, Self::Override(_) | Self::Blocks(_))
    }
}

/// `rules.yaml`, `xds:NAME` or `override:ID`.
impl fmt::Display for SourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::Blocks(path) => f.write_str(path),
            Self::Xds(name) => write!(f, "xds:{name}"),
            Self::Override(id) => write!(f, "override:{id}"),
        }
    }
}

/// Place at which a rule is declared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The document.
    pub source: SourceId,
    /// The place in its text; none if it has no text.
    pub position: Option<Position>,
}

/// `rules.yaml:14:26`, or `xds:NAME`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.source)?;
        self.position.map_or(Ok(()), |position| write!(f, ":{position}"))
    }
}

/// One error in one document.
///
/// Shown as `rules.yaml:14:26: descriptors[2].rate_limit.unit: "sec" is not a unit; write second, minute, …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleError {
    /// The document, and where in it; no position if the document as a whole is unusable.
    pub origin: Origin,
    /// The keys that lead to the value; empty for the whole document.
    pub path: String,
    /// The value found, and the remedy.
    pub message: String,
}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// All errors of all documents: never empty; in the order of the documents, and by position within one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub struct RuleErrors(Vec<RuleError>);

impl RuleErrors {
    /// The error that a document as a whole is unusable.
    pub fn of_source(source: SourceId, message: impl Into<String>) -> Self {
        let origin = Origin { source, position: None };
        Self(vec![RuleError { origin, path: String::new(), message: message.into() }])
    }

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

/// Collects errors while the documents are read; reading continues after each, so that all are found at once.
#[derive(Default)]
pub(super) struct Problems {
    errors: RefCell<Vec<RuleError>>,
    /// About valid rules that surely do not mean what they look like.
    warnings: RefCell<Vec<RuleError>>,
}

impl Problems {
    /// Notes an error at a place.
    pub(super) fn at(&self, origin: &Origin, path: impl Into<String>, message: impl Into<String>) {
        let error = RuleError { origin: origin.clone(), path: path.into(), message: message.into() };
        self.errors.borrow_mut().push(error);
    }

    /// Notes that a document as a whole is unusable.
    pub(super) fn of_source(&self, source: SourceId, message: impl Into<String>) {
        self.at(&Origin { source, position: None }, "", message);
    }

    /// Notes a warning at a place.
    pub(super) fn warn(&self, origin: &Origin, path: impl Into<String>, message: impl Into<String>) {
        let warning = RuleError { origin: origin.clone(), path: path.into(), message: message.into() };
        self.warnings.borrow_mut().push(warning);
    }

    /// The warnings so far.
    pub(super) fn take_warnings(&self) -> Vec<RuleError> {
        self.warnings.take()
    }

    pub(super) fn len(&self) -> usize {
        self.errors.borrow().len()
    }

    pub(super) fn truncate(&self, errors: usize) {
        self.errors.borrow_mut().truncate(errors);
    }

    /// The outcome if no error was noted, else all errors.
    pub(super) fn or<T>(self, outcome: T) -> Result<T, RuleErrors> {
        let mut errors = self.errors.into_inner();
        if errors.is_empty() {
            return Ok(outcome);
        }
        // Documents stay in the order in which their first errors were found: the order of reading.
        let mut sources: Vec<SourceId> = Vec::new();
        for error in &errors {
            if !sources.contains(&error.origin.source) {
                sources.push(error.origin.source.clone());
            }
        }
        let order = |error: &RuleError| sources.iter().position(|source| *source == error.origin.source);
        errors.sort_by(|one, other| match order(one).cmp(&order(other)) {
            Ordering::Equal => one.origin.position.cmp(&other.origin.position),
            different => different,
        });
        Err(RuleErrors(errors))
    }
}
