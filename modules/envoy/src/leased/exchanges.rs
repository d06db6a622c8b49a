//! The calls to the server: the decisions and claims in each, and the effects of their responses.
//!
//! Invariants:
//!
//! - The claims of a call are of counters that were learnt under the rules that the call names.
//! - When the server has other rules, everything known is dropped, and credits are returned under the former rules.
//! - Every waiting request is finished once: by its decision, its timeout, or the end of the connection.

use super::{
    call::{Call, Outcome},
    counter::Counter,
    known::{HitList, Known, KnownRequests, Part, SHARDS},
    looks::Looks,
    messages::{
        CLAIMS_MAX, CounterId, DECISIONS_MAX, Decided, ExchangeRequest, ExchangeResponse, LearntCounter,
        Renewal, RulesId, cancel_request, release_request, renewal_request,
    },
    room::{CONTENT_BYTES_MAX, FRAMING_BYTES},
};
use crate::{metrics::RenewalEvent, protobuf::Malformed};
use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};
use tidegate_core::{limiter::slots_of_ticket, store::Key};
use tidegate_shared::lease::{HolderTerms, LeaseRequest, Monotonic, NodeId, Settings, StoreDenial};

/// The most counters with credits. Each takes some 500 bytes.
const COUNTERS_MAX: usize = 16_384;
/// Number of calls in flight from which several decisions share a call.
const SINGLE_CALLS_MAX: usize = 32;
/// The shortest time between two checks for due claims, in nanoseconds, and the longest.
const LOOK_NANOS_MIN: u64 = 2_000_000;
const LOOK_NANOS_MAX: u64 = 100_000_000;
/// Nanoseconds between two sweeps, each of one shard of the known requests.
const SWEEP_NANOS: u64 = 1_000_000_000 / SHARDS as u64;
/// Nanoseconds after which an empty call is sent: its response names the rules in force, and shows that the server responds.
pub(super) const IDLE_NANOS: u64 = 1_000_000_000;
/// Nanoseconds without a response after which a connection is dropped.
const OVERDUE_NANOS: u64 = 1_000_000_000;
/// Nanoseconds for which the end of a request is repeated.
pub(super) const RELEASE_NANOS: u64 = 10_000_000_000;

/// A question to the server, which a call will carry.
pub(super) struct Question {
    pub(super) purpose: Purpose,
    pub(super) domain: Arc<str>,
    /// The request as the server reads it.
    pub(super) body: Vec<u8>,
    /// The fingerprint and hits of a request that credits may decide in the future.
    pub(super) key: Option<(Key, HitList)>,
    /// The time after which no request waits for the decision.
    pub(super) deadline: Monotonic,
}

/// A ticket that is renewed while its request goes on.
pub(super) struct HeldTicket {
    pub(super) domain: Arc<str>,
    pub(super) ticket: Box<str>,
    /// The request that got it, encoded.
    pub(super) request: Vec<u8>,
}

/// The use of a decision.
pub(super) enum Purpose {
    /// A waiting request.
    Call(Arc<Call>),
    /// No request waits: hits are counted at the end of a stream.
    Count,
    /// No request waits: a request with a ticket ends. Repeated until the server has it, since a second end changes nothing.
    End,
    /// No request waits: the ticket with this number is renewed.
    Renewal(u64),
}

/// The result of a ticket's renewal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Renewed {
    pub(super) number: u64,
    pub(super) event: RenewalEvent,
}

impl Question {
    /// The renewal of the ticket of this number.
    pub(super) fn renewal(number: u64, held: &HeldTicket, now: Monotonic) -> Self {
        Self {
            purpose: Purpose::Renewal(number),
            domain: Arc::clone(&held.domain),
            body: renewal_request(&held.request, &held.ticket),
            key: None,
            deadline: now.plus_nanos(RELEASE_NANOS),
        }
    }

    /// The release of slots.
    pub(super) fn release(domain: &Arc<str>, ticket: &str, now: Monotonic) -> Self {
        Self::end(domain, release_request(domain, ticket), now)
    }

    /// The end of a request that was admitted too late and has not reached the upstream.
    pub(super) fn cancel(domain: &Arc<str>, ticket: &str, now: Monotonic) -> Self {
        Self::end(domain, cancel_request(domain, ticket), now)
    }

    fn end(domain: &Arc<str>, body: Vec<u8>, now: Monotonic) -> Self {
        let deadline = now.plus_nanos(RELEASE_NANOS);
        Self { purpose: Purpose::End, domain: Arc::clone(domain), body, key: None, deadline }
    }

    /// Finishes a waiting request. If it no longer waits, returns the question that cancels it.
    fn finish(&self, outcome: Outcome, now: Monotonic) -> Option<Self> {
        match &self.purpose {
            Purpose::Call(call) => {
                let late = call.finish(outcome).err().flatten()?;
                Some(Self::cancel(&self.domain, &late.ticket?, now))
            }
            Purpose::Renewal(_) => None,
            // No stream holds these slots. Estimates stay: no end names their cost.
            Purpose::Count | Purpose::End => {
                let slots = slots_of_ticket(&outcome?.ticket?)?;
                Some(Self::release(&self.domain, &slots, now))
            }
        }
    }

    fn is_over(&self, now: Monotonic) -> bool {
        self.deadline <= now || matches!(&self.purpose, Purpose::Call(call) if !call.is_waiting())
    }
}

/// A call that was sent.
struct InFlight {
    questions: Vec<Question>,
    claims: Vec<Arc<Counter>>,
    sent: Monotonic,
}

/// All calls of a process to its server.
#[derive(Default)]
pub(super) struct Exchanges {
    /// The number of a [`NodeId`].
    node: u64,
    rules: RulesId,
    /// None before the first response.
    settings: Option<Settings>,
    counters: Looks,
    /// Claims that return credits, under former rules.
    retired: VecDeque<(RulesId, Vec<(CounterId, LeaseRequest)>)>,
    questions: VecDeque<Question>,
    in_flight: HashMap<u64, InFlight>,
    next_token: u64,
    last_sent: Option<Monotonic>,
    last_look: Monotonic,
    next_sweep: usize,
    last_sweep: Monotonic,
    renewed: Vec<Renewed>,
    has_shared_store: bool,
}

impl Exchanges {
    /// The calls of a process with this random number.
    pub(super) fn new(node: u64) -> Self {
        Self { node: node.max(1), ..Self::default() }
    }

    /// Queues questions for the next calls.
    pub(super) fn push(&mut self, questions: impl IntoIterator<Item = Question>) {
        self.questions.extend(questions);
    }

    /// Makes the next call: its token, and its message.
    pub(super) fn next(&mut self, known: &KnownRequests, now: Monotonic) -> Option<(u64, Vec<u8>)> {
        if let Some((rules, claims)) = self.retired.pop_front() {
            let message = self.message(rules, &[], &claims);
            return Some(
                self.sent(InFlight { questions: Vec::new(), claims: Vec::new(), sent: now }, message),
            );
        }
        let mut room = CONTENT_BYTES_MAX;
        let mut questions = Vec::new();
        // A decision that takes the server long delays the other decisions of its call.
        let count_max = if self.in_flight.len() < SINGLE_CALLS_MAX { 1 } else { DECISIONS_MAX };
        while questions.len() < count_max
            && let Some(question) = self.questions.pop_front()
        {
            let bytes = question.body.len() + FRAMING_BYTES;
            if question.is_over(now) || bytes > CONTENT_BYTES_MAX {
                // Too long only with a long ticket, which a renewal has in each descriptor.
                if let Purpose::Renewal(number) = question.purpose {
                    self.renewed.push(Renewed { number, event: RenewalEvent::Failed });
                }
                question.finish(None, now);
            } else if bytes > room {
                self.questions.push_front(question);
                break;
            } else {
                room -= bytes;
                questions.push(question);
            }
        }
        let claims = if questions.is_empty() && now.nanos_since(self.last_look) >= LOOK_NANOS_MIN {
            self.sweep(known, now);
            self.due(CLAIMS_MAX, now)
        } else {
            Vec::new()
        };
        let is_recent = self.last_sent.is_some_and(|sent| now.nanos_since(sent) < IDLE_NANOS);
        if questions.is_empty() && claims.is_empty() && is_recent {
            return None;
        }
        let (counters, claims): (Vec<_>, Vec<_>) =
            claims.into_iter().map(|(counter, claim)| (Arc::clone(&counter), (counter.id, claim))).unzip();
        let message = self.message(self.rules, &questions, &claims);
        Some(self.sent(InFlight { questions, claims: counters, sent: now }, message))
    }

    fn message(
        &self,
        rules: RulesId,
        questions: &[Question],
        claims: &[(CounterId, LeaseRequest)],
    ) -> Vec<u8> {
        ExchangeRequest { node: self.node, rules, claims }
            .encode(questions.iter().map(|question| &*question.body))
    }

    fn sent(&mut self, call: InFlight, message: Vec<u8>) -> (u64, Vec<u8>) {
        self.last_sent = Some(call.sent);
        self.next_token += 1;
        self.in_flight.insert(self.next_token, call);
        (self.next_token, message)
    }

    /// Sweeps the shards that are due.
    fn sweep(&mut self, known: &KnownRequests, now: Monotonic) {
        let due = now.nanos_since(self.last_sweep) / SWEEP_NANOS;
        for _ in 0..due.min(SHARDS as u64) {
            known.sweep(self.next_sweep, now);
            self.next_sweep += 1;
            self.last_sweep = now;
        }
    }

    /// Returns at most `count_max` claims that are due; the next call has the others. Drops counters that are of no use.
    fn due(&mut self, count_max: usize, now: Monotonic) -> Vec<(Arc<Counter>, LeaseRequest)> {
        self.counters.take_moved();
        let (mut due, mut kept) = (Vec::new(), Vec::new());
        while due.len() < count_max
            && let Some(counter) = self.counters.due(now)
        {
            let (claim, is_kept) = counter.claim(NodeId(self.node), now);
            match is_kept {
                true => kept.push(counter.id),
                false => self.counters.remove(counter.id),
            }
            due.extend(claim.map(|claim| (counter, claim)));
        }
        kept.into_iter().for_each(|id| self.counters.put_back(id));
        if due.len() < count_max {
            self.last_look = now;
        }
        due
    }

    /// Applies the message of a response.
    pub(super) fn accept(
        &mut self,
        token: u64,
        message: &[u8],
        known: &KnownRequests,
        now: Monotonic,
    ) -> Result<(), Malformed> {
        let response = ExchangeResponse::decode(message);
        let Ok(response) = response else {
            self.fail(token, now);
            return Err(Malformed);
        };
        self.settings = response.settings.or(self.settings);
        self.has_shared_store |= response.has_shared_store;
        self.saw_rules(response.rules, known, now);
        let Some(InFlight { questions, claims, sent }) = self.in_flight.remove(&token) else { return Ok(()) };
        for (counter, grant) in claims.iter().zip(&response.grants) {
            let is_current = response.rules == self.rules && grant.sequence != 0;
            if is_current {
                counter.accept(grant, now);
                self.counters.put_back(counter.id);
            }
        }
        let mut decisions = response.decisions.into_iter();
        for question in questions {
            let mut decided = decisions.next().unwrap_or_default();
            if let Some(response) = &mut decided.response
                && response.ticket.is_some()
                && !decided.hold.is_zero()
            {
                response.renewal = Some(Renewal { hold: decided.hold, request: question.body.clone() });
            }
            if let Purpose::Renewal(number) = question.purpose {
                let event = match &decided.response {
                    Some(response) if response.is_denied => RenewalEvent::NotHeld,
                    Some(_) => RenewalEvent::Renewed,
                    None => RenewalEvent::Failed,
                };
                self.renewed.push(Renewed { number, event });
            }
            if response.rules == self.rules {
                self.learn(&question, &decided, known, (sent, now));
            }
            let release = question.finish(decided.response, now);
            self.questions.extend(release);
        }
        Ok(())
    }

    /// Fails a call. Its ends of requests are repeated.
    pub(super) fn fail(&mut self, token: u64, now: Monotonic) {
        let call = self.in_flight.remove(&token);
        self.give_up(call.into_iter().flat_map(|call| call.questions).collect(), now);
    }

    /// Sends the questions of a call that was not processed again.
    pub(super) fn repeat(&mut self, token: u64) {
        for question in self.in_flight.remove(&token).into_iter().flat_map(|call| call.questions).rev() {
            self.questions.push_front(question);
        }
    }

    /// Fails all calls because the server is away: no request waits any more.
    pub(super) fn fail_all(&mut self, now: Monotonic) {
        let calls = std::mem::take(&mut self.in_flight).into_values().flat_map(|call| call.questions);
        let all: Vec<Question> = calls.chain(std::mem::take(&mut self.questions)).collect();
        self.give_up(all, now);
        self.last_sent = None;
    }

    fn give_up(&mut self, questions: Vec<Question>, now: Monotonic) {
        for question in questions {
            match question.purpose {
                Purpose::Renewal(number) => {
                    self.renewed.push(Renewed { number, event: RenewalEvent::Failed });
                }
                Purpose::End if question.deadline > now => self.questions.push_back(question),
                _ => drop(question.finish(None, now)),
            }
        }
    }

    /// Takes the results of renewals since the last call.
    pub(super) fn take_renewed(&mut self) -> Vec<Renewed> {
        std::mem::take(&mut self.renewed)
    }

    /// Whether a server has stated that its counters are in a shared store.
    pub(super) fn has_shared_store(&self) -> bool {
        self.has_shared_store
    }

    /// Finishes requests that have waited too long. False if a response is overdue: the server does not respond.
    pub(super) fn expire(&mut self, now: Monotonic) -> bool {
        let in_flight = self.in_flight.values().flat_map(|call| &call.questions);
        for question in in_flight.chain(&self.questions) {
            if question.deadline <= now {
                question.finish(None, now);
            }
        }
        self.questions.retain(|question| question.deadline > now);
        self.in_flight.values().all(|call| now.nanos_since(call.sent) < OVERDUE_NANOS)
    }

    /// The time of the next step on a connection with room for calls, unless something arrives before.
    pub(super) fn next_step(&self, now: Monotonic) -> Monotonic {
        let earliest = self.last_look.plus_nanos(LOOK_NANOS_MIN);
        let look = self.counters.next_look(earliest, now.plus_nanos(LOOK_NANOS_MAX));
        self.next_deadline(now).min(look)
    }

    /// The time at which a request stops waiting, at most [`LOOK_NANOS_MAX`] from now. While no call can be sent, nothing else is due.
    pub(super) fn next_deadline(&self, now: Monotonic) -> Monotonic {
        let waiting = self.in_flight.values().flat_map(|call| &call.questions).chain(&self.questions);
        let calls =
            waiting.filter(|question| matches!(&question.purpose, Purpose::Call(call) if call.is_waiting()));
        calls.map(|question| question.deadline).fold(now.plus_nanos(LOOK_NANOS_MAX), Ord::min)
    }

    /// Notes the rules at the server; other rules than before drop everything known.
    fn saw_rules(&mut self, rules: RulesId, known: &KnownRequests, now: Monotonic) {
        let is_former = rules.epoch == self.rules.epoch && rules.generation <= self.rules.generation;
        if is_former || rules.epoch == 0 {
            return;
        }
        known.clear();
        self.retire(now);
        self.rules = rules;
    }

    /// Drops all counters, and returns their credits with the next calls.
    pub(super) fn retire(&mut self, now: Monotonic) {
        let node = NodeId(self.node);
        let claims: Vec<_> = self
            .counters
            .take_all()
            .filter_map(|counter| Some((counter.id, counter.retire(node, now)?)))
            .collect();
        let calls = claims.chunks(CLAIMS_MAX).map(|claims| (self.rules, claims.to_vec()));
        self.retired.extend(calls);
    }

    /// Learns the counters of a request from its decision, and keeps its denials.
    fn learn(
        &mut self,
        question: &Question,
        decided: &Decided,
        known: &KnownRequests,
        (sent, now): (Monotonic, Monotonic),
    ) {
        let (Some((key, hits)), Some(response)) = (&question.key, &decided.response) else { return };
        let Some(settings) = self.settings else { return };
        let is_whole = decided.counters.len() == hits.len() && response.statuses.len() == hits.len();
        if !is_whole {
            return;
        }
        let parts = decided.counters.iter().zip(&response.statuses).map(|(learnt, status)| {
            let counter = match learnt.id {
                Some(id) => Some(self.counter(id, learnt, settings, now)?),
                None => None,
            };
            let part =
                |counter| Part { counter, limit: status.limit.clone(), remaining: status.remaining.into() };
            Some(counter.map(part))
        });
        let Some(parts) = parts.collect::<Option<smallvec::SmallVec<[_; 2]>>>() else { return };
        let mut over = 0;
        for (index, (part, learnt)) in parts.iter().zip(&decided.counters).enumerate() {
            let (Some(part), status) = (part, &response.statuses[index]) else { continue };
            let Some(holder) = &mut *part.counter.lock() else { continue };
            let remaining = status.remaining.into();
            if status.is_over {
                over |= 1 << index;
                let reset = std::time::Duration::from_secs(status.reset_seconds);
                let reset = if learnt.denied_for.is_zero() { reset } else { learnt.denied_for };
                let denied = StoreDenial {
                    hits: hits[index],
                    remaining,
                    denied_for: learnt.denied_for,
                    reset,
                    state: None,
                };
                holder.keep_denial(denied, sent, now);
            } else if !response.is_denied {
                holder.admitted(remaining, now);
            }
        }
        let existing = known.find(*key).filter(|known| known.renew(&parts));
        let known = existing.or_else(|| known.insert(*key, Known::new(parts, now)?));
        if let (Some(known), true) = (known, over != 0) {
            known.keep_denial(over, response.is_denied, &response.additions);
        }
    }

    /// The counter with this id; none if there are too many.
    fn counter(
        &mut self,
        id: CounterId,
        learnt: &LearntCounter,
        settings: Settings,
        now: Monotonic,
    ) -> Option<Arc<Counter>> {
        if let Some(counter) = self.counters.get(id) {
            return Some(Arc::clone(counter));
        }
        if self.counters.len() >= COUNTERS_MAX {
            return None;
        }
        let terms = HolderTerms { settings, limit: learnt.limit, span: learnt.span_micros };
        Some(self.counters.insert(id, terms, now))
    }
}
