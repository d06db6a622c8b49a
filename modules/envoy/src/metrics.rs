//! Figures of one configuration: counted in atomics, published to Envoy off the path of requests.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
use tidegate_core::limiter::{Limiter, ReservationCounts, SlotCounts};
use tidegate_envoy_abi::{ConfigHost, Counter, Host, Scheduler};

/// What became of a request, or of an entry that is applied when a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Ok,
    OverLimit,
    Error,
    FailureModeAllowed,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Ok, Self::OverLimit, Self::Error, Self::FailureModeAllowed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OverLimit => "over_limit",
            Self::Error => "error",
            Self::FailureModeAllowed => "failure_mode_allowed",
        }
    }
}

/// Where a request was decided that a server may decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In Envoy, by credits or a kept denial.
    Envoy,
    Server,
}

impl Place {
    const ALL: [Self; 2] = [Self::Envoy, Self::Server];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Envoy => "envoy",
            Self::Server => "server",
        }
    }
}

/// What becomes of connections to a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ConnectionEvent {
    /// Its server has sent SETTINGS.
    Connected,
    /// None could be made, to any address.
    Failed,
    /// It ended, or a response on it was none that the module can use.
    Lost,
    /// It was given up: no response for a second.
    Unresponsive,
}

impl ConnectionEvent {
    const NAMES: [&str; 4] = ["connected", "failed", "lost", "unresponsive"];
}

/// What becomes of renewals of tickets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RenewalEvent {
    Renewed,
    /// The server does not hold it any more: its request is not counted from then on.
    NotHeld,
    /// Not decided. It is repeated when a third of its time has passed.
    Failed,
}

impl RenewalEvent {
    const NAMES: [&str; 3] = ["renewed", "not_held", "failed"];
}

/// The figures.
pub(crate) struct Metrics {
    decisions: Figure<{ Outcome::ALL.len() }>,
    places: Figure<{ Place::ALL.len() }>,
    connections: Figure<{ ConnectionEvent::NAMES.len() }>,
    renewals: Figure<{ RenewalEvent::NAMES.len() }>,
    slots: Figure<{ SLOT_EVENTS.len() }>,
    reservations: Figure<{ RESERVATION_EVENTS.len() }>,
    stat_prefix: String,
    /// Schedules a publication; none where Envoy counts in streams only (before 1.39), and once the configuration is gone.
    scheduler: Mutex<Option<Scheduler>>,
    in_streams: bool,
}

/// What becomes of slots and of reservations, as the metrics of a server name it. Unknown tickets are left out: here they are of requests
/// that have lasted too long, or whose entries for the end name the ticket as well.
const SLOT_EVENTS: [&str; 4] = ["taken", "released", "expired", "renewed"];
const RESERVATION_EVENTS: [&str; 4] = ["started", "ended", "lost", "uncorrected"];

/// A counter of Envoy with a label, and what is not yet published of each of its values.
struct Figure<const VALUES: usize> {
    counter: Option<Counter>,
    values: [&'static str; VALUES],
    pending: [AtomicU64; VALUES],
}

impl<const VALUES: usize> Figure<VALUES> {
    fn new(counter: Option<Counter>, values: [&'static str; VALUES]) -> Self {
        Self { counter, values, pending: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    fn add(&self, value: usize, by: u64) {
        self.pending[value].fetch_add(by, Ordering::Relaxed);
    }

    fn has_pending(&self) -> bool {
        self.pending.iter().any(|pending| pending.load(Ordering::Relaxed) > 0)
    }

    /// Publishes by a function that adds to a counter with such labels.
    fn publish(&self, stat_prefix: &str, count: &mut dyn FnMut(Counter, &[&str], u64)) {
        let Some(counter) = self.counter else { return };
        for (value, pending) in self.values.into_iter().zip(&self.pending) {
            // Read first: an exchange takes the cache line from the others.
            if pending.load(Ordering::Relaxed) > 0 {
                let labels = [value, stat_prefix];
                let labels = if stat_prefix.is_empty() { &labels[..1] } else { &labels };
                count(counter, labels, pending.swap(0, Ordering::Relaxed));
            }
        }
    }
}

impl Metrics {
    /// Defines the counters, each with a label and, where it is set, `stat_prefix`.
    pub(crate) fn new(host: &ConfigHost, stat_prefix: &str) -> Self {
        let define = |name, label| {
            let labels = [label, "stat_prefix"];
            host.define_counter(name, if stat_prefix.is_empty() { &labels[..1] } else { &labels })
        };
        let can_count = host.can_count();
        Self {
            decisions: Figure::new(define("decisions", "outcome"), Outcome::ALL.map(Outcome::name)),
            places: Figure::new(define("decided_in", "place"), Place::ALL.map(Place::name)),
            connections: Figure::new(define("connections", "event"), ConnectionEvent::NAMES),
            renewals: Figure::new(define("renewals", "event"), RenewalEvent::NAMES),
            slots: Figure::new(define("slots", "event"), SLOT_EVENTS),
            reservations: Figure::new(define("reservations", "event"), RESERVATION_EVENTS),
            stat_prefix: stat_prefix.to_owned(),
            scheduler: Mutex::new(if can_count { host.scheduler() } else { None }),
            in_streams: !can_count,
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.decisions.add(outcome as usize, 1);
    }

    pub(crate) fn count_place(&self, place: Place) {
        self.places.add(place as usize, 1);
    }

    pub(crate) fn count_connection(&self, event: ConnectionEvent) {
        self.connections.add(event as usize, 1);
    }

    pub(crate) fn count_renewal(&self, event: RenewalEvent) {
        self.renewals.add(event as usize, 1);
    }

    /// Counts what has become of slots and reservations between two readings.
    pub(crate) fn count_held(&self, before: &HeldCounts, after: &HeldCounts) {
        for (value, (before, after)) in before.slots.into_iter().zip(after.slots).enumerate() {
            self.slots.add(value, after - before);
        }
        for (value, (before, after)) in before.reservations.into_iter().zip(after.reservations).enumerate() {
            self.reservations.add(value, after - before);
        }
    }

    /// Number of this outcome that is not yet published.
    #[cfg(test)]
    pub(crate) fn pending(&self, outcome: Outcome) -> u64 {
        self.decisions.pending[outcome as usize].load(Ordering::Relaxed)
    }

    /// Number of decisions there that is not yet published.
    #[cfg(test)]
    pub(crate) fn pending_place(&self, place: Place) -> u64 {
        self.places.pending[place as usize].load(Ordering::Relaxed)
    }

    /// Schedules a publication, if there is something to publish.
    pub(crate) fn schedule(&self) {
        let has_pending = self.decisions.has_pending()
            || self.places.has_pending()
            || self.connections.has_pending()
            || self.renewals.has_pending()
            || self.slots.has_pending()
            || self.reservations.has_pending();
        // Under the lock, so that Envoy's configuration exists for as long as the call takes: see `retire`.
        if has_pending
            && let Some(scheduler) = &*self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
        {
            scheduler.schedule();
        }
    }

    /// The configuration is going: nothing is scheduled from now on.
    pub(crate) fn retire(&self) {
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) = None;
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
        self.decisions.publish(&self.stat_prefix, count);
        self.places.publish(&self.stat_prefix, count);
        self.connections.publish(&self.stat_prefix, count);
        self.renewals.publish(&self.stat_prefix, count);
        self.slots.publish(&self.stat_prefix, count);
        self.reservations.publish(&self.stat_prefix, count);
    }
}

/// Numbers of slots and reservations since the start, by event.
#[derive(Clone, Default)]
pub(crate) struct HeldCounts {
    slots: [u64; SLOT_EVENTS.len()],
    reservations: [u64; RESERVATION_EVENTS.len()],
}

impl HeldCounts {
    /// Of a limiter.
    pub(crate) fn of(limiter: &Limiter) -> Self {
        let SlotCounts { taken, released, expired, renewed, .. } = limiter.slot_counts();
        let slots = [taken, released, expired, renewed];
        let ReservationCounts { started, ended, lost, uncorrected, .. } = limiter.reservation_counts();
        Self { slots, reservations: [started, ended, lost, uncorrected] }
    }
}
