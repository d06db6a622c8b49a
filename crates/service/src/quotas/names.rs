//! The names of buckets, each once for all streams that report it.

use super::bucket_name::BucketName;
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// Names, each with the number of streams that have it.
#[derive(Default)]
pub(super) struct Names(HashMap<BucketName, u32, RandomState>);

impl Names {
    /// A name, for one more stream: the one that other streams have.
    pub(super) fn take(&mut self, name: BucketName) -> BucketName {
        let entry = self.0.entry(name);
        let name = entry.key().clone();
        *entry.or_insert(0) += 1;
        name
    }

    /// Notes that a stream has a name no more.
    pub(super) fn give_back(&mut self, name: &BucketName) {
        let Some(streams) = self.0.get_mut(name) else { return };
        *streams -= 1;
        if *streams == 0 {
            self.0.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_there_once_and_as_long_as_a_stream_has_it() {
        let (mut names, name) = (Names::default(), |value| BucketName::new([("key", value)]));
        let [first, second, other] = ["a", "a", "b"].map(|value| names.take(name(value)));
        assert!(first.is_same(&second) && !first.is_same(&other));
        names.give_back(&first);
        names.give_back(&other);
        assert!(names.take(name("a")).is_same(&first) && names.0.len() == 1);
        [first.clone(), first].iter().for_each(|name| names.give_back(name));
        assert!(names.0.is_empty());
    }
}
