//! The names of buckets. Each is stored once for all streams that report it.

use super::bucket_name::BucketName;
use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table::Entry};
use std::hash::BuildHasher as _;

/// Number of a name. It is valid while a stream has the name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct NameId(u32);

/// Names by number, each with the number of streams that have it. Numbers are reused, so that they stay low.
#[derive(Default)]
pub(super) struct Names {
    names: Vec<Option<(BucketName, u32)>>,
    ids: HashTable<NameId>,
    free: Vec<NameId>,
    hasher: RandomState,
}

impl Names {
    /// The number of a name, for another stream.
    pub(super) fn take(&mut self, name: BucketName) -> NameId {
        let Self { names, ids, free, hasher } = self;
        let hash_of =
            |id: &NameId| names[id.0 as usize].as_ref().map_or(0, |(name, _)| hasher.hash_one(name));
        let is_it = |id: &NameId| names[id.0 as usize].as_ref().is_some_and(|(known, _)| *known == name);
        match ids.entry(hasher.hash_one(&name), is_it, hash_of) {
            Entry::Occupied(known) => {
                let id = *known.get();
                if let Some((_, streams)) = &mut names[id.0 as usize] {
                    *streams += 1;
                }
                id
            }
            Entry::Vacant(new) => {
                let id = free.pop().unwrap_or(NameId(names.len() as u32));
                new.insert(id);
                if id.0 as usize == names.len() {
                    names.push(None);
                }
                names[id.0 as usize] = Some((name, 1));
                id
            }
        }
    }

    /// A name that a stream has.
    pub(super) fn get(&self, id: NameId) -> Option<&BucketName> {
        self.names.get(id.0 as usize)?.as_ref().map(|(name, _)| name)
    }

    /// Notes that a stream no longer has a name.
    pub(super) fn give_back(&mut self, id: NameId) {
        let Some(known) = self.names.get_mut(id.0 as usize) else { return };
        let Some((name, streams)) = known else { return };
        *streams -= 1;
        if *streams == 0 {
            let hash = self.hasher.hash_one(&*name);
            if let Ok(entry) = self.ids.find_entry(hash, |other| *other == id) {
                entry.remove();
            }
            *known = None;
            self.free.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_as_long_as_a_stream_has_it() {
        let (mut names, name) = (Names::default(), |value| BucketName::new([("key", value)]));
        let of_two = [names.take(name("a")), names.take(name("a"))];
        let other = names.take(name("b"));
        assert!(of_two[0] == of_two[1] && other != of_two[0]);
        names.give_back(of_two[0]);
        names.give_back(other);
        assert_eq!((names.get(of_two[1]), names.get(other)), (Some(&name("a")), None));
        assert_eq!(names.take(name("c")), other, "numbers are low");
        assert_eq!(names.get(other), Some(&name("c")));
        assert_eq!(names.take(name("a")), of_two[0]);
        for id in [of_two[0], of_two[0], other] {
            names.give_back(id);
        }
        assert!(names.ids.is_empty() && names.names.iter().all(Option::is_none));
    }
}
