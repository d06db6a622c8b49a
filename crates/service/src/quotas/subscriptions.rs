//! The buckets that one stream reports, by name and by number.

use super::{
    bucket_name::BucketName,
    names::{NameId, Names},
};
use foldhash::fast::RandomState;
use hashbrown::HashTable;
use std::{cell::RefCell, hash::BuildHasher as _, rc::Rc};

/// The kind of a client's subscription of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Subscription {
    /// A share of a counter. `is_current`: it is the counter under the rules in force.
    Counter { is_current: bool },
    /// All or nothing. `idle` counts reports without a request since the last with any.
    Blanket { admits: bool, idle: u8 },
}

/// The buckets of a stream. Numbers stay low: those of removed buckets are used again.
pub(super) struct Subscriptions {
    names: Rc<RefCell<Names>>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    buckets: Vec<Option<(NameId, Subscription)>>,
    free: Vec<u32>,
    /// Bytes of their names.
    bytes: usize,
}

impl Subscriptions {
    /// No buckets. Names are shared with other streams.
    pub(super) fn new(names: Rc<RefCell<Names>>) -> Self {
        let (by_name, hasher) = (HashTable::new(), RandomState::default());
        Self { names, by_name, hasher, buckets: Vec::new(), free: Vec::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn find(&self, name: &BucketName) -> Option<u32> {
        let names = self.names.borrow();
        let is_named = |place: &u32| {
            let bucket = self.buckets[*place as usize];
            bucket.is_some_and(|(id, _)| names.get(id) == Some(name))
        };
        self.by_name.find(self.hasher.hash_one(name), is_named).copied()
    }

    pub(super) fn name(&self, place: u32) -> Option<BucketName> {
        let (id, _) = (*self.buckets.get(place as usize)?)?;
        self.names.borrow().get(id).cloned()
    }

    pub(super) fn get(&self, place: u32) -> Option<Subscription> {
        let (_, subscription) = (*self.buckets.get(place as usize)?)?;
        Some(subscription)
    }

    pub(super) fn set(&mut self, place: u32, subscription: Subscription) {
        if let Some(Some((_, known))) = self.buckets.get_mut(place as usize) {
            *known = subscription;
        }
    }

    /// The number of the next new bucket.
    pub(super) fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.buckets.len() as u32)
    }

    /// Adds a bucket, which must be new. Returns its number.
    pub(super) fn add(&mut self, name: BucketName, subscription: Subscription) -> u32 {
        let (place, hash) = (self.next(), self.hasher.hash_one(&name));
        self.bytes += name.bytes();
        let bucket = Some((self.names.borrow_mut().take(name), subscription));
        if self.free.pop().is_some() {
            self.buckets[place as usize] = bucket;
        } else {
            if self.buckets.len() == self.buckets.capacity() {
                // Little room for more buckets, as there are many streams.
                self.buckets.reserve_exact(self.buckets.len() / 8 + 1);
            }
            self.buckets.push(bucket);
        }
        let Self { names, by_name, hasher, buckets, .. } = self;
        let names = names.borrow();
        let hash_of = |place: &u32| {
            let name = buckets[*place as usize].and_then(|(id, _)| names.get(id));
            name.map_or(0, |name| hasher.hash_one(name))
        };
        by_name.insert_unique(hash, place, hash_of);
        place
    }

    /// Removes a bucket. Returns whether it was there.
    pub(super) fn remove(&mut self, place: u32) -> bool {
        let Some((id, _)) = self.buckets.get_mut(place as usize).and_then(Option::take) else {
            return false;
        };
        let mut names = self.names.borrow_mut();
        if let Some(name) = names.get(id) {
            let hash = self.hasher.hash_one(name);
            if let Ok(entry) = self.by_name.find_entry(hash, |known| *known == place) {
                entry.remove();
            }
            self.bytes -= name.bytes();
        }
        names.give_back(id);
        self.free.push(place);
        true
    }

    /// The numbers of all buckets.
    pub(super) fn places(&self) -> Vec<u32> {
        self.by_name.iter().copied().collect()
    }
}

impl Drop for Subscriptions {
    fn drop(&mut self) {
        let mut names = self.names.borrow_mut();
        self.buckets.iter().flatten().for_each(|(id, _)| names.give_back(*id));
    }
}
