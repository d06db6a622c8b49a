//! Queueing in the naive limiter: which requests are queued, the resets of requests that are not, and how a wait ends.

use crate::{
    naive::{Charge, Key, Naive, is_of_ban, is_over_at, sum},
    naive_queue::{QueuedCharge, QueuedRequest},
    oracle::{Oracle, first},
    outcome::{DescriptorHits, Outcome, Wait, gives, takes},
    rules::QueueLimits,
};

impl Naive {
    /// Accepts hits of a counter that do not fit now but will be released in time.
    pub fn try_queue(&self, charges: &mut [Charge], key: Key, max_wait: u64, now: u64) {
        let taken = sum(charges, key, |_| true, takes);
        let mut oracle = self.oracle(charges, key, now);
        oracle.give_back(sum(charges, key, |_| true, gives), now);
        for charge in charges.iter_mut().filter(|charge| charge.key == key && takes(charge.hits) > 0) {
            charge.fits |=
                charge.queue.is_some_and(|queue| fits_in_queue(&oracle, queue, taken, max_wait, now));
        }
    }

    /// Sets the resets of hits that a queue refused to the time until it has room for them.
    pub fn report_wait_for_queue(&self, charges: &mut [Charge], max_wait: u64, now: u64) {
        for index in 0..charges.len() {
            let Charge { key, fits, hits, queue: Some(queue), .. } = charges[index] else { continue };
            if fits || takes(hits) == 0 {
                continue;
            }
            let oracle = self.oracle(charges, key, now);
            let [given, taken] = [gives, takes].map(|hits| sum(charges, key, |_| true, hits));
            let fits_in_queue = |at| {
                let mut then = oracle.clone();
                then.give_back(given, at);
                then.remaining(at) >= taken || fits_in_queue(&then, queue, taken, max_wait, at)
            };
            let never = taken > oracle.limit();
            let wait = if never { Wait::Never } else { Wait::After(first(now, fits_in_queue) - now) };
            charges[index].until_queueable = Some(wait);
        }
    }

    /// The queue entry of a request that was charged.
    pub fn queued_request(
        &self,
        descriptors: &[DescriptorHits],
        charges: &[Charge],
        counters: &[Key],
        now: u64,
    ) -> QueuedRequest {
        let is_always = |key| charges.iter().any(|charge| charge.key == key && charge.always);
        let queued_charges = counters.iter().filter(|&&key| !is_of_ban(key)).filter_map(|&key| {
            let hits = self.counted(charges, key, false, takes);
            // A counter for which there was no room does not exist, and counts nothing.
            let counter = self.counters.get(&key).filter(|_| hits > 0)?;
            let may_queue = charges.iter().any(|charge| charge.key == key && charge.queue.is_some());
            Some(QueuedCharge::new(key, if is_always(key) { 0 } else { hits }, counter.clone(), may_queue))
        });
        QueuedRequest {
            arrived: now,
            descriptors: descriptors.to_vec(),
            over: (0..descriptors.len()).filter(|&index| is_over_at(charges, index)).collect(),
            queued_charges: queued_charges.collect(),
        }
    }

    /// Cancels a queued request: the rest of its hits is given back, and requests behind it advance.
    pub fn cancel(&mut self, index: usize, now: u64) -> QueuedRequest {
        let queued = self.queue.remove(index);
        for charge in &queued.queued_charges {
            let Some(counter) = self.counters.get_mut(&charge.key) else { continue };
            let left = charge.left(counter, queued.arrived, now);
            counter.give_back(left, now);
            self.queue.move_up(index, charge.key, left);
            self.is_changed = true;
        }
        queued
    }

    /// Releases all requests that are due; their statuses are those of the counters now.
    pub fn release_all(&mut self, now: u64) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        while let Some(QueuedRequest { descriptors, over, .. }) = self.queue.pop_released(now) {
            let mut charges = self.charges(&descriptors, now);
            self.convert(&charges, now);
            // It was admitted before any ban that is in force now.
            charges.retain(|charge| !is_of_ban(charge.key));
            charges.iter_mut().for_each(|charge| charge.fits = !over.contains(&charge.descriptor));
            outcomes.push(self.outcome(false, &descriptors, &charges, now));
        }
        outcomes
    }

    /// Ends queueing at `ends`: requests that would be released later are cancelled, and decided without queueing.
    pub fn end_queue(&mut self, ends: u64, now: u64) -> Vec<Outcome> {
        self.queue.end(ends);
        let mut outcomes = Vec::new();
        while let Some(index) = self.queue.next_released_too_late(now) {
            let QueuedRequest { descriptors, .. } = self.cancel(index, now);
            outcomes.push(self.decide(&descriptors, 0, now));
        }
        outcomes
    }
}

/// Whether hits that arrive at `at` and do not fit are released in time.
fn fits_in_queue(counter: &Oracle, queue: QueueLimits, hits: u64, max_wait: u64, at: u64) -> bool {
    let mut with = counter.clone();
    with.take(hits, at);
    // The end of representable time.
    let (burst, latest) = (counter.limit(), at.saturating_add(queue.wait.min(max_wait)));
    hits <= burst && with.used(at) <= burst + queue.hits && with.used(latest) <= burst
}
