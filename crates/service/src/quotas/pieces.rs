//! Parts of the state of the streams, for operators.
//!
//! Invariant: to read a part takes no longer than to handle a message of reports, whatever the number of buckets and streams.

use super::{
    bucket_name::BucketName,
    divider::Divider,
    listing::{PieceRequest, QuotaBucket, QuotaList, QuotaSubscriber},
};
use std::{cmp::Reverse, sync::Arc};
use tidegate_core::limit::Timestamp;
use tidegate_shared::quota::{BucketView, ShareView};

/// Number of buckets and clients that are read for one part.
const READS: usize = 5_000;

impl Divider {
    /// A part of the buckets, from a place in the list.
    pub(super) fn piece(&self, request: PieceRequest, now: Timestamp) {
        let PieceRequest { query, from, demand_above, respond } = request;
        let (views, next) = self.quota.buckets_from(from, READS);
        let is_selected =
            |view: &BucketView| self.names(view).any(|(domain, bucket)| (query.selects)(domain, &bucket));
        let mut views: Vec<BucketView> = views.into_iter().filter(is_selected).collect();
        let total = views.len();
        views.retain(|view| demand_above.is_none_or(|demand| view.demand > demand));
        views.sort_by_key(|view| Reverse(view.demand));
        views.truncate(query.limit);
        let subscriptions = self.figures().buckets;
        let piece = QuotaList {
            buckets: views.iter().filter_map(|view| self.shown(view)).collect(),
            total,
            is_learning: self.quota.is_learning(now),
            undivided: subscriptions.saturating_sub(self.quota.subscriptions() as u64),
        };
        // The reader may have given up.
        let _ = respond.send((piece, next));
    }

    /// The name that each of its clients has for a bucket.
    fn names<'s>(&'s self, view: &BucketView) -> impl Iterator<Item = (&'s Arc<str>, BucketName)> + use<'s> {
        self.quota.shares(view.key).filter_map(move |share| {
            let client = self.streams.get(&share.stream.0)?;
            Some((&client.domain, client.buckets.name(share.place)?))
        })
    }

    fn shown(&self, view: &BucketView) -> Option<QuotaBucket> {
        let (domain, bucket) = self.names(view).next()?;
        let (domain, bucket) = (Arc::clone(domain), bucket);
        let subscriber = |share: ShareView| {
            let (stream, client) = (share.stream.0, self.streams.get(&share.stream.0)?);
            let (address, names) = (Arc::clone(&client.peer.address), Arc::clone(&client.peer.names));
            Some(QuotaSubscriber { stream, address, names, share })
        };
        let subscribers = self.quota.shares(view.key).filter_map(subscriber).collect();
        Some(QuotaBucket { domain, bucket, view: *view, subscribers: Vec::new() }.with(subscribers))
    }
}
