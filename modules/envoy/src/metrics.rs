//! Figures of one configuration: counted in atomics, published to Envoy off the path of requests.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};
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

/// The figures.
pub(crate) struct Metrics {
    /// Not yet published, by [`Outcome`].
    pending: [AtomicU64; Outcome::ALL.len()],
    /// Not yet published, by [`Place`].
    pending_places: [AtomicU64; Place::ALL.len()],
    decisions: Option<Counter>,
    places: Option<Counter>,
    stat_prefix: String,
    /// Schedules a publication; none where Envoy counts in streams only (before 1.39), and once the configuration is gone.
    scheduler: Mutex<Option<Scheduler>>,
    in_streams: bool,
}

impl Metrics {
    /// Defines the counters `decisions` and `decided_in`, with the labels `outcome` or `place` and, where it is set, `stat_prefix`.
    pub(crate) fn new(host: &ConfigHost, stat_prefix: &str) -> Self {
        let define = |name, label| {
            let labels = [label, "stat_prefix"];
            host.define_counter(name, if stat_prefix.is_empty() { &labels[..1] } else { &labels })
        };
        let can_count = host.can_count();
        Self {
            pending: Default::default(),
            pending_places: Default::default(),
            decisions: define("decisions", "outcome"),
            places: define("decided_in", "place"),
            stat_prefix: stat_prefix.to_owned(),
            scheduler: Mutex::new(if can_count { host.scheduler() } else { None }),
            in_streams: !can_count,
        }
    }

    pub(crate) fn count(&self, outcome: Outcome) {
        self.pending[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_place(&self, place: Place) {
        self.pending_places[place as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Number of this outcome that is not yet published.
    #[cfg(test)]
    pub(crate) fn pending(&self, outcome: Outcome) -> u64 {
        self.pending[outcome as usize].load(Ordering::Relaxed)
    }

    /// Number of decisions there that is not yet published.
    #[cfg(test)]
    pub(crate) fn pending_place(&self, place: Place) -> u64 {
        self.pending_places[place as usize].load(Ordering::Relaxed)
    }

    /// Schedules a publication, if there is something to publish.
    pub(crate) fn schedule(&self) {
        if self.pending.iter().all(|pending| pending.load(Ordering::Relaxed) == 0) {
            return;
        }
        // Under the lock, so that Envoy's configuration exists for as long as the call takes: see `retire`.
        if let Some(scheduler) = &*self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) {
            scheduler.schedule();
        }
    }

    /// The configuration is going: nothing is scheduled from now on.
    pub(crate) fn retire(&self) {
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Publishes on the main thread.
    pub(crate) fn publish(&self, host: &ConfigHost) {
        self.publish_by(|counter, labels, by| host.count(counter, labels, by));
    }

    /// Publishes at the end of a stream, where Envoy counts in streams only.
    pub(crate) fn publish_in_stream(&self, host: &mut dyn Host) {
        if self.in_streams {
            self.publish_by(|counter, labels, by| host.count(counter, labels, by));
        }
    }

    fn publish_by(&self, mut count: impl FnMut(Counter, &[&str], u64)) {
        let mut publish = |counter: Option<Counter>, pending: &AtomicU64, label: &str| {
            let Some(counter) = counter else { return };
            // Read first: an exchange takes the cache line from the others.
            let by =
                if pending.load(Ordering::Relaxed) == 0 { 0 } else { pending.swap(0, Ordering::Relaxed) };
            if by > 0 {
                let labels = [label, &self.stat_prefix];
                count(counter, if self.stat_prefix.is_empty() { &labels[..1] } else { &labels }, by);
            }
        };
        for outcome in Outcome::ALL {
            publish(self.decisions, &self.pending[outcome as usize], outcome.name());
        }
        for place in Place::ALL {
            publish(self.places, &self.pending_places[place as usize], place.name());
        }
    }
}
