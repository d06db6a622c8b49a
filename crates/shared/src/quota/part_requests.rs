//! Requests of a server to the store for its parts of limits, and the responses.

use super::{PartCall, PartGrant, Quota, bucket::Bucket, part::PartRequest};
use tidegate_core::{limit::Timestamp, store::Key};

impl Quota {
    /// Requests to the store that are due.
    pub fn requests(&mut self, now: Timestamp) -> Vec<PartCall> {
        let mut requests = Vec::new();
        for number in self.buckets.due_requests(now) {
            let next = self.buckets.change(number, |bucket| {
                let request = bucket.request_part(&self.settings, now);
                requests.extend(call(bucket, request));
                Some(bucket.part.as_ref()?.next())
            });
            if let Some(next) = next.flatten() {
                self.buckets.request_at(number, next);
            }
        }
        requests
    }

    /// The last requests to the store, of a process that stops. They free for others what clients do not have. Nothing may be sent
    /// afterwards.
    pub fn release(&mut self, now: Timestamp) -> Vec<PartCall> {
        let mut requests = Vec::new();
        self.buckets.change_all(|bucket| {
            let request = bucket.release_part(&self.settings, now);
            requests.extend(call(bucket, request));
        });
        requests
    }

    /// Takes the response to a request.
    pub fn accept(&mut self, bucket: Key, sequence: u64, grant: &PartGrant, now: Timestamp) {
        let Some(number) = self.buckets.number(bucket) else { return };
        let next = self.buckets.change(number, |bucket| {
            let part = bucket.part.as_mut()?;
            let accepted = part.accept(sequence, grant, now);
            let next = part.next();
            if let Some(former) = accepted.filter(|_| now < self.learned) {
                bucket.follow_former_part(former, self.learned);
            }
            bucket.is_dirty |= accepted.is_some();
            Some(next)
        });
        if let Some(next) = next.flatten() {
            self.buckets.request_at(number, next);
        }
    }
}

fn call(bucket: &Bucket, request: Option<PartRequest>) -> Option<PartCall> {
    let algorithm = bucket.part.as_ref()?.algorithm.clone();
    Some(PartCall { bucket: bucket.key, algorithm, request: request? })
}
