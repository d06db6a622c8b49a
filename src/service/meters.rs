//! The figures of the service, for metrics.

use super::{
    CodeCounts, DurationBounds, Durations, HttpRefusals, LimitCountSettings, LimitCounts, ReferenceCounts,
    Refusal, Refusals, Tally,
};
use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};
use tidegate_core::limit::{Code, Decision, Request};

/// Settings of the figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterSettings {
    /// Counts of each limit.
    pub limits: LimitCountSettings,
    /// Buckets of the durations of responses.
    pub bounds: DurationBounds,
    /// Whether hits are counted by the keys of the reference server too.
    pub reference: bool,
}

/// The figures of the service. Nothing is counted until [`Self::start`].
#[derive(Default)]
pub struct Meters {
    is_started: AtomicBool,
    decisions: Tally,
    limits: LimitCounts,
    durations: Durations,
    refusals: Refusals,
    http_refusals: HttpRefusals,
    /// Calls by `POST /json` that reached the service.
    json_calls: AtomicU64,
    /// None unless they are configured.
    reference: Option<ReferenceCounts>,
}

impl Meters {
    /// Figures with these settings.
    pub fn new(settings: MeterSettings) -> Self {
        let MeterSettings { limits, .. } = &settings;
        let reference = || ReferenceCounts::new(limits.series_max, limits.near_limit_percent);
        Self {
            reference: settings.reference.then(reference),
            limits: LimitCounts::new(settings.limits),
            durations: Durations::new(settings.bounds),
            ..Self::default()
        }
    }

    /// Counts from now on: something reads the figures.
    pub fn start(&self) {
        self.is_started.store(true, Ordering::Relaxed);
    }

    /// Whether anything reads the figures.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// Counts of decisions.
    pub fn decisions(&self) -> &Tally {
        &self.decisions
    }

    /// Counts of each limit.
    pub fn limits(&self) -> &LimitCounts {
        &self.limits
    }

    /// Counts by the keys of the reference server, if they are configured.
    pub fn reference(&self) -> Option<&ReferenceCounts> {
        self.reference.as_ref()
    }

    /// Durations of responses and of waits in queues.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// Counts of refused requests.
    pub fn refusals(&self) -> &Refusals {
        &self.refusals
    }

    /// Counts of requests that the HTTP port refused. They are counted from the beginning: where there is no reader, there is
    /// hardly ever such a port.
    pub fn http_refusals(&self) -> &HttpRefusals {
        &self.http_refusals
    }

    /// Counts a call by `POST /json`, whose message is a request, before it is decided or refused.
    pub fn count_json_call(&self) {
        if self.is_started() {
            self.json_calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls by `POST /json`.
    pub fn json_calls(&self) -> u64 {
        self.json_calls.load(Ordering::Relaxed)
    }

    /// Counts a decision that is sent.
    #[inline]
    pub(super) fn count_decision(&self, request: &Request<'_>, decision: &Decision<'_>, was_queued: bool) {
        if self.is_started() {
            self.decisions.count(decision);
            self.limits.count(request, decision, was_queued);
            if let Some(reference) = &self.reference {
                reference.count(request, decision);
            }
        }
    }

    /// Counts responses that took equally long.
    #[inline]
    pub(super) fn count_responses(&self, duration: Duration, counts: CodeCounts) {
        self.durations.count_responses(duration, counts);
    }

    /// Counts a response that took so long off the fast path.
    pub(super) fn count_response(&self, duration: Duration, code: Code) {
        let counts = match code {
            Code::Ok => CodeCounts { admitted: 1, denied: 0 },
            Code::OverLimit => CodeCounts { admitted: 0, denied: 1 },
        };
        if self.is_started() {
            self.durations.count_responses(duration, counts);
        }
    }

    /// Counts the wait of a queued request that was released.
    pub(super) fn count_queue_wait(&self, wait: Duration) {
        if self.is_started() {
            self.durations.count_queue_wait(wait);
        }
    }

    /// Counts a request that is refused.
    pub fn count_refusal(&self, refusal: Refusal) {
        if self.is_started() {
            self.refusals.count(refusal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::limit::{Status, Timestamp};

    /// Decides, refuses and times once.
    fn use_once(meters: &Meters) {
        let decision = Decision::new(Code::Ok, [Status::NO_LIMIT].into_iter().collect());
        meters.count_decision(&Request::new("d"), &decision, false);
        meters.count_response(Duration::from_micros(1), Code::Ok);
        meters.count_queue_wait(Timestamp::from_millis(2).since(Timestamp::from_millis(1)));
        meters.count_refusal(Refusal::NoDescriptors);
    }

    fn sums(meters: &Meters) -> [u64; 4] {
        let durations = meters.durations();
        [
            meters.decisions().totals().admitted,
            durations.responses(Code::Ok).buckets.iter().sum(),
            durations.queue_waits().buckets.iter().sum(),
            meters.refusals().sum(Refusal::NoDescriptors),
        ]
    }

    #[test]
    fn nothing_is_counted_until_something_reads() {
        let meters = Meters::default();
        use_once(&meters);
        assert_eq!(sums(&meters), [0; 4]);
        meters.start();
        use_once(&meters);
        assert_eq!(sums(&meters), [1; 4]);
    }
}
