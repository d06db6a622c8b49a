//! Descriptors before their texts are checked: of bytes, as the actions of an entry have made them.

use crate::{
    actions::{Action, Added, Source},
    policy::{HitsAddend, Policy},
};
use smallvec::SmallVec;
use std::borrow::Cow;
use tidegate_core::limit::{Descriptor, Entry, Hits, Override};

/// An entry of a descriptor, as bytes.
pub(crate) type DraftEntry<'s> = (&'s str, Cow<'s, [u8]>);

/// A descriptor as actions have made it.
pub struct Draft<'s> {
    entries: SmallVec<[DraftEntry<'s>; 3]>,
    limit: Option<Override>,
    hits: Option<u64>,
    is_negative: bool,
    /// Whether `x-ratelimit-*` have the limit of this descriptor; none to follow the filter.
    pub x_ratelimit: Option<bool>,
}

/// The entries of a descriptor; the action that keeps it from being made.
pub(crate) fn entries<'s>(
    policy: &'s Policy,
    source: &Source<'s>,
) -> Result<SmallVec<[DraftEntry<'s>; 3]>, &'s Action> {
    let mut entries = SmallVec::new();
    for action in &policy.actions {
        match action.added(source) {
            Added::Entry(key, value) => entries.push((key, value)),
            Added::Nothing => {}
            Added::NoDescriptor => return Err(action),
        }
    }
    Ok(entries)
}

/// The descriptor of an entry; none if an action or the hits keep it from being made.
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

impl Draft<'_> {
    /// The descriptor; none if a text is not UTF-8, as protobuf has to have it.
    pub fn descriptor(&self, hits_of_request: u32) -> Option<Descriptor<'_>> {
        let entries = self.entries.iter();
        let entries = entries.map(|(key, value)| Some(Entry { key, value: str::from_utf8(value).ok()? }));
        Some(Descriptor {
            entries: entries.collect::<Option<_>>()?,
            limit: self.limit,
            hits: Hits::new(self.hits, hits_of_request, self.is_negative),
        })
    }
}
