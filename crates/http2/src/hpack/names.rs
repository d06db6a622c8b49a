//! Names of entries. Entries that were added with the name of another entry share it.
//!
//! Invariant: a name is stored while an entry uses it, and its place is used again after that.

use super::field_class::NameClass;
use crate::steps;

/// A name: its position in the static table, or its place in [`Names`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NameRef {
    Static(u8),
    Stored(u32),
}

/// Capacity that an empty place keeps, so that clients that send the same names cause no allocations.
const KEPT_MAX: usize = 64;

#[derive(Default)]
pub(super) struct Names {
    places: Vec<Name>,
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
        let place = self.unused.pop().unwrap_or_else(|| {
            self.places.push(Name { text: Vec::new(), class, uses: 0 });
            self.places.len() as u32 - 1
        });
        let name = &mut self.places[place as usize];
        name.text.extend_from_slice(text);
        (name.class, name.uses) = (class, 1);
        NameRef::Stored(place)
    }

    /// Adds a use of a name.
    #[inline]
    pub(super) fn share(&mut self, name: NameRef) {
        if let NameRef::Stored(place) = name {
            self.places[place as usize].uses += 1;
        }
    }

    /// Ends a use of a name.
    #[inline]
    pub(super) fn release(&mut self, name: NameRef) {
        let NameRef::Stored(place) = name else { return };
        let name = &mut self.places[place as usize];
        name.uses -= 1;
        if name.uses == 0 {
            name.text.clear();
            name.text.shrink_to(KEPT_MAX);
            self.unused.push(place);
        }
    }

    /// Text and class of a stored name. The text is empty if its place is unused.
    #[inline]
    pub(super) fn get(&self, place: u32) -> (&[u8], NameClass) {
        self.places.get(place as usize).map_or((&[], NameClass::Invalid), |name| (&name.text, name.class))
    }

    /// Drops all places if they are all unused.
    pub(super) fn shrink(&mut self) {
        if self.unused.len() == self.places.len() {
            *self = Self::default();
        }
    }
}
