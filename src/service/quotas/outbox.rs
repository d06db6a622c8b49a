//! Assignments that a stream has to send. Of each bucket the last one, so that a slow client costs no memory.

use super::{Bucket, StreamEnd};
use parking_lot::Mutex;
use std::{collections::HashMap, time::Duration};
use tidegate_core::limit::Timestamp;
use tokio::sync::Notify;

/// What a client does from now on with requests of a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// Admits them by a token bucket.
    Tokens {
        /// Size of the bucket.
        max_tokens: u32,
        /// Tokens in each interval.
        tokens_per_fill: u32,
        /// Whole seconds, and a number of the assignment in the nanoseconds.
        fill_interval: Duration,
        /// Time for which it is in force, in whole seconds.
        ttl: Duration,
    },
    /// Admits all of them.
    AllowAll {
        /// Likewise.
        ttl: Duration,
    },
    /// Denies all of them.
    DenyAll {
        /// Likewise.
        ttl: Duration,
    },
    /// Forgets the bucket.
    Abandon,
}

/// The assignments that a stream has to send, and its end.
#[derive(Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    assignments: HashMap<Bucket, Assignment>,
    /// Times of the oldest and of the newest of them.
    since: Option<(Timestamp, Timestamp)>,
    end: Option<StreamEnd>,
}

impl Outbox {
    /// Adds an assignment.
    pub(super) fn put(&self, bucket: Bucket, assignment: Assignment, now: Timestamp) {
        let mut waiting = self.waiting.lock();
        if waiting.end.is_none() {
            waiting.since = Some((waiting.since.map_or(now, |(oldest, _)| oldest), now));
            waiting.assignments.insert(bucket, assignment);
            self.changed.notify_one();
        }
    }

    /// Ends the stream, after the assignments.
    pub(super) fn end(&self, end: StreamEnd) {
        self.waiting.lock().end.get_or_insert(end);
        self.changed.notify_one();
    }

    /// Whether an assignment has waited for so long.
    pub(super) fn is_stuck(&self, time: Duration, now: Timestamp) -> bool {
        self.waiting.lock().since.is_some_and(|(oldest, _)| now.since(oldest) >= time)
    }

    /// The next assignments, at least one, with the time of the newest, or the end.
    pub async fn next(&self) -> Result<(Vec<(Bucket, Assignment)>, Timestamp), StreamEnd> {
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.waiting.lock();
                if let Some((_, newest)) = waiting.since.take() {
                    return Ok((std::mem::take(&mut waiting.assignments).into_iter().collect(), newest));
                }
                if let Some(end) = &waiting.end {
                    return Err(end.clone());
                }
            }
            changed.await;
        }
    }
}
