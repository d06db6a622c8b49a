//! The names of buckets, each once for all streams that report it.

use super::bucket::Bucket;
use foldhash::fast::RandomState;
use hashbrown::{HashTable, hash_table::Entry};
use std::hash::BuildHasher as _;

/// Names, each with the number of streams that have it.
#[derive(Default)]
pub(super) struct Names {
    names: HashTable<(Bucket, u32)>,
    hasher: RandomState,
}

impl Names {
    /// A name for one more stream.
    pub(super) fn take(&mut self, name: Bucket) -> Bucket {
        let Self { names, hasher } = self;
        let hash = hasher.hash_one(&name);
        let entry = names.entry(hash, |(known, _)| *known == name, |(known, _)| hasher.hash_one(known));
        match entry {
            Entry::Occupied(mut known) => {
                let (name, streams) = known.get_mut();
                *streams += 1;
                name.clone()
            }
            Entry::Vacant(new) => {
                new.insert((name.clone(), 1));
                name
            }
        }
    }

    /// Notes that a stream has a name no more.
    pub(super) fn give_back(&mut self, name: &Bucket) {
        let hash = self.hasher.hash_one(name);
        if let Ok(mut known) = self.names.find_entry(hash, |(known, _)| known == name) {
            known.get_mut().1 -= 1;
            if known.get().1 == 0 {
                known.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_as_long_as_a_stream_has_it() {
        let (mut names, name) = (Names::default(), |value| Bucket::new([("key", value)]));
        let of_two = [names.take(name("a")), names.take(name("a"))];
        names.take(name("b"));
        assert_eq!(names.names.len(), 2);
        names.give_back(&of_two[0]);
        names.give_back(&name("b"));
        assert_eq!(names.names.iter().collect::<Vec<_>>(), [&(name("a"), 1)]);
        names.give_back(&of_two[1]);
        names.give_back(&name("never taken"));
        assert!(names.names.is_empty());
    }
}
