//! The buckets of a server, by number and by the key of their counter. Lists the buckets that are due.
//!
//! Invariant: a bucket with [`Bucket::is_dirty`] is once in the list of buckets to divide.

use super::{
    bucket::Bucket,
    settings::NEVER,
    streams::{BucketNumber, Membership},
};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::mem;
use tidegate_core::{limit::Timestamp, prefetch::prefetch_element, store::Key};

/// The buckets.
#[derive(Default)]
pub(super) struct Buckets {
    numbers: HashMap<Key, BucketNumber, RandomState>,
    entries: Vec<Entry>,
    /// Numbers that no bucket has.
    unused: Vec<BucketNumber>,
    /// Buckets to divide.
    dirty: Vec<BucketNumber>,
}

/// The bucket of a number.
struct Entry {
    bucket: Option<Box<Bucket>>,
    /// The time by which it is to be looked at.
    check: Timestamp,
    /// The time by which its part in the store is to be requested.
    request: Timestamp,
}

impl Buckets {
    pub(super) fn number(&self, key: Key) -> Option<BucketNumber> {
        self.numbers.get(&key).copied()
    }

    pub(super) fn get(&self, number: BucketNumber) -> Option<&Bucket> {
        self.entries.get(number as usize)?.bucket.as_deref()
    }

    /// The buckets with this number and higher, in order; none for numbers without a bucket.
    pub(super) fn from(&self, number: usize) -> impl Iterator<Item = Option<&Bucket>> {
        self.entries.iter().skip(number).map(|entry| entry.bucket.as_deref())
    }

    /// Changes the bucket of this number, if there is one.
    pub(super) fn change<R>(
        &mut self,
        number: BucketNumber,
        change: impl FnOnce(&mut Bucket) -> R,
    ) -> Option<R> {
        let bucket = self.entries.get_mut(number as usize)?.bucket.as_mut()?;
        let was_dirty = bucket.is_dirty;
        let changed = change(bucket);
        if bucket.is_dirty && !was_dirty {
            self.dirty.push(number);
        }
        Some(changed)
    }

    /// Changes all buckets.
    pub(super) fn change_all(&mut self, mut change: impl FnMut(&mut Bucket)) {
        (0..self.entries.len()).for_each(|number| {
            self.change(number as BucketNumber, &mut change);
        });
    }

    /// Adds a bucket, to be divided.
    pub(super) fn add(&mut self, bucket: Box<Bucket>, now: Timestamp) -> BucketNumber {
        let (key, request) = (bucket.key, if bucket.part.is_some() { now } else { NEVER });
        let entry = Entry { bucket: Some(bucket), check: now, request };
        let number = match self.unused.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as BucketNumber - 1
            }
        };
        self.numbers.insert(key, number);
        self.dirty.push(number);
        number
    }

    /// Removes a bucket that is not in the list of buckets to divide.
    pub(super) fn remove(&mut self, number: BucketNumber) -> Option<Box<Bucket>> {
        let entry = &mut self.entries[number as usize];
        let bucket = entry.bucket.take()?;
        entry.request = NEVER;
        self.numbers.remove(&bucket.key);
        self.unused.push(number);
        Some(bucket)
    }

    /// Adds buckets that are to be looked at by now to the list of buckets to divide.
    pub(super) fn look(&mut self, now: Timestamp) {
        for (number, entry) in (0..).zip(&mut self.entries) {
            if let (true, Some(bucket)) = (entry.check <= now, &mut entry.bucket)
                && !mem::replace(&mut bucket.is_dirty, true)
            {
                self.dirty.push(number);
            }
        }
    }

    /// Takes the buckets to divide for which `is_divisible` holds.
    pub(super) fn take_dirty(&mut self, is_divisible: impl Fn(&Bucket) -> bool) -> Vec<BucketNumber> {
        let all = mem::take(&mut self.dirty);
        let (due, later) = all.into_iter().partition(|number| self.get(*number).is_none_or(&is_divisible));
        self.dirty = later;
        due
    }

    /// Puts buckets back that were not divided.
    pub(super) fn divide_later(&mut self, numbers: &[BucketNumber]) {
        self.dirty.extend_from_slice(numbers);
    }

    /// Notes the time by which a bucket is to be looked at.
    pub(super) fn check_at(&mut self, number: BucketNumber, check: Timestamp) {
        self.entries[number as usize].check = check;
    }

    /// Notes the time by which a bucket's part is to be requested.
    pub(super) fn request_at(&mut self, number: BucketNumber, request: Timestamp) {
        self.entries[number as usize].request = request;
    }

    /// The numbers of the buckets whose part is to be requested by now.
    pub(super) fn due_requests(&self, now: Timestamp) -> Vec<BucketNumber> {
        let due = (0..).zip(&self.entries).filter(|(_, entry)| entry.request <= now);
        due.map(|(number, _)| number).collect()
    }

    /// Prefetches clients of buckets.
    pub(super) fn prefetch(&self, memberships: impl Iterator<Item = Membership> + Clone) {
        let clients = memberships
            .filter_map(|Membership { bucket, index, .. }| Some((self.get(bucket)?, index as usize)));
        clients.clone().for_each(|(bucket, _)| bucket.prefetch());
        for (bucket, index) in clients {
            // A client may span two cache lines; the next client begins in the second.
            prefetch_element(&bucket.members, index);
            prefetch_element(&bucket.members, index + 1);
        }
    }
}
