//! Expressions of rules, evaluated for the descriptors of a request.

use crate::limit::{Descriptor, Entry};
use tidegate_cel::{Descriptors, Expression, LimitNames};

/// Whether the condition of a limit holds for a request with these descriptors.
#[cold]
pub(super) fn holds(when: &Expression, name: &str, descriptors: &[Descriptor<'_>]) -> bool {
    when.holds(&Requested(descriptors), names_of(name))
}

/// The pairs of texts that an expression makes of a request with these descriptors.
pub fn texts_of(expression: &Expression, descriptors: &[Descriptor<'_>]) -> Vec<(String, String)> {
    let pairs = expression.texts(&Requested(descriptors), LimitNames::default());
    pairs.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect()
}

/// A limit of this name, or without one if it is empty. Limits of rules for descriptors have no ids.
pub(super) fn names_of(name: &str) -> LimitNames<'_> {
    LimitNames { name: Some(name).filter(|name| !name.is_empty()), id: None }
}

/// The descriptors of a request.
pub(super) struct Requested<'d, 't>(pub(super) &'d [Descriptor<'t>]);

impl<'d, 't: 'd> Descriptors<'d> for Requested<'d, 't> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn entries(&self, descriptor: usize) -> usize {
        self.0[descriptor].entries.len()
    }

    #[inline]
    fn entry(&self, descriptor: usize, entry: usize) -> (&'d str, &'d str) {
        let Entry { key, value } = self.0[descriptor].entries[entry];
        (key, value)
    }
}
