//! Names of entries. Entries that were added with the name of another entry share it.
//!
//! Invariant: a name is stored while an entry uses it, and its slot is used again after that.

use super::field_class::NameClass;
use crate::steps;

/// A name: its position in the static table, or its slot in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameRef {
    Static(u8),
    Stored(u32),
}

/// Capacity that an empty slot keeps, so that clients that send the same names cause no allocations.
const KEPT_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Names {
    slots: Vec<Name>,
    unused: Vec<u32>,
}

struct Name {
    text: Vec<u8>,
    class: NameClass,
    /// Number of entries with this name.
    uses: u32,
}

impl Names {
    /// Stores a name, for one use.
    pub(super) fn add(&mut self, text: &[u8], class: NameClass) -> NameRef {
        steps::add(steps::of_bytes(text.len()));
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.slots.push(Name { text: Vec::new(), class, uses: 0 });
            self.slots.len() as u32 - 1
        });
        let name = &mut self.slots[slot as usize];
        name.text.extend_from_slice(text);
        (name.class, name.uses) = (class, 1);
        NameRef::Stored(slot)
    }

    /// Adds a use of a name.
    #[inline]
    pub(super) fn share(&mut self, name: NameRef) {
        if let NameRef::Stored(slot) = name {
            self.slots[slot as usize].uses += 1;
        }
    }

    /// Ends a use of a name.
    #[inline]
    pub(super) fn release(&mut self, name: NameRef) {
        let NameRef::Stored(slot) = name else { return };
        let name = &mut self.slots[slot as usize];
        name.uses -= 1;
        if name.uses == 0 {
            name.text.clear();
            name.text.shrink_to(KEPT_MAX);
            self.unused.push(slot);
        }
    }

    /// Text and class of a stored name. The text is empty if its slot is unused.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> (&[u8], NameClass) {
        self.slots.get(slot as usize).map_or((&[], NameClass::Invalid), |name| (&name.text, name.class))
    }

    /// Drops all slots if they are all unused.
    pub(super) fn shrink(&mut self) {
        if self.unused.len() == self.slots.len() {
            *self = Self::default();
        }
    }
}
