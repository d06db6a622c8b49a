//! A stream with its buckets, and their memory.

use super::{
    QuotaPeer,
    bucket_name::BucketName,
    outbox::Outbox,
    subscriptions::{Subscription, Subscriptions},
};
use std::{cell::Cell, rc::Rc, sync::Arc};
use tidegate_shared::{FairBound, PeerId, quota::SUBSCRIPTION_BYTES};

/// The most bytes of the names of a stream's buckets.
pub(super) const BYTES_OF_STREAM_MAX: usize = 1 << 20;

/// Memory of an open stream, without its buckets.
pub(super) const STREAM_BYTES: usize = 1_000;

/// A stream.
pub(super) struct Client {
    pub(super) domain: Arc<str>,
    pub(super) peer: QuotaPeer,
    pub(super) peer_id: PeerId,
    pub(super) outbox: Arc<Outbox>,
    pub(super) buckets: Subscriptions,
    /// Number of buckets of all streams.
    pub(super) all: Rc<Cell<usize>>,
}

impl Client {
    /// Whether the stream may have another bucket.
    pub(super) fn has_room(&self, bucket: &BucketName, buckets_max: usize) -> bool {
        self.buckets.len() < buckets_max && self.buckets.bytes() + bucket.bytes() <= BYTES_OF_STREAM_MAX
    }

    /// Sets the subscription of a bucket, which is added if it is new.
    pub(super) fn remember(
        &mut self,
        bucket: BucketName,
        subscription: Subscription,
        memory: &mut FairBound,
    ) {
        match self.buckets.find(&bucket) {
            Some(place) => self.buckets.set(place, subscription),
            None => {
                memory.take(self.peer_id, subscription_bytes(&bucket));
                self.buckets.add(bucket, subscription);
                self.all.update(|buckets| buckets + 1);
            }
        }
    }

    /// Removes a bucket.
    pub(super) fn forget(&mut self, place: u32, memory: &mut FairBound) {
        let before = self.bytes();
        if self.buckets.remove(place) {
            memory.give_back(self.peer_id, before - self.bytes());
            self.all.update(|buckets| buckets - 1);
        }
    }

    /// Memory of its buckets.
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * SUBSCRIPTION_BYTES + self.buckets.bytes()
    }
}

/// Memory of a bucket of a stream, counted as if no other stream had its name.
pub(super) fn subscription_bytes(bucket: &BucketName) -> usize {
    SUBSCRIPTION_BYTES + bucket.bytes()
}
