//! A node's side: the credits that it holds on one counter, and the denials that it keeps.

use super::{
    HolderTerms, LeaseRequest, LeaseResponse, Monotonic, NodeId, ResponseState, Supply, demand::Demand,
    message::less_drift, terms::REPORT_NANOS_MIN,
};
use std::time::Duration;
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::{Reset, Timestamp},
};

/// The longest time for which a denial is kept: a give-back, reset or rule change elsewhere takes effect within it.
const DENIAL_NANOS_MAX: u64 = 1_000_000_000;

/// The node's part in one counter.
///
/// Invariants: the credits, `spend_to - spent` before `deadline`, are at most those that the store counts as outstanding for this node.
/// Only the response to the last request raises them.
#[derive(Clone, Debug)]
pub struct Holder {
    terms: HolderTerms,
    /// Number of this holder: a node drops an idle holder, and may make another. Microseconds of the clock when it was made, unless
    /// numbered.
    id: u64,
    demand: Demand,
    /// Hits spent, in total.
    spent: u64,
    /// Time of the last spent hit.
    spent_at: Monotonic,
    /// Total up to which hits may be spent.
    spend_to: u64,
    /// End of the credits.
    pub(super) deadline: Monotonic,
    /// The part of `spent` that the store has acknowledged.
    acknowledged: u64,
    /// Credits after the last response.
    allotted: u64,
    /// Credits at which more are requested.
    credits_low: u64,
    /// Sequence number of the last request.
    pub(super) sequence: u64,
    /// Time of the last request.
    sent: Monotonic,
    /// `spent` in the last request, until its response arrives.
    pending: Option<u64>,
    /// Time before which no request is due, except for a lost one.
    next_request: Monotonic,
    /// Nanoseconds from one request to the next, if the credits last.
    report_after: u64,
    /// Whether the next request declares all credits, because the store may have lost them.
    declares: bool,
    supply: Supply,
    denial: Option<HolderDenial>,
    /// Hits that were free beyond all credits, at the last response.
    free: u64,
    /// Time at which the whole limit would be free, as of the last response.
    full_at: Monotonic,
    /// The counter, as of the last response, if it had its state; and the time of that response.
    counter: Option<(ResponseState, Monotonic)>,
}

/// If the store admits hits after a denial and at least this many remain, the denial is dropped, and the store decides all hits again.
const ALLOWANCE_MAX: u64 = 64;

/// A denial of the store.
#[derive(Clone, Debug)]
struct HolderDenial {
    /// Number of hits that are denied.
    hits: u64,
    /// Whether more hits are denied too.
    covers: Covers,
    /// End of the time for which the denial is kept.
    until: Monotonic,
    /// Time at which the store would admit the hits.
    reset: Monotonic,
    /// Hits that remained.
    remaining: u64,
    /// Hits that the store may decide meanwhile: as many were left when it last admitted some.
    allowance: u64,
}

/// Whether more hits than the denied number are denied too. Fewer may be admitted.
#[derive(Clone, Debug)]
enum Covers {
    /// Unknown: they may be denied for longer.
    Nothing,
    /// They are denied, and their wait follows from the state of the counter, received at this moment.
    State(CounterState, Monotonic),
    /// They are denied, and their wait follows from the counter as of the last response, if it is known.
    Response,
    /// All hits beyond the allowance are denied.
    All,
}

/// The state of a counter at a moment of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterState {
    /// The state.
    pub state: State,
    /// Time of the store's clock.
    pub at: Timestamp,
}

/// A denial that the store responded with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreDenial {
    /// Hits that were denied.
    pub hits: u64,
    /// Hits that remained.
    pub remaining: u64,
    /// Time for which as many hits are certainly denied. Zero if outstanding credits deny them, which nodes may return.
    pub denied_for: Duration,
    /// Time after which as many hits are admitted, if known.
    pub reset: Duration,
    /// The state by which the store denied them, if it is known. The waits of more hits follow from it.
    pub state: Option<CounterState>,
}

/// Decision of a node on hits, by its credits and denials.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HolderDecision {
    /// Credits cover them.
    Covered,
    /// They are denied.
    Denied {
        /// The moment from which the hits that the store denied may be admitted. See [`Holder::denied`].
        until: Monotonic,
        /// Hits that remain.
        remaining: u64,
    },
    /// The store has to decide.
    Undecided,
}

impl Holder {
    /// A holder without credits. If the limit is small, it keeps denials and never requests credits.
    pub fn new(terms: HolderTerms, now: Monotonic) -> Self {
        Self {
            terms,
            id: now.as_nanos() / 1_000,
            demand: Demand::new(now),
            spent: 0,
            spent_at: Monotonic::ORIGIN,
            spend_to: 0,
            deadline: Monotonic::ORIGIN,
            acknowledged: 0,
            allotted: 0,
            credits_low: 0,
            sequence: 0,
            sent: Monotonic::ORIGIN,
            pending: None,
            next_request: Monotonic::ORIGIN,
            report_after: 0,
            declares: false,
            supply: if terms.is_small() { Supply::TooSmall } else { Supply::Ample },
            denial: None,
            free: 0,
            full_at: Monotonic::ORIGIN,
            counter: None,
        }
    }

    /// Gives the holder a random number below 2^53. The store can then distinguish holders of two processes, even if the processes have the
    /// same number and make their holders in the same microsecond.
    pub fn numbered(self, id: u64) -> Self {
        Self { id, ..self }
    }

    /// Counts hits as demanded, and returns what to do with them. Does not spend them: a request with several counters spends all or none.
    #[inline]
    pub fn evaluate(&mut self, hits: u64, now: Monotonic) -> HolderDecision {
        self.demand.record(hits, self.terms.settings.length_nanos(), now);
        let decision = self.preview(hits, now);
        if decision == HolderDecision::Undecided && self.denial.is_some() {
            self.ask_for_all(hits, now);
        }
        decision
    }

    /// While the store decides this request, denies other requests for the counter if it is denied and in high demand.
    #[cold]
    fn ask_for_all(&mut self, hits: u64, now: Monotonic) {
        let hold = self.hold_nanos(now);
        if let Some(denial) = self.denial.as_mut().filter(|denial| hold > 0 && hits >= denial.hits) {
            if now < denial.until {
                denial.allowance = denial.allowance.saturating_sub(hits);
            } else {
                denial.until = now.plus_nanos(hold);
                denial.reset = denial.reset.max(denial.until);
            }
        }
    }

    fn hold_nanos(&self, now: Monotonic) -> u64 {
        self.terms.hold_nanos(self.demand.hits(self.terms.settings.length_nanos(), now))
    }

    /// As [`Self::evaluate`], without counting the hits as demanded.
    #[inline]
    pub fn preview(&self, hits: u64, now: Monotonic) -> HolderDecision {
        if hits <= self.credits(now) {
            return HolderDecision::Covered;
        }
        if let Some(denial) = self.kept_denial(hits, now) {
            let remaining = match denial.covers {
                Covers::All => denial.allowance,
                Covers::Nothing | Covers::State(..) | Covers::Response => denial.remaining,
            };
            return HolderDecision::Denied { until: denial.reset, remaining };
        }
        let is_scarce = self.supply == Supply::Scarce
            && hits <= self.allotted.max(1)
            && now < self.sent.plus(self.terms.settings.length);
        match is_scarce {
            true => HolderDecision::Denied { until: self.next_poll(), remaining: self.credits(now) },
            false => HolderDecision::Undecided,
        }
    }

    /// The kept denial that denies these hits, if one does.
    #[inline]
    fn kept_denial(&self, hits: u64, now: Monotonic) -> Option<&HolderDenial> {
        let denies = |denial: &&HolderDenial| {
            let covers_more = !matches!(denial.covers, Covers::Nothing);
            (hits == denial.hits || covers_more && hits > denial.hits)
                && hits > denial.allowance
                && now < denial.until
        };
        self.denial.as_ref().filter(denies)
    }

    /// Hits that remain, and the wait of the denied `hits`. None if the state of the counter is not known. `algorithm` is that of the
    /// counter.
    pub fn denied(&self, hits: u64, algorithm: &Algorithm, now: Monotonic) -> Option<(u64, Reset)> {
        let (remaining, wait, until) = match self.kept_denial(hits, now) {
            Some(HolderDenial {
                covers: Covers::State(CounterState { state, at }, received), until, ..
            }) => {
                let then = at.saturating_add_nanos(now.nanos_since(*received));
                let wait = algorithm.until_admits(state, hits, then);
                (algorithm.remaining(state, then), Some(wait).filter(|&wait| wait != Reset::NOW)?, *until)
            }
            Some(HolderDenial { covers: Covers::Response, until, remaining, .. }) => {
                (*remaining, self.wait_by_response(hits, algorithm, now)?, *until)
            }
            Some(HolderDenial { covers: Covers::Nothing | Covers::All, .. }) => return None,
            None => (self.credits(now), self.wait_by_response(hits, algorithm, now)?, self.next_poll()),
        };
        Some((remaining, wait.max(Reset::After(Duration::from_nanos(until.nanos_since(now).max(1))))))
    }

    fn wait_by_response(&self, hits: u64, algorithm: &Algorithm, now: Monotonic) -> Option<Reset> {
        let (counter, received) = self.counter.as_ref()?;
        Some(counter.until_admits(hits, algorithm, now.nanos_since(*received)))
    }

    /// Spends credits that cover the hits.
    #[inline]
    pub fn spend(&mut self, hits: u64, now: Monotonic) {
        self.spent += hits;
        // Never backwards: the sum of all hits is dated at the last of them.
        self.spent_at = self.spent_at.max(now);
    }

    /// Spends the hits if credits cover them.
    #[inline]
    pub fn decide(&mut self, hits: u64, now: Monotonic) -> HolderDecision {
        let decision = self.evaluate(hits, now);
        if decision == HolderDecision::Covered {
            self.spend(hits, now);
        }
        decision
    }

    /// Hits that the node may spend.
    #[inline]
    pub fn credits(&self, now: Monotonic) -> u64 {
        if now < self.deadline { self.spend_to.saturating_sub(self.spent) } else { 0 }
    }

    /// Whether the store grants credits, by its last response.
    #[inline]
    pub fn is_leased(&self) -> bool {
        self.supply != Supply::TooSmall
    }

    /// Its number among the holders of the node.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Hits spent, in total.
    pub fn spent(&self) -> u64 {
        self.spent
    }

    /// Hits that remained for all nodes, as of the last response, and the credits of this node.
    pub fn remaining(&self, now: Monotonic) -> u64 {
        self.free.saturating_add(self.credits(now))
    }

    /// Keeps a denial that the store returned at `now` to a request sent at `sent`.
    pub fn keep_denial(&mut self, denied: StoreDenial, sent: Monotonic, now: Monotonic) {
        let StoreDenial { hits, remaining, denied_for, reset, state } = denied;
        let nanos = u64::try_from(denied_for.as_nanos()).unwrap_or(u64::MAX);
        let hold = self.hold_nanos(now);
        let until = sent.plus_nanos(nanos.min(DENIAL_NANOS_MAX)).max(now.plus_nanos(hold));
        let reset = now.plus(reset).max(until);
        let covers = state.map_or(Covers::Nothing, |state| Covers::State(state, now));
        let denial = HolderDenial { hits, covers, until, reset, remaining, allowance: 0 };
        self.denial = (nanos > 0 || hold > 0).then_some(denial);
    }

    /// Notes that the store admitted hits at `now`, after which `remaining` are left. If the counter is in high demand and was denied
    /// before, the store decides no more hits than these.
    pub fn admitted(&mut self, remaining: u64, now: Monotonic) {
        let hold = if self.denial.is_some() { self.hold_nanos(now) } else { 0 };
        if hold > 0 {
            let until = now.plus_nanos(hold);
            let covers = Covers::All;
            let denial =
                HolderDenial { hits: 1, covers, until, reset: until, remaining: 0, allowance: remaining };
            self.denial = (remaining < ALLOWANCE_MAX).then_some(denial);
        }
    }

    /// Time until the whole limit would be free, if nothing was spent since the last response.
    pub fn until_full(&self, now: Monotonic) -> Duration {
        Duration::from_nanos(self.full_at.nanos_since(now))
    }

    /// Gives up credits that have expired, and returns their number.
    pub fn drop_expired(&mut self, now: Monotonic) -> u64 {
        if now < self.deadline {
            return 0;
        }
        let unspent = self.spend_to.saturating_sub(self.spent);
        self.spend_to = self.spent;
        unspent
    }

    /// Drops the denial that is kept: hits were given back, the counter was reset, or its rule changed.
    pub fn drop_denial(&mut self) {
        (self.denial, self.counter) = (None, None);
    }

    /// The request that is due, if there is one.
    pub fn poll(&mut self, node: NodeId, now: Monotonic) -> Option<LeaseRequest> {
        if !self.declares && now < self.next_poll() {
            return None;
        }
        let length = self.terms.settings.length_nanos();
        let (demand, credits) = (self.demand.hits(length, now), self.credits(now));
        let is_time = now.nanos_since(self.sent) >= self.report_after;
        let is_small = self.terms.is_small();
        if std::mem::take(&mut self.declares) && !is_small {
            return Some(self.send(node, credits, demand.max(1), now));
        }
        // Demand varies: a lease begins at twice the demand at which it is given up.
        let demand_min = self.terms.settings.grant_min.saturating_mul(if self.allotted > 0 { 1 } else { 2 });
        if is_small || demand < demand_min {
            let reports = self.spent > self.acknowledged || credits > 0;
            return (reports && (credits == 0 || is_time)).then(|| self.send(node, 0, 0, now));
        }
        let demand = self.demand.expected(length, now);
        let is_due = credits <= self.credits_low || is_time || self.supply != Supply::Ample;
        // Keeps as many credits as are spent before the response arrives. The store allots the rest anew.
        is_due.then(|| self.send(node, credits.min(demand / 8 + 1), demand, now))
    }

    /// The earliest moment at which `poll` can return a request, unless a decision makes one due.
    pub fn next_poll(&self) -> Monotonic {
        match self.pending {
            // The response is lost, or will be ignored.
            Some(_) => self.sent.plus_nanos((self.terms.settings.length_nanos() / 8).max(REPORT_NANOS_MIN)),
            None => self.next_request,
        }
    }

    /// The earliest moment at which the holder has to be looked at, unless [`Self::lower_next_look`] lowers it.
    pub fn next_look(&self) -> Monotonic {
        if self.declares {
            return Monotonic::ORIGIN;
        }
        let next_poll = self.next_poll();
        if self.pending.is_some() || self.supply != Supply::Ample {
            return next_poll;
        }
        // The moment at which a request becomes due if nothing is spent.
        self.sent.plus_nanos(self.report_after).min(self.deadline).max(next_poll)
    }

    /// Lowers the moment of the next look if the last decision may have made a request due.
    #[inline]
    pub fn lower_next_look(&self, look_at: &mut Monotonic, now: Monotonic) {
        if self.credits(now) <= self.credits_low && self.pending.is_none() && !self.terms.is_small() {
            *look_at = self.next_request.min(*look_at);
        }
    }

    /// Gives up all credits: the node stops, or the counter's rule has changed.
    pub fn release(&mut self, node: NodeId, now: Monotonic) -> Option<LeaseRequest> {
        self.denial = None;
        let reports = self.spent > self.acknowledged || self.credits(now) > 0;
        reports.then(|| self.send(node, 0, 0, now))
    }

    /// Notes a new epoch of the store: the next request declares the credits.
    pub fn declare(&mut self) {
        (self.declares, self.pending) = (true, None);
    }

    /// Takes a response. False if it does not answer the last request.
    pub fn accept(&mut self, response: &LeaseResponse, now: Monotonic) -> bool {
        self.accept_with(response, None, now)
    }

    /// Takes a response as [`Self::accept`] does, with the counter as of the response. Waits of denials follow from the counter.
    pub fn accept_with(
        &mut self,
        response: &LeaseResponse,
        counter: Option<ResponseState>,
        now: Monotonic,
    ) -> bool {
        let is_last = response.sequence == self.sequence;
        let Some(spent) = self.pending.filter(|_| is_last) else { return false };
        self.pending = None;
        self.acknowledged = spent;
        self.spend_to = response.spend_to;
        let valid_nanos = u64::try_from(response.valid_for.as_nanos()).unwrap_or(u64::MAX);
        self.deadline = self.sent.plus_nanos(less_drift(valid_nanos));
        self.allotted = self.credits(now);
        self.supply = response.supply;
        self.free = response.free;
        self.report_after = u64::try_from(response.report_after.as_nanos()).unwrap_or(u64::MAX);
        // As many are left at the next report if credits are spent evenly.
        let is_late = self.report_after > self.terms.settings.length_nanos() / 2;
        self.credits_low = self.allotted / if is_late { 4 } else { 2 };
        self.full_at = now.plus(response.until_full);
        match response.empty_for {
            Duration::ZERO => self.denial = None,
            wait => {
                let denied =
                    StoreDenial { hits: 1, remaining: 0, denied_for: wait, reset: wait, state: None };
                self.keep_denial(denied, self.sent, now);
                if let Some(denial) = self.denial.as_mut().filter(|_| counter.is_some()) {
                    denial.covers = Covers::Response;
                }
            }
        }
        self.counter = counter.map(|counter| (counter, now));
        let pause = match response.supply {
            Supply::Scarce if self.allotted == 0 => {
                self.report_after.clamp(REPORT_NANOS_MIN, DENIAL_NANOS_MAX)
            }
            // Credits last for several reports. If they do not, demand has risen.
            Supply::Ample => REPORT_NANOS_MIN,
            Supply::Scarce => self.terms.report_nanos_min(),
            Supply::TooSmall | Supply::Learning => self.terms.settings.length_nanos() / 2,
        };
        self.next_request = self.sent.plus_nanos(pause);
        true
    }

    /// Whether a new holder would do the same.
    pub fn is_idle(&self, now: Monotonic) -> bool {
        self.credits(now) == 0
            && self.spent == self.acknowledged
            && self.pending.is_none()
            && self.denial.as_ref().is_none_or(|denial| denial.until <= now)
            && self.demand.hits(self.terms.settings.length_nanos(), now) == 0
    }

    /// Makes a request that keeps `kept` credits and gives up all others.
    fn send(&mut self, node: NodeId, kept: u64, demand: u64, now: Monotonic) -> LeaseRequest {
        // Microseconds, so that the sequence also ascends from one holder to the next, and is exact as a double.
        self.sequence = (self.sequence + 1).max(now.as_nanos() / 1_000);
        self.sent = now;
        self.spend_to = self.spent + kept;
        self.pending = Some(self.spent);
        let (sequence, spent, acknowledged) = (self.sequence, self.spent, self.acknowledged);
        let spent_ago = now.nanos_since(self.spent_at);
        LeaseRequest { node, holder: self.id, sequence, spent, acknowledged, spent_ago, kept, demand }
    }
}
