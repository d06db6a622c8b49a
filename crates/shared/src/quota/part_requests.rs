//! Requests of a server to the store, for its parts of limits, and their responses.

use super::{PartGrant, PartRequest, Quota};
use tidegate_core::{algorithm::Algorithm, limit::Timestamp, store::Key};

impl Quota {
    /// Requests to the store that are due, each with the key of its counter and the algorithm.
    pub fn requests(&mut self, now: Timestamp) -> Vec<(Key, Algorithm, PartRequest)> {
        let mut requests = Vec::new();
        for number in self.buckets.due_requests(now) {
            let next = self.buckets.change(number, |bucket| {
                let request = bucket.request_part(&self.settings, now);
                let part = bucket.part.as_ref()?;
                requests.extend(request.map(|request| (bucket.key, part.algorithm.clone(), request)));
                Some(part.next())
            });
            if let Some(next) = next.flatten() {
                self.buckets.request_at(number, next);
            }
        }
        requests
    }

    /// The last requests to the store, of a process that stops: what clients do not have is free for others. Nothing is to be sent afterwards.
    pub fn release(&mut self, now: Timestamp) -> Vec<(Key, Algorithm, PartRequest)> {
        let mut requests = Vec::new();
        self.buckets.change_all(|bucket| {
            let request = bucket.release_part(&self.settings, now);
            if let (Some(request), Some(part)) = (request, &bucket.part) {
                requests.push((bucket.key, part.algorithm.clone(), request));
            }
        });
        requests
    }

    /// Takes in the response to a request.
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
