//! The views of quota for operators.

use super::{
    Quota, QuotaCounts, StreamId,
    bucket::{Bucket, Kind},
    member::{Member, Remnant},
    part::Part,
    server_part::ServerPart,
};
use std::time::Duration;
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
    /// The part of `rate` of former clients.
    pub gone_rate: u64,
    /// The part of `tokens` of former clients.
    pub gone_tokens: u64,
    /// The part of this server, if several servers share the counter.
    pub part: Option<PartView>,
}

/// The part that a server has of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartView {
    /// Part of this server; without a rate if it is divided by slices.
    pub own: Part,
    /// End of the part, unless it is renewed.
    pub end: Timestamp,
    /// Parts of the other servers together, as of the last response of the store.
    pub others: Part,
    /// Number of these servers.
    pub servers: usize,
}

/// The share of a client in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShareView {
    /// The client.
    pub stream: StreamId,
    /// The number of the bucket among the client's.
    pub place: u32,
    /// Its demand, in thousandths of a request per second.
    pub demand: u64,
    /// Its rate, in thousandths of a request per second; 0 if it is divided by slices, or if all its requests are denied.
    pub rate: u64,
    /// Size of its token bucket, or unspent hits of its slices by its reports.
    pub tokens: u32,
    /// Whether its last assignment denies all requests.
    pub is_denied: bool,
    /// Time of its last report.
    pub reported: Timestamp,
    /// Reports without a request since the last one with any.
    pub idle: u8,
    /// The end of its last assignment; none if it has none in force.
    pub ends: Option<Timestamp>,
}

impl Quota {
    /// The buckets, in no order.
    pub fn buckets(&self) -> impl Iterator<Item = BucketView> {
        self.buckets.from(0).flatten().map(|bucket| bucket.view())
    }

    /// The buckets from `place` in the list, until `reads` buckets and clients were read: at least one bucket, unless the list ends. With
    /// the place of the next bucket if there are more.
    pub fn buckets_from(&self, place: usize, reads: usize) -> (Vec<BucketView>, Option<usize>) {
        let (mut views, mut left) = (Vec::new(), reads);
        for (at, bucket) in (place..).zip(self.buckets.from(place)) {
            if left == 0 {
                return (views, Some(at));
            }
            let view = bucket.map(|bucket| bucket.view());
            left = left.saturating_sub(1 + view.map_or(0, |view| view.clients));
            views.extend(view);
        }
        (views, None)
    }

    /// The shares of clients in a bucket, in no order.
    pub fn shares(&self, bucket: Key) -> impl Iterator<Item = ShareView> {
        let bucket = self.buckets.number(bucket).and_then(|number| self.buckets.get(number));
        let ttl = self.settings.ttl;
        bucket.into_iter().flat_map(move |bucket| {
            let is_sliced = matches!(bucket.kind, Kind::Slices(_));
            bucket.members.iter().map(move |member| member.view(is_sliced, ttl))
        })
    }

    /// What may be in force at clients of all buckets, each as of its last division.
    pub fn in_force(&self) -> Part {
        self.in_force
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
        now < self.learned && self.former.is_estimate()
    }
}

impl Bucket {
    fn view(&self) -> BucketView {
        let Part { rate, burst: tokens } = self.in_force();
        let gone: Part = self.remnants.iter().map(Remnant::part).sum();
        BucketView {
            key: self.key,
            is_sliced: matches!(self.kind, Kind::Slices(_)),
            clients: self.members.len(),
            demand: self.members.iter().fold(0, |sum, member| sum.saturating_add(member.claim.average)),
            rate,
            tokens,
            gone_rate: gone.rate,
            gone_tokens: gone.burst,
            part: self.part.as_ref().map(|part| part.view()),
        }
    }
}

impl ServerPart {
    fn view(&self) -> PartView {
        let others = self.others.iter().map(|other| other.part).sum();
        PartView { own: self.part, end: self.end, others, servers: self.others.len() }
    }
}

impl Member {
    fn view(&self, is_sliced: bool, ttl: Duration) -> ShareView {
        ShareView {
            stream: self.stream,
            place: self.place,
            demand: self.claim.average,
            rate: self.share.rate,
            tokens: if is_sliced { self.counted.tokens } else { self.share.tokens },
            is_denied: self.is_assigned && self.share.tokens == 0,
            reported: self.reported,
            idle: self.idle,
            ends: self.is_assigned.then(|| self.sent.last().saturating_add(ttl)),
        }
    }
}
