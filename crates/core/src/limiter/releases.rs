//! Releases of slots by ticket.

use super::{
    in_force::{Limiter, OwnedPinned},
    slots::{SlotCounts, SlotRelease, SlotTicket, ticket_of},
};
use crate::{
    algorithm::Released,
    limit::{Hits, Request, Timestamp},
    store::{Key, Store},
};
use std::{sync::atomic::Ordering, task::Waker};

impl Limiter {
    /// Makes the releases of a request; returns those that a shared store has to make. A peek releases nothing; negative hits release
    /// as many of each slot, others all of it.
    pub(super) fn release_named(&self, request: &Request<'_>, now: Timestamp) -> Vec<SlotRelease> {
        let mut in_store = Vec::new();
        if request.is_check() {
            return in_store;
        }
        for descriptor in request.descriptors() {
            let hits = match descriptor.hits {
                Hits::Peek => continue,
                Hits::Take(_) => None,
                Hits::GiveBack(hits) => Some(hits.get()),
            };
            if let Some(ticket) = ticket_of(descriptor) {
                self.release_ticket(&ticket, hits, now);
                in_store.extend(ticket.in_store(hits));
            }
        }
        in_store
    }

    /// Counts slots that a shared store has released, and those that were not held there.
    pub fn count_releases(&self, released: u64, unknown: u64) {
        self.slots.released.fetch_add(released, Ordering::Relaxed);
        self.slots.unknown.fetch_add(unknown, Ordering::Relaxed);
    }

    /// Releases the slots of a ticket that are in this process, for a request that ended without a release of its own; false if none
    /// of them was owned. [`SlotRelease::of_ticket`] is the rest.
    pub fn release_slots(&self, ticket: &str, now: Timestamp) -> bool {
        SlotTicket::parse(ticket).is_some_and(|ticket| self.release_ticket(&ticket, None, now))
    }

    fn release_ticket(&self, ticket: &SlotTicket, hits: Option<u64>, now: Timestamp) -> bool {
        let mut is_any_held = false;
        for &key in &ticket.keys {
            let is_held = self.release_one(key, ticket.id, hits, now);
            let counted = if is_held { &self.slots.released } else { &self.slots.unknown };
            counted.fetch_add(1, Ordering::Relaxed);
            is_any_held |= is_held;
        }
        is_any_held
    }

    fn release_one(&self, key: Key, id: u64, hits: Option<u64>, now: Timestamp) -> bool {
        let mut woken = Vec::new();
        let mut shard = self.store.lock(Store::shard_of(key));
        let Some(slot) = shard.find(key) else { return false };
        let has_it = shard.get(slot).state().slots().is_some_and(|slots| slots.has(id));
        // A page that did not change is not written by the next snapshot.
        if !has_it {
            let limit = shard.get(slot).limit();
            drop(shard);
            self.slots.figures.count_unknown(limit);
            return false;
        }
        let counter = shard.get_mut(slot);
        let (limit, mut state) = (counter.limit(), counter.take_state());
        let (released, expired) = state.release_slot(id, hits, now);
        let expires = state.slots().map_or(Timestamp::EPOCH, |slots| slots.expires());
        counter.set(state, limit, expires);
        self.slots.count_expired(limit, expired as u64);
        if let Some(mut queues) = self.slot_queues() {
            queues.call_first(key, &mut woken);
        }
        drop(shard);
        woken.into_iter().for_each(Waker::wake);
        released != Released::Unknown
    }

    /// What became of slots so far.
    pub fn slot_counts(&self) -> SlotCounts {
        self.slots.counts()
    }
}

impl OwnedPinned<'_> {
    /// Makes the releases of a request to a domain with shared counters; returns those that the store has to make.
    pub fn release(&self, request: &Request<'_>, now: Timestamp) -> Vec<SlotRelease> {
        match self.in_force.rules.domain(request.domain()) {
            Some(domain) if domain.has_slots() => self.limiter.release_named(request, now),
            _ => Vec::new(),
        }
    }
}
