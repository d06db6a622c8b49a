//! State shared by streams and the thread of a server: known requests, and the queue of questions.

use super::{
    exchanges::{HeldTicket, Question},
    known::KnownRequests,
};
use crate::{
    metrics::{Event, Metrics},
    renewals::Renewals,
    settings::Server,
};
use std::sync::{Arc, Weak, atomic::AtomicBool};
use tidegate_core::{clock::since_boot, store::Seed, sync::Mutex};
use tidegate_shared::lease::Monotonic;
use tokio::sync::Notify;

/// The most questions in the queue. Beyond it, requests remain undecided.
const QUESTIONS_MAX: usize = 4_096;

/// State shared by streams and the thread.
pub(super) struct Shared {
    pub(super) server: Server,
    /// Random number of this process at the server.
    pub(super) node: u64,
    pub(super) known: KnownRequests,
    pub(super) questions: Mutex<Vec<Question>>,
    /// Wakes the thread.
    pub(super) wake: Notify,
    pub(super) is_stopped: AtomicBool,
    /// Whether the server cannot be reached: requests do not wait for it.
    pub(super) is_away: AtomicBool,
    /// Whether a request for which no message has room was logged.
    pub(super) is_length_logged: AtomicBool,
    /// Events of connections and renewals that are not yet in the figures. Connections have at most some tens in a second.
    events: Mutex<Vec<Event>>,
    /// Tickets of requests in progress.
    pub(super) renewals: Renewals<Arc<HeldTicket>>,
    /// Figures to publish.
    pub(super) metrics: Mutex<Vec<Weak<Metrics>>>,
}

/// The time of leases. It includes suspensions of the process or its machine, which lengthen no credit.
pub(super) fn now() -> Monotonic {
    #[cfg(test)]
    if let Some(nanos) = super::tests::TIME.get() {
        return Monotonic::from_nanos(nanos);
    }
    Monotonic::from_nanos(since_boot())
}

impl Shared {
    /// The state of a process with this number.
    pub(super) fn new(server: Server, node: u64, seed: Seed) -> Self {
        Self {
            server,
            node,
            known: KnownRequests::new(seed),
            questions: Mutex::default(),
            wake: Notify::new(),
            is_stopped: AtomicBool::new(false),
            is_away: AtomicBool::new(false),
            is_length_logged: AtomicBool::new(false),
            events: Mutex::default(),
            renewals: Renewals::default(),
            metrics: Mutex::default(),
        }
    }

    /// Passes a question to the thread; false if there are too many.
    pub(super) fn push(&self, question: Question) -> bool {
        let mut questions = self.questions.lock();
        if questions.len() >= QUESTIONS_MAX {
            return false;
        }
        questions.push(question);
        drop(questions);
        self.wake.notify_one();
        true
    }

    /// Counts an event of a connection or a renewal.
    pub(super) fn count(&self, event: Event) {
        self.events.lock().push(event);
    }

    /// Publishes all figures. Events of connections and renewals go to the configuration loaded last.
    pub(super) fn publish(&self) {
        let mut all = self.metrics.lock();
        all.retain(|metrics| metrics.strong_count() > 0);
        let live: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        drop(all);
        if let Some(last) = live.last() {
            self.events.lock().drain(..).for_each(|event| last.count(event));
        }
        live.iter().for_each(|metrics| metrics.schedule());
    }
}
