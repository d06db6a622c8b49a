//! What operators see of quota.

use super::{
    Quota, QuotaCounts, StreamId,
    bucket::{Bucket, Kind},
    member::Member,
};
use tidegate_core::{limit::Timestamp, store::Key};

/// A bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketView {
    /// Key of the counter.
    pub key: Key,
    /// Whether it is divided by slices, not by rates.
    pub is_sliced: bool,
    /// Number of clients.
    pub clients: usize,
    /// Demand of all, in thousandths of a request per second.
    pub demand: u64,
    /// Rates that may be in force, in thousandths of a request per second; 0 if it is divided by slices.
    pub rate: u64,
    /// Tokens, or unspent hits of slices, that clients may have.
    pub tokens: u64,
    /// The part of these tokens and rates that clients have which are gone, or had before they were assigned others.
    pub gone: u64,
}

/// What a client has of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareView {
    /// The client.
    pub stream: StreamId,
    /// Its demand, in thousandths of a request per second.
    pub demand: u64,
    /// Its rate, in thousandths of a request per second; 0 if it is divided by slices, or if all its requests are denied.
    pub rate: u64,
    /// Size of its token bucket, or of its last slice.
    pub tokens: u32,
    /// Time of its last report.
    pub reported: Timestamp,
    /// Time of its last assignment; none if it has none in force.
    pub assigned: Option<Timestamp>,
}

impl Quota {
    /// The buckets, in no order.
    pub fn buckets(&self) -> impl Iterator<Item = BucketView> {
        self.buckets.iter().flatten().map(|bucket| bucket.view())
    }

    /// What clients have of a bucket; none if no client reports it.
    pub fn shares(&self, bucket: Key) -> Option<Vec<ShareView>> {
        let slot = *self.slots.get(&bucket)?;
        let bucket = self.buckets.get(slot as usize)?.as_ref()?;
        Some(bucket.members.iter().map(Member::view).collect())
    }

    /// Figures since the start.
    pub fn counts(&self) -> QuotaCounts {
        self.counts
    }

    /// Number of streams that have reported.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Number of subscriptions, over all streams.
    pub fn subscriptions(&self) -> usize {
        self.subscriptions
    }

    /// Whether assignments of a former process may be in force.
    pub fn is_learning(&self, now: Timestamp) -> bool {
        now < self.learned
    }
}

impl Bucket {
    fn view(&self) -> BucketView {
        let (rate, tokens) = self.in_force();
        let gone = self.remnants.iter().fold(0, |sum: u64, remnant| sum.saturating_add(remnant.tokens));
        BucketView {
            key: self.key,
            is_sliced: matches!(self.kind, Kind::Slices(_)),
            clients: self.members.len(),
            demand: self.members.iter().fold(0, |sum, member| sum.saturating_add(member.claim.average)),
            rate,
            tokens,
            gone,
        }
    }
}

impl Member {
    fn view(&self) -> ShareView {
        ShareView {
            stream: self.stream,
            demand: self.claim.average,
            rate: self.share.rate,
            tokens: self.share.tokens,
            reported: self.reported,
            assigned: self.is_assigned.then_some(self.sent),
        }
    }
}
