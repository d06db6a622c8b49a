//! Expressions over the descriptors of a request: a subset of CEL, the Common Expression Language.
//!
//! [`Expression::parse`] checks names, functions and patterns, so that evaluation fails only by the values that it finds.
//! `lexer` makes tokens, `parser` a tree of `node`s, `evaluate` a [`Value`].
//!
//! Invariants:
//!
//! - A tree is at most [`DEPTH_MAX`] deep and its loops are nested at most [`LOOPS_MAX`] deep: recursion stays within the stack.
//! - Evaluation takes at most [`COST_MAX`] steps, and memory in proportion to them.
//! - An expression of `descriptors[N]`, `==`, `!=`, `&&` and `||` over texts is evaluated without allocation.

mod descriptors;
mod doubts;
mod error;
mod evaluate;
mod functions;
mod lexer;
mod node;
mod parser;
mod pattern;
#[cfg(test)]
mod tests;
mod value;

pub use descriptors::{Descriptors, LimitNames};
pub use error::{COST_MAX, DEPTH_MAX, EvaluationError, LENGTH_MAX, LOOPS_MAX, ParseError};
pub use value::Value;

use node::{Node, Operator};
use std::{borrow::Cow, fmt};

/// An expression that was parsed and checked.
#[derive(Clone)]
pub struct Expression {
    source: Box<str>,
    node: Node,
}

/// An entry that a request must have: see [`Expression::required_entry`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequiredEntry<'e> {
    /// Index of the descriptor.
    pub descriptor: usize,
    /// The key.
    pub key: &'e str,
    /// The value.
    pub value: &'e str,
}

impl Expression {
    /// Parses the text, or returns the first error in it.
    pub fn parse(source: &str) -> Result<Self, ParseError> {
        let node = parser::parse(source)?;
        Ok(Self { source: source.into(), node })
    }

    /// The text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The value of the expression.
    pub fn evaluate<'t>(
        &'t self,
        descriptors: &dyn Descriptors<'t>,
        limit: LimitNames<'t>,
    ) -> Result<Value<'t>, EvaluationError> {
        evaluate::evaluate(&self.node, descriptors, limit)
    }

    /// Whether the condition holds. It does not without a value, or with a value other than true. Beyond the bound on cost it does, so that
    /// no request evades a limit by its length.
    #[inline]
    pub fn holds<'t>(&'t self, descriptors: &dyn Descriptors<'t>, limit: LimitNames<'t>) -> bool {
        if let Some(RequiredEntry { descriptor, key, value }) = self.node.as_required_entry() {
            return descriptors.value(descriptor, key) == Some(value);
        }
        match self.evaluate(descriptors, limit) {
            Ok(value) => matches!(value, Value::Bool(true)),
            Err(error) => error == EvaluationError::Cost,
        }
    }

    /// The value as a text for the key of a counter; none without a value, or for a list or a map. Empty beyond the bound on cost.
    #[inline]
    pub fn text<'t>(
        &'t self,
        descriptors: &dyn Descriptors<'t>,
        limit: LimitNames<'t>,
    ) -> Option<Cow<'t, str>> {
        if let Node::Entry { descriptor, key } = &self.node {
            return descriptors.value(*descriptor, key).map(Cow::Borrowed);
        }
        match self.evaluate(descriptors, limit) {
            Ok(value) => value.into_text(),
            Err(EvaluationError::Cost) => Some(Cow::Borrowed("")),
            Err(_) => None,
        }
    }

    /// The pairs of a map whose keys and values are texts; pairs of other types, and other values, are left out.
    pub fn texts<'t>(
        &'t self,
        descriptors: &dyn Descriptors<'t>,
        limit: LimitNames<'t>,
    ) -> Vec<(Cow<'t, str>, Cow<'t, str>)> {
        let Ok(value) = self.evaluate(descriptors, limit) else { return Vec::new() };
        let text = |pair| match pair {
            (Value::Text(key), Value::Text(value)) => Some((key, value)),
            _ => None,
        };
        value::pairs(&value, descriptors).into_iter().filter_map(text).collect()
    }

    /// An entry without which the condition does not hold, if it has the form `descriptors[N]["KEY"] == "VALUE"` or is a conjunction with
    /// such a part: limits are found by the entry.
    pub fn required_entry(&self) -> Option<RequiredEntry<'_>> {
        match &self.node {
            Node::And(nodes) => nodes.iter().find_map(Node::as_required_entry),
            node => node.as_required_entry(),
        }
    }
}

impl Node {
    #[inline]
    fn as_required_entry(&self) -> Option<RequiredEntry<'_>> {
        let Self::Binary(Operator::Equal, sides) = self else { return None };
        match &**sides {
            (Self::Entry { descriptor, key }, Self::Text(value))
            | (Self::Text(value), Self::Entry { descriptor, key }) => {
                Some(RequiredEntry { descriptor: *descriptor, key, value })
            }
            _ => None,
        }
    }
}

/// Compares the texts.
impl PartialEq for Expression {
    fn eq(&self, other: &Self) -> bool {
        self.source == other.source
    }
}

impl Eq for Expression {}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expression({:?})", self.source)
    }
}
