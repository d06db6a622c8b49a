//! Assignments that a stream has to send. Of each bucket it keeps only the last, so that a slow client uses little memory, and whether an
//! assignment before it denied all: Envoy fills a bucket only after such an assignment.

use super::bucket_name::BucketName;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::Arc;
use tidegate_core::limit::Timestamp;
use tidegate_shared::quota::{Assignment, Settings};
use tokio::sync::Notify;

/// The reason why a stream ends.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StreamEnd {
    /// The domain has no RLQS, or no longer.
    #[error("the domain {domain:?} has no quotas; write `rlqs: {{}}` beside `domain` in its rule file")]
    NoQuotas {
        /// The domain.
        domain: Arc<str>,
    },
    /// Assignments were not sent in time: the client does not read them, or the server was suspended.
    #[error("assignments were not sent in time")]
    Stuck,
    /// The server stops.
    #[error("the server stops")]
    Drain,
}

/// The assignments that a stream has to send, and its end.
#[derive(Default)]
pub struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    assignments: HashMap<BucketName, Unsent, RandomState>,
    /// Times of the oldest and of the newest assignment.
    since: Option<(Timestamp, Timestamp)>,
    end: Option<StreamEnd>,
}

/// The assignments of a bucket that are not sent yet.
#[derive(Clone, Copy)]
struct Unsent {
    /// Whether an assignment before the last one denied all.
    is_denied_before: bool,
    last: Assignment,
    /// Whether the client has been sent `last` before.
    is_renewal: bool,
}

/// An assignment of a bucket that is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SentAssignment {
    /// The bucket.
    pub bucket: BucketName,
    /// The assignment.
    pub assignment: Assignment,
    /// Whether it only prolongs the last one, or another one follows.
    pub is_passing: bool,
}

impl Outbox {
    /// Adds assignments, each with whether it is a renewal. Returns whether the outbox was empty.
    pub(super) fn put(
        &self,
        assignments: impl IntoIterator<Item = (BucketName, Assignment, bool)>,
        now: Timestamp,
    ) -> bool {
        let assignments = assignments.into_iter();
        let mut waiting = self.waiting.lock();
        if waiting.end.is_some() {
            return false;
        }
        let is_first = waiting.since.is_none();
        waiting.since = Some((waiting.since.map_or(now, |(oldest, _)| oldest), now));
        waiting.assignments.reserve(assignments.size_hint().1.unwrap_or(0));
        for (bucket, assignment, is_renewal) in assignments {
            let first = Unsent { is_denied_before: false, last: assignment, is_renewal };
            let unsent = waiting.assignments.entry(bucket).or_insert(first);
            unsent.is_denied_before |= unsent.last == Assignment::DenyAll;
            (unsent.last, unsent.is_renewal) = (assignment, unsent.is_renewal && is_renewal);
        }
        self.changed.notify_one();
        is_first
    }

    /// Ends the stream after the assignments.
    pub(super) fn end(&self, end: StreamEnd) {
        self.waiting.lock().end.get_or_insert(end);
        self.changed.notify_one();
    }

    /// Whether an assignment has waited so long that the client might keep it in force for too long.
    pub(super) fn is_stuck(&self, now: Timestamp) -> bool {
        self.waiting.lock().since.is_some_and(|since| is_late(since, now))
    }

    /// The next assignments, at least one, with the time of the newest; or the end. If assignments have waited too long, because the server
    /// was suspended, they end the stream too.
    pub async fn next(
        &self,
        now: impl Fn() -> Timestamp,
    ) -> Result<(Vec<SentAssignment>, Timestamp), StreamEnd> {
        loop {
            let changed = self.changed.notified();
            {
                let mut waiting = self.waiting.lock();
                if let Some((oldest, newest)) = waiting.since.take() {
                    if is_late((oldest, newest), now()) {
                        return Err(StreamEnd::Stuck);
                    }
                    let unsent = std::mem::take(&mut waiting.assignments).into_iter();
                    let in_order =
                        unsent.flat_map(|(bucket, Unsent { is_denied_before, last, is_renewal })| {
                            let fills = is_denied_before && matches!(last, Assignment::Tokens { .. });
                            let both = fills
                                .then_some((Assignment::DenyAll, true))
                                .into_iter()
                                .chain([(last, is_renewal)]);
                            both.map(move |(assignment, is_passing)| {
                                let bucket = bucket.clone();
                                SentAssignment { bucket, assignment, is_passing }
                            })
                        });
                    return Ok((in_order.collect(), newest));
                }
                if let Some(end) = &waiting.end {
                    return Err(end.clone());
                }
            }
            changed.await;
        }
    }
}

/// Whether the oldest assignment is too late.
fn is_late((oldest, _): (Timestamp, Timestamp), now: Timestamp) -> bool {
    now.since(oldest) >= Settings::default().round_trip
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const DENY: Assignment = Assignment::DenyAll;

    fn tokens(max_tokens: u32) -> Assignment {
        Assignment::Tokens { max_tokens, tokens_per_fill: 1, fill_interval: Duration::from_secs(1) }
    }

    /// The last assignment is sent, and before it the denial after which Envoy fills the bucket.
    #[tokio::test]
    async fn a_denial_before_the_last_assignment_is_sent_too() {
        let outbox = Outbox::default();
        for (put, sent) in [
            (&[tokens(1), tokens(2)][..], &[tokens(2)][..]),
            (&[tokens(1), DENY, tokens(2), tokens(3)], &[DENY, tokens(3)]),
            (&[DENY, tokens(2), DENY], &[DENY]),
            (&[DENY, Assignment::Abandon], &[Assignment::Abandon]),
        ] {
            let bucket = BucketName::new([("key", "value")]);
            for assignment in put {
                outbox.put([(bucket.clone(), *assignment, false)], Timestamp::EPOCH);
            }
            let (assignments, _) = outbox.next(|| Timestamp::EPOCH).await.expect("assignments");
            let (last, before) = assignments.split_last().expect("an assignment");
            assert!(!last.is_passing && before.iter().all(|sent| sent.is_passing));
            let assignments: Vec<Assignment> = assignments.into_iter().map(|sent| sent.assignment).collect();
            assert_eq!(assignments, sent);
        }
    }

    /// Clients would keep them in force for longer than the server counts them.
    #[tokio::test]
    async fn assignments_of_a_server_that_was_suspended_are_not_sent() {
        for (waited, is_sent) in [(999, true), (1_000, false)] {
            let outbox = Outbox::default();
            let bucket = || BucketName::new([("key", "value")]);
            outbox.put([(bucket(), DENY, false)], Timestamp::EPOCH);
            outbox.put([(bucket(), tokens(1), false)], Timestamp::from_millis(waited));
            let next = outbox.next(|| Timestamp::from_millis(waited)).await;
            assert_eq!(next.map(|_| ()), if is_sent { Ok(()) } else { Err(StreamEnd::Stuck) });
        }
    }

    #[tokio::test]
    async fn a_renewal_after_a_change_that_was_not_sent_is_the_change() {
        let outbox = Outbox::default();
        for (renewals, is_passing) in [(&[true][..], true), (&[true, true], true), (&[false, true], false)] {
            let bucket = BucketName::new([("key", "value")]);
            for is_renewal in renewals {
                outbox.put([(bucket.clone(), tokens(1), *is_renewal)], Timestamp::EPOCH);
            }
            let (assignments, _) = outbox.next(|| Timestamp::EPOCH).await.expect("assignments");
            let passing: Vec<bool> = assignments.iter().map(|sent| sent.is_passing).collect();
            assert_eq!(passing, [is_passing], "{renewals:?}");
        }
    }
}
