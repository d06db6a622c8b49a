//! Lists of buckets with their clients, for operators.

use super::bucket_name::BucketName;
use std::{cmp::Reverse, fmt, sync::Arc};
use tidegate_shared::quota::{BucketView, ShareView};
use tokio::sync::oneshot;

/// The most clients that are listed: of one bucket, and of all.
const SUBSCRIBERS_MAX: usize = 100;
const SUBSCRIBERS_OF_ALL_MAX: usize = 10_000;

/// Whether a bucket of a domain is selected.
pub type BucketFilter = Box<dyn Fn(&str, &BucketName) -> bool + Send + Sync>;

/// Selects the buckets to list.
pub struct QuotaQuery {
    /// Selects buckets.
    pub selects: BucketFilter,
    /// Number of buckets.
    pub limit: usize,
}

/// The buckets that a query selects.
#[derive(Clone, Debug, Default)]
pub struct QuotaList {
    /// The buckets with the most demand first.
    pub buckets: Vec<QuotaBucket>,
    /// Number of all selected buckets.
    pub total: usize,
    /// Whether assignments of a former process may be in force.
    pub is_learning: bool,
    /// Subscriptions, over all streams, of buckets that no limit divides. Their requests are all admitted or all denied.
    pub undivided: u64,
}

/// A bucket with clients.
#[derive(Clone, Debug)]
pub struct QuotaBucket {
    /// The domain.
    pub domain: Arc<str>,
    /// Its keys and values. If several buckets share a counter, those of one of them.
    pub bucket: BucketName,
    /// The view of the bucket.
    pub view: BucketView,
    /// The clients with the most demand first, at most 100.
    pub subscribers: Vec<QuotaSubscriber>,
}

/// A client of a bucket.
#[derive(Clone, Debug)]
pub struct QuotaSubscriber {
    /// Number of its stream since the start.
    pub stream: u64,
    /// Its address.
    pub address: Arc<str>,
    /// The verified names in its certificate.
    pub names: Arc<[String]>,
    /// Its share.
    pub share: ShareView,
}

/// A request for a part of the buckets.
pub(super) struct PieceRequest {
    pub(super) query: Arc<QuotaQuery>,
    /// The first place in the list of buckets.
    pub(super) from: usize,
    /// Only buckets with more demand than this are needed.
    pub(super) demand_above: Option<u64>,
    /// Gets the part, and the next place if there are more buckets.
    pub(super) respond: oneshot::Sender<(QuotaList, Option<usize>)>,
}

impl fmt::Debug for QuotaQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaQuery").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl QuotaList {
    /// The demand that another bucket has to exceed to be listed.
    pub(super) fn demand_above(&self, query: &QuotaQuery) -> Option<u64> {
        let last = self.buckets.get(query.limit.checked_sub(1)?)?;
        Some(last.view.demand)
    }

    /// Adds a part.
    pub(super) fn add(&mut self, piece: Self, query: &QuotaQuery) {
        self.total += piece.total;
        (self.is_learning, self.undivided) = (piece.is_learning, piece.undivided);
        self.buckets.extend(piece.buckets);
        self.buckets.sort_by_key(|bucket| Reverse(bucket.view.demand));
        self.buckets.truncate(query.limit);
        let mut left = SUBSCRIBERS_OF_ALL_MAX;
        for bucket in &mut self.buckets {
            bucket.subscribers.truncate(left);
            left -= bucket.subscribers.len();
        }
    }
}

impl QuotaBucket {
    /// Keeps the clients with the most demand, and sorts them by it.
    pub(super) fn with(mut self, mut subscribers: Vec<QuotaSubscriber>) -> Self {
        subscribers.sort_by_key(|subscriber| (Reverse(subscriber.share.demand), subscriber.stream));
        subscribers.truncate(SUBSCRIBERS_MAX);
        self.subscribers = subscribers;
        self
    }
}
