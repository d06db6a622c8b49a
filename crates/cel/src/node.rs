//! The tree of an expression.

use crate::functions::Function;
use regex_automata::meta::Regex;
use std::sync::Arc;

/// A part of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    Text(Box<str>),
    /// `descriptors`.
    Descriptors,
    /// `descriptors[N]["KEY"]`, also as `descriptors[N].KEY`.
    Entry {
        descriptor: usize,
        key: Box<str>,
    },
    /// `limit.name`.
    LimitName,
    /// `limit.id`.
    LimitId,
    /// The variable of a loop: 0 for the outermost.
    Variable(usize),
    /// `value.key`.
    Select(Box<Node>, Box<str>),
    /// `value[index]`.
    Index(Box<(Node, Node)>),
    /// `has(value.key)`.
    Has(Box<Node>, Box<str>),
    Not(Box<Node>),
    Negative(Box<Node>),
    /// At least two.
    And(Box<[Node]>),
    /// At least two.
    Or(Box<[Node]>),
    Binary(Operator, Box<(Node, Node)>),
    /// `condition ? first : second`.
    Conditional(Box<[Node; 3]>),
    List(Box<[Node]>),
    Map(Box<[(Node, Node)]>),
    Call(Function, Box<[Node]>),
    /// `matches`, whose pattern is known.
    Matches(Box<Node>, Arc<Regex>),
    Loop(Box<Loop>),
}

/// A loop over the items of a list, or the keys of a map.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) over: Node,
    /// See [`Node::Variable`].
    pub(crate) variable: usize,
    /// The predicate; true for a `map` without one.
    pub(crate) predicate: Node,
    /// The item of the result, for `map`.
    pub(crate) item: Option<Node>,
}

/// The result of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// The items that the predicate selects, as they are or as `item` makes them.
    List,
}

/// An operator with two operands, both of which are evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    Plus,
    Minus,
    Times,
    Over,
    Remainder,
}

impl Node {
    /// The nodes directly below.
    pub(crate) fn children(&self) -> Vec<&Self> {
        match self {
            Self::Null
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Uint(_)
            | Self::Double(_)
            | Self::Text(_)
            | Self::Descriptors
            | Self::Entry { .. }
            | Self::LimitName
            | Self::LimitId
            | Self::Variable(_) => Vec::new(),
            Self::Select(of, _)
            | Self::Has(of, _)
            | Self::Not(of)
            | Self::Negative(of)
            | Self::Matches(of, _) => {
                vec![of]
            }
            Self::Index(sides) => vec![&sides.0, &sides.1],
            Self::Binary(_, sides) => vec![&sides.0, &sides.1],
            Self::And(nodes) | Self::Or(nodes) | Self::List(nodes) | Self::Call(_, nodes) => {
                nodes.iter().collect()
            }
            Self::Conditional(nodes) => nodes.iter().collect(),
            Self::Map(pairs) => pairs.iter().flat_map(|(key, value)| [key, value]).collect(),
            Self::Loop(each) => [&each.over, &each.predicate].into_iter().chain(&each.item).collect(),
        }
    }
}
