//! The series of limits in metrics: a bounded number of entries, given to names of limits and kept across reloads.
//!
//! Invariants: a name has the same [`SeriesId`] for as long as a rule set that has it is alive; two names that are alive
//! never share a number, except names beyond the bound, which share [`SeriesId::OTHER`].

use super::limit_name::LimitName;
use crate::limit::SeriesId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

/// Names with a series of their own, unless configured otherwise.
pub const SERIES_MAX_DEFAULT: usize = 10_000;

/// References to a name that the table itself holds: its entry and the key of `ids`.
const OWN_REFERENCES: usize = 2;

/// A limit's series in use: its number is not reused while this is alive.
#[derive(Clone, Debug)]
pub(super) struct UsedSeries {
    pub(super) id: SeriesId,
    /// None for [`SeriesId::OTHER`]. Keeps the number: the table counts the references.
    _name: Option<Arc<LimitName>>,
}

/// The entries, by number. The first is that of [`SeriesId::OTHER`].
#[derive(Debug, Default)]
pub(super) struct SeriesTable {
    entries: Vec<Entry>,
    ids: HashMap<Arc<LimitName>, SeriesId, FixedState>,
    free: Vec<u32>,
}

#[derive(Debug, Default)]
struct Entry {
    name: Option<Arc<LimitName>>,
    use_number: u32,
}

impl SeriesTable {
    /// The series of a name, in use until the returned value is dropped.
    pub(super) fn register(&mut self, name: &LimitName, max: usize) -> UsedSeries {
        if let Some((name, &id)) = self.ids.get_key_value(name) {
            return UsedSeries { id, _name: Some(Arc::clone(name)) };
        }
        let Some(number) = self.free_number(max) else {
            return UsedSeries { id: SeriesId::OTHER, _name: None };
        };
        let name = Arc::new(name.clone());
        let Entry { name: place, use_number } = &mut self.entries[number as usize];
        *place = Some(Arc::clone(&name));
        let id = SeriesId { number, use_number: *use_number };
        self.ids.insert(Arc::clone(&name), id);
        UsedSeries { id, _name: Some(name) }
    }

    fn free_number(&mut self, max: usize) -> Option<u32> {
        if self.entries.is_empty() {
            self.entries.push(Entry::default());
        }
        if self.entries.len() <= max {
            self.entries.push(Entry::default());
            return u32::try_from(self.entries.len() - 1).ok();
        }
        self.free.pop()
    }

    /// Frees the entries of names that no rule set has any more, if entries are scarce. Called before a rule set is built.
    pub(super) fn free_unused(&mut self, max: usize) {
        if self.entries.len() <= max {
            return;
        }
        for (number, entry) in (0..).zip(&mut self.entries) {
            if entry.name.as_ref().is_some_and(|name| Arc::strong_count(name) <= OWN_REFERENCES)
                && let Some(name) = entry.name.take()
            {
                self.ids.remove(&name);
                entry.use_number = entry.use_number.wrapping_add(1);
                self.free.push(number);
            }
        }
    }

    /// Whether a name has this series.
    pub(super) fn has(&self, id: SeriesId) -> bool {
        let entry = self.entries.get(id.number as usize);
        entry.is_some_and(|entry| entry.name.is_some() && entry.use_number == id.use_number)
    }

    /// Every series that has a name, by number.
    pub(super) fn named(&self) -> Vec<(SeriesId, Arc<LimitName>)> {
        let named = |(number, entry): (u32, &Entry)| {
            let name = Arc::clone(entry.name.as_ref()?);
            Some((SeriesId { number, use_number: entry.use_number }, name))
        };
        (0..).zip(&self.entries).filter_map(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(limit: &str) -> LimitName {
        LimitName { domain: "d".into(), limit: limit.into() }
    }

    #[test]
    fn names_beyond_the_bound_share_a_series_until_others_are_gone() {
        let mut table = SeriesTable::default();
        let (a, b) = (table.register(&name("a"), 2), table.register(&name("b"), 2));
        assert_ne!(a.id, b.id);
        assert_eq!(table.register(&name("c"), 2).id, SeriesId::OTHER);
        assert_eq!(table.register(&name("a"), 2).id, a.id, "a name keeps its series");
        table.free_unused(2);
        assert_eq!(table.register(&name("c"), 2).id, SeriesId::OTHER, "both are in use");
        drop(b);
        table.free_unused(2);
        let c = table.register(&name("c"), 2);
        assert_eq!(c.id, SeriesId { number: 2, use_number: 1 }, "the number counts for another name now");
        let former = SeriesId { number: 2, use_number: 0 };
        assert_eq!([a.id, c.id, former, SeriesId::OTHER].map(|id| table.has(id)), [true, true, false, false]);
        let names: Vec<_> =
            table.named().into_iter().map(|(id, name)| (id, name.limit.to_string())).collect();
        assert_eq!(names, [(a.id, "a".to_owned()), (c.id, "c".to_owned())]);
    }

    #[test]
    fn no_name_has_a_series_of_its_own_where_none_is_allowed() {
        assert_eq!(SeriesTable::default().register(&name("a"), 0).id, SeriesId::OTHER);
    }
}
