//! Records of sent decisions: counted in the figures, and passed to readers.

use super::{
    AssignmentEvent, CallOrigin, CodeCounts, DecisionReader, Event, Propagators, QuotaPeer, QuotaStream,
    RateLimitService, SentAssignment,
};
use std::sync::Arc;
use tidegate_core::limit::{Code, Decision, Descriptor, Request, Status, Timestamp};

impl RateLimitService {
    /// Records a decision that is sent as a response: counts it, and passes it to the readers. Every decision is recorded exactly once.
    /// `facts` returns the call of the request, the time at which the request was received, and the number of the rules.
    #[inline]
    pub(super) fn record<'e, 't: 'e>(
        &self,
        request: &'e Request<'t>,
        decision: &Decision<'_>,
        was_queued: bool,
        facts: impl FnOnce() -> (CallOrigin<'e>, Timestamp, u64),
    ) {
        self.count(request, decision, was_queued);
        // If decisions are only counted, a decision does nothing more here.
        if self.is_read {
            self.read(request, decision, facts());
        }
    }

    #[inline]
    pub(super) fn count(&self, request: &Request<'_>, decision: &Decision<'_>, was_queued: bool) {
        self.meters.count_decision(request, decision, was_queued);
        if decision.statuses.iter().any(Status::is_without_limit) {
            self.count_without_limit(request, decision);
        }
        if let Some(rare) = &decision.rare {
            self.count_unknown_days(request, &rare.unknown_days);
        }
    }

    /// Counts descriptors whose entry for the day of their windows is not a day.
    #[cold]
    fn count_unknown_days(&self, request: &Request<'_>, descriptors: &[u32]) {
        for &index in descriptors {
            let descriptor = &request.descriptors()[index as usize];
            self.meters.unknown_days.count(request.domain(), &descriptor.entries, 1);
        }
    }

    /// Counts descriptors without a limit, unless a rule exempts them. Matches them again.
    #[cold]
    fn count_without_limit(&self, request: &Request<'_>, decision: &Decision<'_>) {
        let Some(limiter) = self.limiter.get() else { return };
        let count = |descriptor: &Descriptor<'_>| {
            self.meters.unlimited.count(request.domain(), &descriptor.entries, 1)
        };
        limiter.pin().for_undecided(request, decision, count);
    }

    pub(super) fn read<'e, 't: 'e>(
        &self,
        request: &'e Request<'t>,
        decision: &Decision<'_>,
        (origin, received, generation): (CallOrigin<'e>, Timestamp, u64),
    ) {
        self.pass_on(&Event { request, decision, origin, received, generation, clock: &*self.clock });
    }

    /// Whether no reader needs the next decisions of this thread.
    #[inline(never)]
    pub(super) fn passes_over(&self, decisions: usize, received: Timestamp) -> bool {
        let is_passed = |reader: &Arc<dyn DecisionReader>| reader.passes_over(decisions, received);
        self.readers.is_empty() && self.observer.as_ref().is_some_and(is_passed)
    }

    #[inline(never)]
    fn pass_on(&self, event: &Event<'_, '_, '_>) {
        self.readers.iter().chain(&self.observer).for_each(|reader| reader.read(event));
    }

    /// Passes assignments that a client of quotas is sent now to readers, without those that change nothing.
    pub fn show_assignments(&self, stream: &QuotaStream, peer: &QuotaPeer, assignments: &[SentAssignment]) {
        for sent in assignments.iter().filter(|sent| self.has_readers() && !sent.is_passing) {
            let event = AssignmentEvent {
                sent: self.clock.now(),
                domain: Arc::clone(&stream.domain),
                stream: stream.number,
                peer: peer.clone(),
                bucket: sent.bucket.clone(),
                assignment: sent.assignment,
            };
            self.readers.iter().for_each(|reader| reader.read_assignment(event.clone()));
        }
    }

    /// The time, if anything reads the durations of responses.
    #[inline]
    pub fn measured_time(&self) -> Option<Timestamp> {
        self.meters.is_started().then(|| self.clock.now())
    }

    /// Counts responses that are written now, to requests received at `received`.
    #[inline]
    pub fn count_written(&self, received: Timestamp, counts: CodeCounts) {
        self.meters.count_responses(self.clock.now().since(received), counts);
    }

    /// The formats in which trace contexts are read, if decisions have readers.
    #[inline]
    pub fn propagators(&self) -> Option<&Propagators> {
        self.has_readers().then_some(&self.propagators)
    }

    /// Whether decisions have readers, so that their [`CallOrigin`] is needed.
    #[inline]
    pub fn has_readers(&self) -> bool {
        !self.readers.is_empty()
    }

    /// Counts the duration of a decision. If the request waited for slots and has them, also counts its wait.
    pub(super) fn count_wait(&self, received: Timestamp, code: Code, has_waited: bool) {
        let Some(now) = self.measured_time() else { return };
        match (has_waited, code) {
            (false, _) => self.meters.count_response(now.since(received), code),
            (true, Code::Ok) => self.meters.count_queue_wait(now.since(received)),
            (true, Code::OverLimit) => {}
        }
    }
}
