//! Figures of one configuration: counted in atomics, published to Envoy off the path of requests.

use std::sync::atomic::{AtomicU64, Ordering};
use tidegate_core::{
    limiter::{HeldKind, Limiter},
    sync::Mutex,
};
use tidegate_envoy_abi::{ConfigHost, Counter, Host, Scheduler};

/// The outcome of a request, or of an entry applied at a stream's end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Ok,
    OverLimit,
    Error,
    FailureModeAllowed,
    /// Denied without a limit that is exceeded: there is no room for a new counter.
    CountersFull,
}

/// The place of a decision that a server may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In Envoy, by credits or a kept denial.
    Envoy,
    Server,
}

/// Events of connections to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionEvent {
    /// Its server has sent SETTINGS.
    Connected,
    /// No address could be connected to.
    Failed,
    /// It ended, or had a response that the module cannot use.
    Lost,
    /// It was dropped: no response for a second.
    Unresponsive,
}

/// Results of renewals of tickets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RenewalEvent {
    Renewed,
    /// The server does not hold it any more, and no longer counts its request.
    NotHeld,
    /// Not decided. It is repeated when a third of its time has passed.
    Failed,
}

/// Events counted one by one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Decision(Outcome),
    DecidedIn(Place),
    Connection(ConnectionEvent),
    Renewal(RenewalEvent),
}

/// The counters: name, label, and the values of the label, in the order of [`Event`] and its enumerations.
///
/// The last two count events of slots and of reservations, with the names of a server's metrics. Unknown tickets are left out: here they
/// come from requests that lasted too long, or whose entries for the end also name the ticket.
const COUNTERS: [(&str, &str, &[&str]); 6] = [
    ("decisions", "outcome", &["ok", "over_limit", "error", "failure_mode_allowed", "counters_full"]),
    ("decided_in", "place", &["envoy", "server"]),
    ("connections", "event", &["connected", "failed", "lost", "unresponsive"]),
    ("renewals", "event", &["renewed", "not_held", "failed"]),
    ("slots", "event", &["taken", "released", "expired", "renewed"]),
    ("reservations", "event", &["started", "ended", "lost", "uncorrected"]),
];

/// The most values of a label.
const VALUES_MAX: usize = 5;
/// Index in [`COUNTERS`] of the first counter in [`HeldCounts`].
const HELD: usize = 4;

impl Event {
    /// Index of its counter, and of its value.
    fn place(self) -> (usize, usize) {
        match self {
            Self::Decision(outcome) => (0, outcome as usize),
            Self::DecidedIn(place) => (1, place as usize),
            Self::Connection(event) => (2, event as usize),
            Self::Renewal(event) => (3, event as usize),
        }
    }

    /// The value of the label.
    pub(crate) fn name(self) -> &'static str {
        let (counter, value) = self.place();
        COUNTERS[counter].2[value]
    }
}

/// The figures.
pub(crate) struct Metrics {
    /// Envoy's counters, in the order of [`COUNTERS`].
    counters: [Option<Counter>; COUNTERS.len()],
    /// Counts of each value that are not yet published.
    pending: [[AtomicU64; VALUES_MAX]; COUNTERS.len()],
    stat_prefix: String,
    /// Schedules a publication; none where Envoy counts in streams only (before 1.39), and once the configuration is gone.
    scheduler: Mutex<Option<Scheduler>>,
    in_streams: bool,
}

impl Metrics {
    /// Defines the counters, each with a label and, where it is set, `stat_prefix`.
    pub(crate) fn new(host: &ConfigHost, stat_prefix: &str) -> Self {
        let labels = if stat_prefix.is_empty() { 1 } else { 2 };
        let can_count = host.can_count();
        Self {
            counters: COUNTERS
                .map(|(name, label, _)| host.define_counter(name, &[label, "stat_prefix"][..labels])),
            pending: Default::default(),
            stat_prefix: stat_prefix.to_owned(),
            scheduler: Mutex::new(if can_count { host.scheduler() } else { None }),
            in_streams: !can_count,
        }
    }

    pub(crate) fn count(&self, event: Event) {
        let (counter, value) = event.place();
        self.pending[counter][value].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the events of slots and reservations between two readings.
    pub(crate) fn count_held(&self, before: &HeldCounts, after: &HeldCounts) {
        let numbers = before.0.as_flattened().iter().zip(after.0.as_flattened());
        for (pending, (before, after)) in self.pending[HELD..].as_flattened().iter().zip(numbers) {
            pending.fetch_add(after - before, Ordering::Relaxed);
        }
    }

    /// Number of this event that is not yet published.
    #[cfg(test)]
    pub(crate) fn pending(&self, event: Event) -> u64 {
        let (counter, value) = event.place();
        self.pending[counter][value].load(Ordering::Relaxed)
    }

    /// Schedules a publication, if there is something to publish.
    pub(crate) fn schedule(&self) {
        let mut pending = self.pending.as_flattened().iter();
        // Under the lock, so that Envoy's configuration exists during the call: see `retire`.
        if pending.any(|pending| pending.load(Ordering::Relaxed) > 0)
            && let Some(scheduler) = &*self.scheduler.lock()
        {
            scheduler.schedule();
        }
    }

    /// Ends scheduling, because the configuration is about to go.
    pub(crate) fn retire(&self) {
        *self.scheduler.lock() = None;
    }

    /// Publishes on the main thread.
    pub(crate) fn publish(&self, host: &ConfigHost) {
        self.publish_by(&mut |counter, labels, by| host.count(counter, labels, by));
    }

    /// Publishes at the end of a stream, where Envoy counts in streams only.
    pub(crate) fn publish_in_stream(&self, host: &mut dyn Host) {
        if self.in_streams {
            self.publish_by(&mut |counter, labels, by| host.count(counter, labels, by));
        }
    }

    fn publish_by(&self, count: &mut dyn FnMut(Counter, &[&str], u64)) {
        let labels = if self.stat_prefix.is_empty() { 1 } else { 2 };
        for ((_, _, values), (counter, pending)) in
            COUNTERS.iter().zip(self.counters.iter().zip(&self.pending))
        {
            let Some(counter) = *counter else { continue };
            for (value, pending) in values.iter().zip(pending) {
                // Read first: an exchange would take the cache line from the other threads.
                if pending.load(Ordering::Relaxed) > 0 {
                    let by = pending.swap(0, Ordering::Relaxed);
                    count(counter, &[*value, &self.stat_prefix][..labels], by);
                }
            }
        }
    }
}

/// Numbers of slots and reservations since the start, by event, in the order of [`COUNTERS`].
#[derive(Clone, Default)]
pub(crate) struct HeldCounts([[u64; VALUES_MAX]; COUNTERS.len() - HELD]);

impl HeldCounts {
    /// Counts of a limiter.
    pub(crate) fn of(limiter: &Limiter) -> Self {
        let [slots, reservations] =
            [HeldKind::Slot, HeldKind::Reservation].map(|kind| limiter.ticket_counts(kind));
        Self([
            [slots.taken, slots.released, slots.expired, slots.renewed, 0],
            [reservations.taken, reservations.released, reservations.expired, reservations.uncorrected, 0],
        ])
    }
}
