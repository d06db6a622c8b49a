//! The figures of the service, for metrics.

use super::{
    HttpRefusal, KeyPathCounts, LimitCountSettings, LimitCounts, LimitadorCounts, LimitadorSettings,
    ReferenceCounts, Refusal,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tidegate_core::limit::{Code, Decision, Request};
use tidegate_counts::{Counts, DurationBounds, Histogram, LogTimes, ThreadIndex, labels};

/// Time between two log lines of one reason for refusals.
pub const REFUSAL_LOG_INTERVAL: Duration = Duration::from_secs(1);

/// Settings of the figures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterSettings {
    /// Counts of each limit.
    pub limits: LimitCountSettings,
    /// Buckets of the durations of responses.
    pub bounds: DurationBounds,
    /// Whether hits are also counted by the keys of the reference server.
    pub reference: bool,
    /// Whether calls are also counted as in Limitador.
    pub limitador: Option<LimitadorSettings>,
}

labels! {
    /// An event of decisions.
    pub enum DecisionEvent {
        /// A request was decided as OK.
        Admitted = "ok",
        /// A request was decided as OVER_LIMIT.
        Denied = "over_limit",
        /// A call by `POST /json` that reached the service, before it is decided or refused.
        JsonCall = "json_call",
    }
}

/// Numbers of responses by code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CodeCounts {
    /// Number of OK.
    pub admitted: u32,
    /// Number of OVER_LIMIT.
    pub denied: u32,
}

/// The figures of the service. Nothing is counted until [`Self::start`], with two exceptions: descriptors without a limit, which are also
/// logged, and refusals of the HTTP port. That port hardly ever exists without a reader of the figures.
pub struct Meters {
    is_started: AtomicBool,
    /// Decisions.
    pub decisions: Counts<DecisionEvent>,
    /// Requests that were refused without a decision.
    pub refusals: Counts<Refusal>,
    /// Time of the last log line for each reason.
    pub refusals_logged: LogTimes<Refusal>,
    /// Requests that the HTTP port refused.
    pub http_refusals: Counts<HttpRefusal>,
    /// Time of the last log line for each of these reasons.
    pub http_refusals_logged: LogTimes<HttpRefusal>,
    /// Descriptors without a limit, unless a rule exempts them.
    pub unlimited: KeyPathCounts,
    /// Descriptors whose entry for the day on which their windows begin is not a day.
    pub unknown_days: KeyPathCounts,
    /// Hits and requests of each limit.
    pub limits: LimitCounts,
    /// Hits by the keys of the reference server, if they are configured.
    pub reference: Option<ReferenceCounts>,
    /// Calls as Limitador counts them, if they are configured.
    pub limitador: Option<LimitadorCounts>,
    /// Waits of queued requests that were released.
    pub queue_waits: Histogram,
    /// Durations of OK and OVER_LIMIT, from the reading of the request's bytes to the writing of the response's bytes.
    responses: [Histogram; 2],
}

impl Default for Meters {
    fn default() -> Self {
        Self::new(MeterSettings::default())
    }
}

impl Meters {
    /// Figures with these settings.
    pub fn new(settings: MeterSettings) -> Self {
        let MeterSettings { limits, bounds, reference, limitador } = settings;
        // 1 ms to 10 s.
        let queue_waits = DurationBounds::of_micros([
            1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
            5_000_000, 10_000_000,
        ]);
        let reference = reference.then(|| ReferenceCounts::new(limits.series_max, limits.near_limit_percent));
        let limitador = limitador.map(|settings| LimitadorCounts::new(settings, limits.series_max));
        Self {
            is_started: AtomicBool::new(false),
            decisions: Counts::default(),
            refusals: Counts::default(),
            refusals_logged: LogTimes::every(REFUSAL_LOG_INTERVAL),
            http_refusals: Counts::default(),
            http_refusals_logged: LogTimes::every(REFUSAL_LOG_INTERVAL),
            unlimited: KeyPathCounts::default(),
            unknown_days: KeyPathCounts::default(),
            limits: LimitCounts::new(limits),
            reference,
            limitador,
            queue_waits: Histogram::new(queue_waits),
            responses: [Histogram::new(bounds.clone()), Histogram::new(bounds)],
        }
    }

    /// Counts from now on, because something reads the figures.
    pub fn start(&self) {
        self.is_started.store(true, Ordering::Relaxed);
    }

    /// Whether anything reads the figures.
    #[inline]
    pub fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Relaxed)
    }

    /// The durations of responses with this code.
    pub fn responses(&self, code: Code) -> &Histogram {
        &self.responses[usize::from(code == Code::OverLimit)]
    }

    /// Counts a decision that is sent.
    #[inline]
    pub(super) fn count_decision(&self, request: &Request<'_>, decision: &Decision<'_>, was_queued: bool) {
        if self.is_started() {
            let thread = ThreadIndex::current();
            let event = match decision.code {
                Code::Ok => DecisionEvent::Admitted,
                Code::OverLimit => DecisionEvent::Denied,
            };
            self.decisions.add_at(thread, event, 1);
            self.limits.count(request, decision, was_queued);
            if let Some(reference) = &self.reference {
                reference.count(request, decision);
            }
            if let Some(limitador) = &self.limitador {
                limitador.count(request, decision);
            }
        }
    }

    /// Counts responses with the same duration.
    #[inline]
    pub(super) fn count_responses(&self, duration: Duration, counts: CodeCounts) {
        for (histogram, count) in self.responses.iter().zip([counts.admitted, counts.denied]) {
            if count > 0 {
                histogram.add(duration, count.into());
            }
        }
    }

    /// Counts a response with this duration, off the fast path.
    pub(super) fn count_response(&self, duration: Duration, code: Code) {
        if self.is_started() {
            self.responses(code).add(duration, 1);
        }
    }

    /// Counts the wait of a queued request that was released.
    pub(super) fn count_queue_wait(&self, wait: Duration) {
        if self.is_started() {
            self.queue_waits.add(wait, 1);
        }
    }

    /// Counts a request that is refused.
    pub fn count_refusal(&self, refusal: Refusal) {
        if self.is_started() {
            self.refusals.count(refusal);
        }
    }

    /// Counts a call by `POST /json` whose message is a request, before it is decided or refused.
    pub fn count_json_call(&self) {
        if self.is_started() {
            self.decisions.count(DecisionEvent::JsonCall);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::limit::Status;

    /// Decides, refuses and times once.
    fn use_once(meters: &Meters) {
        let decision =
            |code| Decision::new(code, [Status::NO_LIMIT, Status::UNLIMITED].into_iter().collect());
        meters.count_decision(&Request::new("d"), &decision(Code::Ok), false);
        meters.count_decision(&Request::new("d"), &decision(Code::OverLimit), false);
        meters.count_response(Duration::from_micros(1), Code::Ok);
        meters.count_queue_wait(Duration::from_millis(300));
        meters.count_refusal(Refusal::NoDescriptors);
    }

    fn sums(meters: &Meters) -> [u64; 5] {
        let number = |histogram: &Histogram| histogram.sums().buckets.iter().sum();
        let of = [DecisionEvent::Admitted, DecisionEvent::Denied];
        let [admitted, denied] = of.map(|event| meters.decisions.sum(event));
        [
            admitted,
            denied,
            number(meters.responses(Code::Ok)),
            number(&meters.queue_waits),
            meters.refusals.sum(Refusal::NoDescriptors),
        ]
    }

    #[test]
    fn nothing_is_counted_until_something_reads() {
        let meters = Meters::default();
        use_once(&meters);
        assert_eq!(sums(&meters), [0; 5]);
        meters.start();
        use_once(&meters);
        assert_eq!(sums(&meters), [1, 1, 1, 1, 1]);
    }

    #[test]
    fn responses_are_counted_by_code() {
        let meters = Meters::default();
        meters.count_responses(Duration::from_micros(10), CodeCounts { admitted: 3, denied: 0 });
        meters.count_responses(Duration::from_micros(11), CodeCounts { admitted: 1, denied: 4 });
        let of = |code| meters.responses(code).sums().buckets[..2].to_vec();
        assert_eq!([Code::Ok, Code::OverLimit].map(of), [[3, 1], [0, 4]]);
    }

    #[test]
    fn queue_waits_have_bounds_of_their_own() {
        let meters = Meters::default();
        meters.start();
        meters.count_queue_wait(Duration::from_millis(300));
        meters.count_queue_wait(Duration::from_secs(60));
        let waits = meters.queue_waits.sums();
        let found: Vec<_> =
            waits.bounds.iter().zip(&waits.buckets).filter(|(_, count)| **count > 0).collect();
        assert_eq!(found, [(&0.5, &1)]);
        assert_eq!((waits.buckets.last(), waits.sum), (Some(&1), 60.3));
    }
}
