//! How long requests of the log were in flight, and the assumed ends of requests that only the replay has admitted, which the log does not
//! have.
//!
//! Such a request ends after the mean of the holds in the log so far: the holds of the same key (the domain and descriptors), or else of
//! the domain. If there is no such hold yet, the slots end as soon as there is one. The ends depend only on the log.

use super::{
    LoggedDecision,
    tickets::{ended_by, is_over},
};
use foldhash::fast::{FixedState, RandomState};
use smol_str::SmolStr;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    hash::{BuildHasher, Hash, Hasher},
    time::Duration,
};
use tidegate_core::{
    limit::{Decision, Request, Timestamp},
    limiter::{Limiter, slots_of_ticket},
};

/// The key of a hold: hashes of the domain, and of the domain and descriptors.
#[derive(Clone, Copy)]
struct HoldKey {
    domain: u64,
    key: u64,
}

impl HoldKey {
    fn of(request: &Request<'_>) -> Self {
        let mut hasher = FixedState::default().build_hasher();
        request.domain().hash(&mut hasher);
        let domain = hasher.finish();
        for descriptor in request.descriptors() {
            descriptor.entries.len().hash(&mut hasher);
            descriptor.entries.iter().for_each(|entry| (entry.key, entry.value).hash(&mut hasher));
        }
        Self { domain, key: hasher.finish() }
    }
}

/// The holds of a log.
#[derive(Default)]
pub(super) struct Holds {
    /// By ticket of the log: when a request was admitted that has not ended, and its key.
    started: hashbrown::HashMap<SmolStr, (Timestamp, HoldKey), RandomState>,
    /// The sum and the number of the holds of each hash.
    known: hashbrown::HashMap<u64, (Duration, u32), RandomState>,
    /// Number of domains with holds.
    domains: usize,
}

impl Holds {
    /// Notes the start of a request with a ticket in the log, or the ends that a request of the log makes.
    pub(super) fn note(&mut self, logged: &LoggedDecision<'_>, now: Timestamp) {
        if let Some(ticket) = logged.ticket {
            self.started.entry(ticket.into()).or_insert_with(|| (now, HoldKey::of(&logged.request)));
        }
        if !self.started.is_empty() {
            ended_by(&logged.request).for_each(|ticket| self.end(ticket, now));
        }
    }

    /// Notes the end of a request. A second end has no effect.
    pub(super) fn end(&mut self, ticket: &str, at: Timestamp) {
        let Some((started, HoldKey { domain, key })) = self.started.remove(ticket) else { return };
        self.domains += usize::from(!self.known.contains_key(&domain));
        for of in [domain, key] {
            let (sum, number) = self.known.entry(of).or_default();
            (*sum, *number) = (sum.saturating_add(at.since(started)), number.saturating_add(1));
        }
    }

    /// The mean of the log's holds so far of the key, or of the domain.
    fn expected(&self, HoldKey { domain, key }: HoldKey) -> Option<Duration> {
        let (sum, number) = self.known.get(&key).or_else(|| self.known.get(&domain))?;
        Some(*sum / *number)
    }

    /// Forgets starts whose ends can no longer arrive.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.started.retain(|_, (started, _)| !is_over(*started, now));
    }
}

/// The most requests without a hold, for one set of rules. If there are more, the slots of the first are held until `max_hold`.
const UNDATED_MAX: usize = 1 << 16;

/// The ends of requests that one set of rules has admitted and the log has not.
#[derive(Default)]
pub(super) struct AssumedEnds {
    /// The next end first. If several are at one time, in the order of admission.
    due: BinaryHeap<Reverse<(Timestamp, u64, Box<str>)>>,
    /// Requests for which the log had no hold, as of `domains` domains with holds.
    undated: VecDeque<(Timestamp, HoldKey, Box<str>)>,
    domains: usize,
    /// Number of the last request with an end.
    number: u64,
}

impl AssumedEnds {
    /// Notes the slots of a request that has no ticket in the log.
    pub(super) fn start(
        &mut self,
        decision: &Decision<'_>,
        logged: &Request<'_>,
        holds: &Holds,
        at: Timestamp,
    ) {
        let Some(slots) = decision.slot.as_ref().and_then(|slot| slots_of_ticket(&slot.ticket)) else {
            return;
        };
        let key = HoldKey::of(logged);
        if let Some(hold) = holds.expected(key) {
            self.push(at.saturating_add(hold), slots);
            return;
        }
        if self.undated.len() == UNDATED_MAX {
            self.undated.pop_front();
        }
        self.undated.push_back((at, key, slots));
    }

    fn push(&mut self, at: Timestamp, slots: Box<str>) {
        self.number += 1;
        self.due.push(Reverse((at, self.number, slots)));
    }

    /// Releases the slots whose ends are due.
    pub(super) fn end_due(&mut self, limiter: Option<&Limiter>, holds: &Holds, now: Timestamp) {
        if self.domains != holds.domains {
            self.domains = holds.domains;
            for (at, key, slots) in std::mem::take(&mut self.undated) {
                match holds.expected(key) {
                    Some(hold) => self.push(at.saturating_add(hold), slots),
                    None => self.undated.push_back((at, key, slots)),
                }
            }
        }
        while self.due.peek().is_some_and(|Reverse((at, ..))| *at <= now) {
            if let (Some(Reverse((at, _, slots))), Some(limiter)) = (self.due.pop(), limiter) {
                limiter.release_slots(&slots, at);
            }
        }
    }

    /// Forgets requests whose slots have passed their deadlines.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.undated.retain(|(at, ..)| !is_over(*at, now));
    }
}
