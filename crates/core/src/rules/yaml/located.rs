//! Values of documents of any shape, each with its place.

use super::{Kind, Node};
use crate::rules::error::Position;

/// A value of a document and its place.
#[derive(Clone, Copy, Debug)]
pub struct Located<'d>(pub(in crate::rules) &'d Node);

impl<'d> Located<'d> {
    /// Place of the value.
    pub fn position(self) -> Position {
        self.0.position
    }

    /// The text of a scalar as it is written; none of a map or a list.
    pub fn text(self) -> Option<&'d str> {
        match &self.0.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => Some(&scalar.text),
            _ => None,
        }
    }

    /// Whether this is a list.
    pub fn is_list(self) -> bool {
        self.0.is_list()
    }

    /// The items of a list; none of anything else.
    pub fn items(self) -> impl Iterator<Item = Self> {
        let items = if let Kind::List(items) = &self.0.kind { &items[..] } else { &[] };
        items.iter().map(|item| Self(item))
    }

    /// The pairs of a map with a value, each with the place of its key; none of anything else.
    pub fn pairs(self) -> impl Iterator<Item = (&'d str, Position, Self)> {
        let pairs = if let Kind::Map(pairs) = &self.0.kind { &pairs[..] } else { &[] };
        let pairs = pairs.iter().filter(|pair| !pair.value.is_null());
        pairs.map(|pair| (&*pair.key, pair.key_position, Self(&pair.value)))
    }

    /// The value of a key of a map.
    pub fn get(self, key: &str) -> Option<Self> {
        self.pairs().find(|(own, ..)| *own == key).map(|(.., value)| value)
    }

    /// The value as JSON.
    pub fn json(self) -> serde_json::Value {
        self.0.json()
    }
}
