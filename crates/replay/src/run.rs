//! One replay: decides each event under the proposed rules, and under the current rules if there are any.

use super::{
    CancelledStep, Demand, Event, LoggedDecision, Report, ResetStep, Step, StepRef, Suggestion,
    holds::{AssumedEnds, Holds},
    logged_rules::{LoggedRulesError, RulesInForce},
    store_settings::store_settings,
    tally::{Outcome, Tally},
    tickets::Tickets,
};
use tidegate_core::{
    limit::{Decision, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{Limiter, Pinned},
    rules::RuleSet,
};

/// Events between two sweeps of expired counters.
const EVENTS_PER_SWEEP: u64 = 1 << 18;

/// The most pages that are swept under one lock. Nothing else waits for it.
const PAGES_PER_LOCK: usize = 1_024;

/// The most nanoseconds by which an event's time may be before that of an event with a lower number.
const BACKWARDS_MAX: u64 = 10_000_000_000;

/// Decides events again.
pub struct Replay {
    proposed: RulesInForce,
    /// None if the current decisions are those of the log.
    current: Option<Limiter>,
    /// Holds of the log.
    holds: Holds,
    /// Ends under the proposed rules.
    of_proposed: Ends,
    /// Ends under the current rules.
    of_current: Ends,
    /// Time of the latest event; never runs backwards.
    now: Timestamp,
    order: OrderOfRequests,
    decided: u64,
    without_rules: u64,
    tally: Tally,
    demand: Option<Demand>,
}

/// The ends of requests that one set of rules has admitted.
#[derive(Default)]
struct Ends {
    tickets: Tickets,
    assumed: AssumedEnds,
}

impl Ends {
    /// Decides a logged request under these rules, after the ends that are due.
    fn replay<'p>(
        &mut self,
        (limiter, rules): (Option<&Limiter>, &'p Pinned<'_>),
        holds: &Holds,
        logged: &LoggedDecision<'_>,
        now: Timestamp,
    ) -> Decision<'p> {
        let request = &logged.request;
        self.assumed.end_due(limiter, holds, now);
        let decided = match self.tickets.replaced(request) {
            Some(replaced) => rules.decide(&replaced, now),
            None => rules.decide(request, now),
        };
        self.tickets.end(request, now);
        match logged.ticket {
            Some(ticket) => self.tickets.start(ticket, &decided, now),
            None => self.assumed.start(&decided, request, holds, now),
        }
        decided
    }

    fn sweep(&mut self, now: Timestamp) {
        self.tickets.sweep(now);
        self.assumed.sweep(now);
    }
}

/// Counts the requests that are out of order.
#[derive(Default)]
struct OrderOfRequests {
    /// The number of the latest request of each process.
    numbers: Vec<(u64, u64)>,
    out_of_order: u64,
}

impl OrderOfRequests {
    #[inline]
    fn note(&mut self, logged: &LoggedDecision<'_>, now: Timestamp) {
        let Some(place) = logged.place else {
            self.out_of_order += u64::from(logged.time < now);
            return;
        };
        match self.numbers.iter_mut().rfind(|(run, _)| *run == place.run) {
            Some((_, latest)) if *latest > place.number => self.out_of_order += 1,
            Some((_, latest)) => *latest = place.number,
            None => self.numbers.push((place.run, place.number)),
        }
        let is_late = logged.time.as_nanos() < now.as_nanos().saturating_sub(BACKWARDS_MAX);
        self.out_of_order += u64::from(is_late);
    }
}

impl Replay {
    /// A replay under the proposed rules, against other rules or against the log. Under each set of rules there are at most `counters_max`
    /// counters; requests that need another counter are denied.
    pub fn new(proposed: RuleSet, current: Option<RuleSet>, counters_max: usize) -> Self {
        let limiter = |rules| Limiter::new(rules, store_settings(counters_max), false);
        Self {
            tally: Tally::new(current.is_none()),
            proposed: RulesInForce::given(limiter(proposed)),
            current: current.map(limiter),
            holds: Holds::default(),
            of_proposed: Ends::default(),
            of_current: Ends::default(),
            now: Timestamp::EPOCH,
            order: OrderOfRequests::default(),
            decided: 0,
            without_rules: 0,
            demand: None,
        }
    }

    /// A replay under the rules in the log, against the log's decisions.
    pub fn as_logged(counters_max: usize) -> Self {
        Self {
            proposed: RulesInForce::of_log(counters_max),
            ..Self::new(RuleSet::default(), None, counters_max)
        }
    }

    /// Collects the hits of some rules from now on, for [`Demand::suggestions`].
    pub fn collect_demand(&mut self, demand: Demand) {
        self.demand = Some(demand);
    }

    /// Repeats one step of the log.
    pub fn apply(&mut self, step: StepRef<'_, '_>) -> Result<(), LoggedRulesError> {
        let step = match step {
            StepRef::Kept(step) => step,
            StepRef::InPlace(decision) => {
                self.replay_logged(decision);
                return Ok(());
            }
        };
        match step {
            Step::Decision(event) => self.replay(event),
            Step::Rules(step) => self.proposed.put_in_force(step)?,
            Step::Reset(step) => self.reset(step),
            Step::Cancelled(step) => self.cancel(step),
        }
        Ok(())
    }

    /// Decides one event at its time.
    pub fn replay(&mut self, event: &Event) {
        self.replay_logged(&event.decision());
    }

    fn replay_logged(&mut self, logged: &LoggedDecision<'_>) {
        self.order.note(logged, self.now);
        self.now = self.now.max(logged.time);
        // Numbers have the order of decisions, which were made at their own times.
        let now = if logged.place.is_some() { logged.time } else { self.now };
        let request = &logged.request;
        if let Some(demand) = &mut self.demand {
            demand.add(request, self.now);
        }
        self.proposed.switch_to(logged.place);
        let Some(rules) = self.proposed.pin(logged.place) else {
            self.without_rules += 1;
            return;
        };
        let holds = &self.holds;
        let decided = self.of_proposed.replay((self.proposed.limiter(), &rules), holds, logged, now);
        let proposed = Outcome::Decided(&decided);
        match &self.current {
            None => self.tally.add(logged, proposed, Outcome::Recorded(logged), self.now),
            Some(current) => {
                let rules = current.pin();
                let decided = self.of_current.replay((Some(current), &rules), holds, logged, now);
                self.tally.add(logged, proposed, Outcome::Decided(&decided), self.now);
            }
        }
        self.holds.note(logged, now);
        self.decided += 1;
        if self.decided.is_multiple_of(EVENTS_PER_SWEEP) {
            let now = self.sweep();
            self.holds.sweep(now);
            self.of_proposed.sweep(now);
            self.of_current.sweep(now);
        }
    }

    /// Removes the counters that an operator removed.
    pub fn reset(&self, step: &ResetStep) {
        for limiter in self.limiters() {
            let rules = limiter.pin();
            if step.descriptors.is_empty() {
                // The proposed rules may lack a rule of the log.
                let _ = rules.reset_rule(&step.domain, step.rule.as_deref(), step.time);
                continue;
            }
            let mut request = Request::new(&step.domain);
            for entries in &step.descriptors {
                let entries = entries.iter().map(|(key, value)| Entry { key, value }).collect();
                request.push(Descriptor { entries, limit: None, hits: Hits::Peek });
            }
            let _ = rules.reset(&request, step.time);
        }
    }

    /// Ends a request whose client reset the call, if the replay has admitted it.
    pub fn cancel(&mut self, step: &CancelledStep) {
        let CancelledStep { time, place, ticket } = step;
        self.now = self.now.max(*time);
        let now = if place.is_some() { *time } else { self.now };
        self.holds.end(ticket, now);
        let of_sides = [
            (self.proposed.limiter(), self.of_proposed.tickets.take(ticket)),
            (self.current.as_ref(), self.of_current.tickets.take(ticket)),
        ];
        for (limiter, ticket) in of_sides {
            if let (Some(limiter), Some(ticket)) = (limiter, ticket) {
                limiter.cancel_start(&ticket, now);
            }
        }
    }

    /// Requests decided so far.
    pub fn decided(&self) -> u64 {
        self.decided
    }

    /// Requests that are not decided, because the log lacks their rules.
    pub fn without_rules(&self) -> u64 {
        self.without_rules
    }

    /// Requests that come after a request that was sent later. If there are any, the decisions of the replay are wrong.
    pub fn out_of_order(&self) -> u64 {
        self.order.out_of_order
    }

    /// Requests that a full store denied, under the proposed and the current rules. If there are any, the report is not exact.
    pub fn no_room(&self) -> usize {
        self.limiters().map(|limiter| limiter.store().no_room()).sum()
    }

    /// The report on all events, and the suggestions if demand was collected.
    pub fn into_report(self) -> (Report, Vec<Suggestion>) {
        let suggestions = self.demand.map(|demand| demand.suggestions()).unwrap_or_default();
        let mut report = self.tally.into_report(self.order.out_of_order);
        // On both sides, rules have the limit names of the proposed rules.
        for limiter in self.current.as_ref().into_iter().chain(self.proposed.limiter()) {
            report.name_limits(&limiter.rules());
        }
        (report, suggestions)
    }

    fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        self.proposed.limiter().into_iter().chain(&self.current)
    }

    /// Drops counters that are expired for all later events. Returns a time before which no later event is.
    fn sweep(&self) -> Timestamp {
        let now = Timestamp::from_nanos(self.now.as_nanos().saturating_sub(BACKWARDS_MAX));
        for limiter in self.limiters() {
            let store = limiter.store();
            for shard in 0..store.shard_count() {
                while !store.sweep(shard, PAGES_PER_LOCK, now).finished {}
            }
        }
        now
    }
}
