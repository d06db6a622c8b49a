//! Literal fields that a client sends again at the same positions of its blocks. Clients never index some fields (nghttp2: paths), and add
//! fields again that the dynamic table has evicted. These fields are compared instead of decoded.

use super::{
    field_class::{Class, NameClass},
    names::NameRef,
};
use crate::steps;

/// Number of positions.
const POSITIONS: usize = 16;

/// The longest encoded field.
const CODED_MAX: usize = 128;

/// For each position, the last literal field there.
#[derive(Default)]
pub(super) struct Literals {
    fields: Vec<Literal>,
}

/// A literal field whose name is in no dynamic table.
#[derive(Default)]
pub(super) struct Literal {
    /// Its encoded form; empty if there is none.
    coded: Vec<u8>,
    /// Its name, unless the name is in the static table, and its value.
    text: Vec<u8>,
    name_end: usize,
    name: Option<NameRef>,
    classes: Option<(NameClass, Class)>,
}

impl Literals {
    /// The field at a position, if `block` starts with its encoded form.
    #[inline]
    pub(super) fn find(&self, position: usize, block: &[u8]) -> Option<&Literal> {
        let literal = self.fields.get(position).filter(|literal| !literal.coded.is_empty())?;
        if !block.starts_with(&literal.coded) {
            return None;
        }
        steps::add(steps::of_bytes(literal.coded.len()));
        Some(literal)
    }

    /// Keeps the field at a position: its encoded form, its name if that is in the static table, and its text.
    pub(super) fn keep(
        &mut self,
        position: usize,
        coded: &[u8],
        name: Option<NameRef>,
        (name_text, value): (&[u8], &[u8]),
        classes: (NameClass, Class),
    ) {
        if position >= POSITIONS || coded.len() > CODED_MAX {
            return;
        }
        if self.fields.len() <= position {
            self.fields.resize_with(position + 1, Literal::default);
        }
        let literal = &mut self.fields[position];
        // Copied.
        steps::add(2 * steps::of_bytes(coded.len()));
        literal.coded.clear();
        literal.coded.extend_from_slice(coded);
        literal.text.clear();
        literal.text.extend_from_slice(name_text);
        literal.text.extend_from_slice(value);
        (literal.name, literal.name_end, literal.classes) = (name, name_text.len(), Some(classes));
    }
}

impl Literal {
    #[inline]
    pub(super) fn coded_len(&self) -> usize {
        self.coded.len()
    }

    /// Its name, if that is in the static table.
    #[inline]
    pub(super) fn name(&self) -> Option<NameRef> {
        self.name
    }

    /// Name, unless that is in the static table, and value.
    #[inline]
    pub(super) fn texts(&self) -> (&[u8], &[u8]) {
        self.text.split_at(self.name_end)
    }

    /// The classes of its name, and of the field.
    #[inline]
    pub(super) fn classes(&self) -> (NameClass, Class) {
        self.classes.unwrap_or((NameClass::Invalid, Class::Invalid))
    }
}
