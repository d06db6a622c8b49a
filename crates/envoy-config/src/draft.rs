//! Descriptors as the actions of an entry make them: their values are bytes until each has its text.

use crate::{
    actions::{Action, Source},
    policy::{HitsAddend, Policy},
};
use smallvec::SmallVec;
use std::borrow::Cow;
use tidegate_core::limit::{Descriptor, Entry, Hits, RequestLimit, client_text};

/// An entry of a descriptor, as bytes.
pub(crate) type DraftEntry<'s> = (&'s str, Cow<'s, [u8]>);

/// The texts of a descriptor's values.
pub type Texts<'s> = SmallVec<[Cow<'s, str>; 3]>;

/// A descriptor as actions have made it.
pub struct Draft<'s> {
    entries: SmallVec<[DraftEntry<'s>; 3]>,
    limit: Option<RequestLimit>,
    hits: Option<u64>,
    is_negative: bool,
    /// Whether `x-ratelimit-*` show the limit of this descriptor; none to follow the filter.
    pub x_ratelimit: Option<bool>,
}

/// The entries of a descriptor; the error is the action that prevents it.
pub(crate) fn entries<'s>(
    policy: &'s Policy,
    source: &Source<'s>,
) -> Result<SmallVec<[DraftEntry<'s>; 3]>, &'s Action> {
    let mut entries = SmallVec::new();
    for action in &policy.actions {
        match action.value(source) {
            Some(value) => entries.push((&*action.key, value)),
            None if action.skip_if_absent => {}
            None => return Err(action),
        }
    }
    Ok(entries)
}

/// The descriptor of an entry; none if an action or the hits prevent it.
pub fn draft<'s>(policy: &'s Policy, source: &Source<'s>) -> Option<Draft<'s>> {
    let entries = entries(policy, source).ok()?;
    let hits = match &policy.hits {
        HitsAddend::Unset => None,
        HitsAddend::Number(number) => Some(*number),
        HitsAddend::Format(format) => Some(format.hits(source.stream)?),
    };
    let Policy { limit, is_negative, x_ratelimit, .. } = *policy;
    Some(Draft { entries, limit, hits, is_negative, x_ratelimit })
}

impl<'s> Draft<'s> {
    /// Bytes of its keys and values, and `entry_bytes` more for each entry.
    pub fn bytes(&self, entry_bytes: usize) -> usize {
        self.entries.iter().map(|(key, value)| key.len() + value.len() + entry_bytes).sum()
    }

    /// The texts of its values; `bytes_max` is the bound of a text by the length of the value.
    pub fn texts(&self, bytes_max: impl Fn(usize) -> usize) -> Texts<'_> {
        self.entries.iter().map(|(_, value)| client_text(value, bytes_max(value.len()))).collect()
    }

    /// The descriptor with these texts.
    pub fn descriptor<'d>(&'d self, texts: &'d Texts<'_>, hits_of_request: u32) -> Descriptor<'d> {
        let entry = |((key, _), value): (&DraftEntry<'s>, &'d Cow<'_, str>)| Entry { key, value };
        Descriptor {
            entries: self.entries.iter().zip(texts).map(entry).collect(),
            limit: self.limit,
            hits: Hits::new(self.hits, hits_of_request, self.is_negative),
        }
    }
}
