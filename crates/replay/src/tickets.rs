//! Tickets of a log, and the tickets of a replay that replace them.
//!
//! A ticket names counters by the secret of the server that made it. A replay makes its own tickets for the requests that it admits. In
//! place of a logged ticket, it renews and ends what its own ticket took. If it denied the request, or the log lacks the start, an end has
//! no effect.

use foldhash::fast::RandomState;
use smol_str::SmolStr;
use tidegate_core::{
    algorithm::HOLD_MAX,
    limit::{Decision, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{RENEWAL_KEY, TICKET_KEY},
};

/// The tickets of one set of rules.
#[derive(Default)]
pub(super) struct Tickets(hashbrown::HashMap<SmolStr, Started, RandomState>);

struct Started {
    /// The ticket of the replay.
    own: Box<str>,
    /// Its start, or its last renewal.
    at: Timestamp,
}

impl Tickets {
    /// Notes the decision on a request with this ticket in the log.
    pub(super) fn start(&mut self, logged: &str, decision: &Decision<'_>, at: Timestamp) {
        if let Some(slot) = &decision.slot {
            self.0.insert(logged.into(), Started { own: slot.ticket.clone(), at });
        }
    }

    /// The request with the tickets of the replay. None if it names no ticket that has one here.
    pub(super) fn replaced<'r, 't: 'r>(&'r self, request: &Request<'t>) -> Option<Request<'r>> {
        let own = |entry: &Entry<'_>| match entry.key {
            TICKET_KEY | RENEWAL_KEY => self.0.get(entry.value),
            _ => None,
        };
        let names = |descriptor: &Descriptor<'_>| descriptor.entries.iter().any(|entry| own(entry).is_some());
        if self.0.is_empty() || !request.descriptors().iter().any(names) {
            return None;
        }
        let mut replaced = Request::new(request.domain());
        for Descriptor { entries, limit, hits } in request.descriptors() {
            let value = |entry: &Entry<'t>| own(entry).map_or(entry.value, |started| &*started.own);
            let entries = entries.iter().map(|entry| Entry { key: entry.key, value: value(entry) }).collect();
            replaced.push(Descriptor { entries, limit: *limit, hits: *hits });
        }
        Some(if request.is_report() { replaced.reporting() } else { replaced })
    }

    /// Forgets tickets that a request has ended, and keeps those that it has renewed. If it gave back only a part of the slots, the rest is
    /// still held.
    pub(super) fn end(&mut self, request: &Request<'_>, at: Timestamp) {
        if self.0.is_empty() {
            return;
        }
        ended_by(request).for_each(|ticket| _ = self.0.remove(ticket));
        for descriptor in request.descriptors().iter().filter(|of| matches!(of.hits, Hits::Take(_))) {
            for entry in descriptor.entries.iter().filter(|entry| entry.key == RENEWAL_KEY) {
                if let Some(started) = self.0.get_mut(entry.value) {
                    started.at = at;
                }
            }
        }
    }

    /// Takes the ticket of the replay for a logged ticket whose request has ended. None if there is none.
    pub(super) fn take(&mut self, logged: &str) -> Option<Box<str>> {
        self.0.remove(logged).map(|started| started.own)
    }

    /// Forgets tickets that can no longer have an effect.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        self.0.retain(|_, started| !is_over(started.at, now));
    }
}

/// The tickets that a request ends as a whole. May include other values of such entries.
pub(super) fn ended_by<'r>(request: &'r Request<'_>) -> impl Iterator<Item = &'r str> {
    let ends = request.descriptors().iter().filter(|of| matches!(of.hits, Hits::Take(_)));
    let entries = ends.flat_map(|descriptor| &descriptor.entries);
    entries.filter(|entry| entry.key == TICKET_KEY).map(|entry| entry.value)
}

/// Whether what was taken at `taken` no longer has an effect.
pub(super) fn is_over(taken: Timestamp, now: Timestamp) -> bool {
    now.since(taken) > HOLD_MAX
}
