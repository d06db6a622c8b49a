//! YAML as a tree of nodes with positions, and typed access to it.
//!
//! Invariants of a tree: no map has a key twice, aliases and merge keys (`<<`) are resolved, and it is at most
//! [`DEPTH_MAX`] deep, so that recursion over it stays well within the stack. Aliases share the nodes they repeat; they
//! may repeat at most [`REPEATED_MAX`] nodes in a file, which bounds a walk over all of it.

mod build;
mod fields;
mod located;
mod scalar;
mod suggest;

pub(super) use build::{parse, parse_all};
pub(super) use fields::{Field, Fields, quoted};
pub use located::Located;
pub use scalar::yaml_text;
pub use suggest::nearest;

use super::{
    SourceId,
    error::{Origin, Position, Problems},
};
use std::rc::Rc;

/// Nesting of maps and lists. A descriptor takes two levels, and requests have at most 32 entries by default.
const DEPTH_MAX: usize = 200;

/// Nodes that all aliases of a file may repeat in total.
const REPEATED_MAX: usize = 1_000_000;

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Node {
    position: Position,
    kind: Kind,
    /// Nodes in it, itself included; an alias counts as the nodes that it repeats.
    size: usize,
    /// Levels of maps and lists in it; 0 for a scalar.
    height: usize,
}

#[derive(Debug)]
enum Kind {
    Scalar(Scalar),
    List(Vec<Rc<Node>>),
    Map(Vec<Pair>),
}

#[derive(Debug)]
struct Scalar {
    text: Box<str>,
    /// Neither quoted nor a block, or tagged otherwise: it may be a number, a boolean or null.
    plain: bool,
}

#[derive(Clone, Debug)]
struct Pair {
    key: Box<str>,
    key_position: Position,
    value: Rc<Node>,
}

impl Node {
    fn scalar(position: Position, text: impl Into<Box<str>>, plain: bool) -> Self {
        Self { position, kind: Kind::Scalar(Scalar { text: text.into(), plain }), size: 1, height: 0 }
    }

    fn list(position: Position, items: Vec<Rc<Self>>) -> Self {
        let (size, height) = extent(items.iter());
        Self { position, kind: Kind::List(items), size, height }
    }

    fn map(position: Position, pairs: Vec<Pair>) -> Self {
        let (size, height) = extent(pairs.iter().map(|pair| &pair.value));
        Self { position, kind: Kind::Map(pairs), size, height }
    }

    /// Whether this is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.kind, Kind::List(_))
    }

    /// Whether this is YAML's null.
    pub(super) fn is_null(&self) -> bool {
        matches!(&self.kind, Kind::Scalar(scalar) if scalar.is_null())
    }
}

/// Size and height of a map or list of these.
fn extent<'n>(nodes: impl Iterator<Item = &'n Rc<Node>>) -> (usize, usize) {
    nodes.fold((1, 1), |(size, height), node| (size.saturating_add(node.size), height.max(node.height + 1)))
}

/// Notes the problems of one document.
pub(super) struct Report<'p> {
    source: SourceId,
    problems: &'p Problems,
}

impl<'p> Report<'p> {
    pub(super) fn new(source: &SourceId, problems: &'p Problems) -> Self {
        Self { source: source.clone(), problems }
    }

    fn at(&self, position: Position, path: impl Into<String>, message: impl Into<String>) {
        self.problems.at(&self.origin(position), path, message);
    }

    /// Notes a warning.
    fn warn(&self, position: Position, path: impl Into<String>, message: impl Into<String>) {
        self.problems.warn(&self.origin(position), path, message);
    }

    fn origin(&self, position: Position) -> Origin {
        Origin { source: self.source.clone(), position: Some(position) }
    }
}

/// The path to the value of `key`.
fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}
