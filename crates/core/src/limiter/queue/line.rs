//! The requests with hits in one leaky bucket, in the order of arrival.
//!
//! Hits given back before a request advance it and all behind it. They are noted once, in a Fenwick tree over the members,
//! and a member's position is computed when it is read.
//!
//! Invariant: release times ascend, because all members were queued under one limit.

use crate::{
    algorithm::{LeakyBucket, Position},
    limit::{LimitId, Timestamp},
};
use smallvec::SmallVec;

/// Numbers of requests that are to be polled.
type Numbers = SmallVec<[u64; 4]>;

/// A request in a line.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// In the order of arrival.
    pub(super) number: u64,
    /// Its position on arrival.
    pub(super) position: Position,
    /// Whether it waits for this bucket, and not only has hits in it.
    pub(super) waits: bool,
    /// Whether it waits for other buckets too, so that its timer may be for one of these.
    pub(super) waits_in_several: bool,
}

/// A member, present or removed.
#[derive(Clone, Copy)]
struct Entry {
    member: Member,
    is_removed: bool,
    /// Sum of `advances` up to here on arrival. Sums wrap; differences of them are exact.
    sum_on_arrival: u64,
    /// Hits by which it had advanced when its request was polled last.
    seen: u64,
}

/// See the module.
pub(super) struct BucketLine {
    limit: LimitId,
    bucket: LeakyBucket,
    entries: Vec<Entry>,
    /// For each entry, the hits by which it and all behind it have advanced.
    advances: Fenwick,
    /// Entries that are not removed.
    present: usize,
    /// Entries before this one are removed, do not wait, or have reached their release time.
    head: usize,
}

/// A line is compacted when more than half of its entries are removed, and more than these.
const REMOVED_MIN: usize = 32;

impl BucketLine {
    pub(super) fn new(limit: LimitId, bucket: LeakyBucket) -> Self {
        Self { limit, bucket, entries: Vec::new(), advances: Fenwick::default(), present: 0, head: 0 }
    }

    /// The limit under which its members were queued.
    pub(super) fn limit(&self) -> LimitId {
        self.limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present == 0
    }

    /// Appends a member, which arrived after all others.
    pub(super) fn push(&mut self, member: Member) {
        self.advances.push_zero();
        let sum_on_arrival = self.advances.sum_to(self.entries.len());
        self.entries.push(Entry { member, is_removed: false, sum_on_arrival, seen: 0 });
        self.present += 1;
    }

    pub(super) fn has(&self, number: u64) -> bool {
        self.index(number).is_some()
    }

    /// The position of a member as it is now.
    pub(super) fn position_of(&self, number: u64) -> Option<Position> {
        Some(self.position(self.index(number)?))
    }

    /// Time at which this bucket releases a member.
    pub(super) fn release_at(&self, number: u64) -> Option<Timestamp> {
        Some(self.bucket.release_at(self.position(self.index(number)?)))
    }

    /// As [`Self::release_at`]; notes that the member has seen it.
    pub(super) fn see(&mut self, number: u64) -> Option<Timestamp> {
        let index = self.index(number)?;
        self.entries[index].seen = self.advance_of(index);
        Some(self.bucket.release_at(self.position(index)))
    }

    /// The first member that waits and had not reached its release time at the last [`Self::pass`].
    pub(super) fn head(&mut self) -> Option<u64> {
        while let Some(entry) = self.entries.get(self.head) {
            if !entry.is_removed && entry.member.waits {
                return Some(entry.member.number);
            }
            steps::count();
            self.head += 1;
        }
        None
    }

    /// Moves the head past the members that have reached their release time. Has them and the new head polled, unless they have seen that
    /// time.
    pub(super) fn pass(&mut self, now: Timestamp, poll: &mut Numbers) {
        while self.head().is_some() {
            steps::count();
            self.poll_head(poll);
            if self.bucket.release_at(self.position(self.head)) > now {
                return;
            }
            self.head += 1;
        }
    }

    /// Removes a member and returns its position; has the head polled if it changes.
    pub(super) fn remove(&mut self, number: u64, poll: &mut Numbers) -> Option<Position> {
        let index = self.index(number)?;
        let position = self.position(index);
        let was_head = self.head() == Some(number);
        self.entries[index].is_removed = true;
        self.present -= 1;
        if was_head {
            self.poll_head(poll);
        }
        if self.entries.len() > (2 * self.present).max(self.present + REMOVED_MIN) {
            self.compact();
        }
        Some(position)
    }

    /// Advances the members from this number on; has the head polled if it is one of them.
    pub(super) fn advance_from(&mut self, first: u64, hits: u64, poll: &mut Numbers) {
        let index = self.entries.partition_point(|entry| entry.member.number < first);
        if index < self.entries.len() {
            self.advances.add(index, hits);
            self.poll_head(poll);
        }
    }

    /// Has the head polled unless its timer is for its release time in this line.
    fn poll_head(&mut self, poll: &mut Numbers) {
        if let Some(number) = self.head() {
            let Entry { member, seen, .. } = self.entries[self.head];
            if member.waits_in_several || seen != self.advance_of(self.head) {
                poll.push(number);
            }
        }
    }

    fn index(&self, number: u64) -> Option<usize> {
        let index = self.entries.binary_search_by_key(&number, |entry| entry.member.number).ok()?;
        (!self.entries[index].is_removed).then_some(index)
    }

    /// Hits by which an entry has advanced since its arrival.
    fn advance_of(&self, index: usize) -> u64 {
        self.advances.sum_to(index).wrapping_sub(self.entries[index].sum_on_arrival)
    }

    fn position(&self, index: usize) -> Position {
        self.bucket.advanced(self.entries[index].member.position, self.advance_of(index))
    }

    /// Drops the removed entries.
    fn compact(&mut self) {
        let advances: Vec<u64> = (0..self.entries.len()).map(|index| self.advance_of(index)).collect();
        self.head = self.entries[..self.head].iter().filter(|entry| !entry.is_removed).count();
        for (entry, advance) in self.entries.iter_mut().zip(advances) {
            // From here on the sums start at zero.
            entry.sum_on_arrival = advance.wrapping_neg();
        }
        self.entries.retain(|entry| !entry.is_removed);
        self.advances = Fenwick::default();
        self.entries.iter().for_each(|_| self.advances.push_zero());
    }
}

/// Prefix sums that can be changed, in O(log n). Sums wrap.
#[derive(Default)]
struct Fenwick {
    /// Node `i` is the sum of the `lowest_bit(i)` values up to and including value `i`, counted from 1.
    nodes: Vec<u64>,
}

impl Fenwick {
    /// Appends a value of zero.
    fn push_zero(&mut self) {
        let number = self.nodes.len() + 1;
        let (mut sum, mut below) = (0_u64, number - 1);
        while below > number - lowest_bit(number) {
            steps::count();
            sum = sum.wrapping_add(self.nodes[below - 1]);
            below -= lowest_bit(below);
        }
        self.nodes.push(sum);
    }

    fn add(&mut self, index: usize, value: u64) {
        let mut number = index + 1;
        while let Some(node) = self.nodes.get_mut(number - 1) {
            steps::count();
            *node = node.wrapping_add(value);
            number += lowest_bit(number);
        }
    }

    /// The sum of the values up to and including this one.
    fn sum_to(&self, index: usize) -> u64 {
        let (mut sum, mut number) = (0_u64, index + 1);
        while number > 0 {
            steps::count();
            sum = sum.wrapping_add(self.nodes[number - 1]);
            number -= lowest_bit(number);
        }
        sum
    }
}

fn lowest_bit(number: usize) -> usize {
    number & number.wrapping_neg()
}

/// Steps of loops over members, counted in tests only.
pub(super) mod steps {
    #[cfg(test)]
    use std::cell::Cell;

    #[cfg(test)]
    thread_local! {
        pub(in crate::limiter) static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    #[inline]
    pub(super) fn count() {
        #[cfg(test)]
        STEPS.with(|steps| steps.set(steps.get() + 1));
    }
}
