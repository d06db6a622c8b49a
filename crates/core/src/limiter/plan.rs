//! The charges of a request: which hits go to which counter, under which limit.

use super::{
    charge_limit::ChargeLimit,
    hit_sum::HitSum,
    keys::Keys,
    reached::Reached,
    ticket::{self, HeldKind},
};
use crate::{
    algorithm::State,
    limit::{BanPhase, CurrentLimit, Descriptor, Hits, Request, RequestLimit, Reset, Timestamp, Window},
    rules::{ChargePolicy, ConditionalLimits, DomainRules, Reserve, RuleLimit, Semantics, SharedValue},
    store::{Key, PlaceIndex},
};
use smallvec::SmallVec;
use std::ops::Range;

/// Number of charges, descriptors and counters of a request that need no allocation.
pub(super) const INLINE: usize = 4;

/// One descriptor of a request.
#[derive(Clone, Copy)]
pub(super) struct DescriptorPlan<'r> {
    pub(super) reached: Reached<'r>,
    /// Number of its charges, which are adjacent in [`Plan::charges`].
    pub(super) charges: u32,
    /// Whether one of its limits does not admit; shadow and quota mode not considered.
    pub(super) is_over: bool,
}

/// Hits of one descriptor for one counter.
pub(super) struct Charge<'r> {
    /// Key of the counter.
    pub(super) key: Key,
    pub(super) limit: ChargeLimit<'r>,
    pub(super) hits: Hits,
    /// Index of the descriptor in the request.
    pub(super) descriptor: u32,
    /// Whether the request is a report of hits that were used.
    is_report: bool,
    /// Whether this is the charge of a ban, for the limit before it: see `bans.rs`.
    pub(super) is_ban: bool,
    /// Whether a peek checks for one more hit, in either semantics.
    pub(super) is_check: bool,
    /// Whether the hits fit.
    pub(super) fit: Fit,
    /// Whether the hits are counted at all: see [`Compat::stop_counting`](super::Compat::stop_counting).
    pub(super) counts: bool,
    /// Hits of the counter beyond the limit, right after this charge in the order of the request; 0 with Tidegate's semantics.
    pub(super) excess: u64,
    /// After the decision: hits that its limit would admit; 0 if there is no room for the counter.
    pub(super) remaining: u64,
    /// After the decision: when `remaining` changes. None if unknown.
    pub(super) reset: Option<Reset>,
}

/// Whether the hits of a charge fit its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// They fit. Also the initial value, before the charge is evaluated.
    Admitted,
    /// They exceed the limit.
    Over,
    /// Earlier requests wait for slots of their counter.
    Behind,
    /// A ban begins with them.
    BanBegins,
    /// A ban denies them.
    Banned,
    /// They need a new counter, and the store is full.
    NoRoom,
}

impl<'r> Charge<'r> {
    fn new(key: Key, limit: ChargeLimit<'r>, hits: Hits, descriptor: u32) -> Self {
        Self {
            key,
            limit,
            hits,
            descriptor,
            is_report: false,
            is_ban: false,
            is_check: false,
            fit: Fit::Admitted,
            counts: true,
            excess: 0,
            remaining: 0,
            reset: None,
        }
    }

    /// The semantics by which the charge is admitted. A ban in force denies in either.
    #[inline]
    pub(super) fn semantics(&self) -> Semantics {
        if self.is_check || self.is_ban { Semantics::Exact } else { self.limit.semantics }
    }

    /// The estimate that it charges, if any. A report charges none: its cost is known.
    pub(super) fn reserves(&self) -> Option<Reserve> {
        self.limit.reserve.filter(|_| !self.is_report)
    }

    /// What its limit holds of an admitted request until a ticket releases it, and for how long.
    pub(super) fn hold(&self) -> Option<(HeldKind, Window)> {
        let slot =
            self.limit.algorithm.concurrency().map(|concurrency| (HeldKind::Slot, concurrency.max_hold));
        slot.or_else(|| self.reserves().map(|reserve| (HeldKind::Reservation, reserve.max_hold)))
    }

    /// Whether the request is a report of hits that were used.
    pub(super) fn is_report(&self) -> bool {
        self.is_report
    }

    /// Whether the hits are counted even if the request is denied: a report, or `charge: always`.
    #[inline]
    pub(super) fn is_always(&self) -> bool {
        self.is_report || self.limit.charge == ChargePolicy::Always
    }

    /// The least wait until its limit would admit the request's hits for the counter, if no other hits arrived; for a ban, until it ends. A
    /// peek stands for the hits of a request that starts.
    pub(super) fn until_admits(&self, state: &State, hits: HitSum, now: Timestamp) -> Reset {
        let taken = if self.hits == Hits::Peek { self.limit.hits_of_peek() } else { hits.taken };
        self.limit.until_admits(state, (HitSum { taken, ..hits }, self.reserves().is_some()), now)
    }

    /// The ban that denies its hits.
    #[inline]
    pub(super) fn ban(&self) -> BanPhase {
        match self.fit {
            Fit::BanBegins => BanPhase::Begins,
            Fit::Banned => BanPhase::InForce,
            Fit::Admitted | Fit::Over | Fit::Behind | Fit::NoRoom => BanPhase::None,
        }
    }

    /// The limit as a status reports it.
    pub(super) fn current(&self) -> CurrentLimit<'r> {
        match &self.limit {
            ChargeLimit::Rule(limit) | ChargeLimit::Scheduled { in_force: limit, .. } => limit.current(),
            ChargeLimit::RequestLimit(limit) => CurrentLimit {
                name: "",
                requests: limit.requests,
                capacity: limit.capacity,
                window: limit.window,
                unit: limit.unit,
            },
        }
    }
}

/// One counter of the request.
pub(super) struct PlannedCounter {
    pub(super) key: Key,
    /// Its charges, as a range of [`Plan::by_key`].
    pub(super) charges: Range<u32>,
    /// Sums of the hits of its charges.
    pub(super) hits: HitSum,
    /// Index of its shard's guard.
    pub(super) guard: u32,
    /// Its place when the shard was locked; none if it did not exist.
    pub(super) place: Option<PlaceIndex>,
}

impl PlannedCounter {
    /// Its charges, as a range of [`Plan::by_key`].
    #[inline]
    pub(super) fn charges(&self) -> Range<usize> {
        self.charges.start as usize..self.charges.end as usize
    }
}

/// All charges of a request.
pub(super) struct Plan<'r> {
    /// One for each descriptor.
    pub(super) descriptors: SmallVec<[DescriptorPlan<'r>; INLINE]>,
    /// In the order of the descriptors; those of one descriptor in the order of the rule's limits.
    pub(super) charges: SmallVec<[Charge<'r>; INLINE]>,
    /// Indices of charges, sorted by key and therefore by shard. Charges to one counter are adjacent, in the order of the
    /// request.
    pub(super) by_key: SmallVec<[u32; INLINE]>,
    /// Indices of descriptors whose entry for the day of their windows is no day.
    pub(super) unknown_days: SmallVec<[u32; 2]>,
    /// Whether some charges are of bans.
    pub(super) has_bans: bool,
    /// Whether some limits of the domain have schedules.
    pub(super) has_schedules: bool,
}

impl<'r> Plan<'r> {
    /// A plan without charges. Filled where it stays: returned from the call that fills it, it would be copied.
    #[inline(always)]
    pub(super) fn empty() -> Self {
        Self {
            descriptors: SmallVec::new(),
            charges: SmallVec::new(),
            by_key: SmallVec::new(),
            unknown_days: SmallVec::new(),
            has_bans: false,
            has_schedules: false,
        }
    }

    /// Matches every descriptor against the rules, with the limits that apply at this time.
    #[inline]
    pub(super) fn new(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>, now: Timestamp) -> Self {
        let mut plan = Self::empty();
        plan.fill(domain, keys, request, now);
        plan
    }

    /// Adds all charges to an empty plan: see [`Plan::new`].
    #[inline(always)]
    pub(super) fn fill(
        &mut self,
        domain: &'r DomainRules,
        keys: &Keys,
        request: &Request<'_>,
        now: Timestamp,
    ) {
        self.add_all(domain, keys, request, false);
        if domain.features.schedules {
            self.has_schedules = true;
            self.apply_schedules(now);
        }
    }

    /// As [`Plan::new`], but looks past blocks and overrides that count nothing: the charges whose counters are reset or renewed.
    pub(super) fn of_counters(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>) -> Self {
        let mut plan = Self::empty();
        plan.add_all(domain, keys, request, true);
        plan
    }

    /// Adds the charges of a request to a plan without any.
    fn add_all(&mut self, domain: &'r DomainRules, keys: &Keys, request: &Request<'_>, behind: bool) {
        if let Some(limits) = domain.conditional() {
            self.add_with_conditional(domain, limits, keys, request, behind);
        } else {
            for (descriptor, index) in request.descriptors().iter().zip(0..) {
                let before = self.charges.len();
                let reached = self.add_charges(domain, keys, (index, descriptor), request, behind);
                self.add_descriptor(reached, before);
            }
        }
        if domain.features.replaces {
            self.drop_replaced();
        }
        if request.is_report() {
            self.charges.iter_mut().for_each(|charge| charge.is_report = true);
        }
        if request.is_check() {
            self.charges.iter_mut().for_each(|charge| charge.is_check = true);
        }
        self.by_key.extend(0..self.charges.len() as u32);
        if self.charges.len() > 1 {
            let charges = &self.charges;
            self.by_key.sort_by_key(|&index| charges[index as usize].key);
        }
    }

    /// Adds a descriptor with the charges from index `first` on.
    #[inline]
    fn add_descriptor(&mut self, reached: Reached<'r>, first: usize) {
        let charges = (self.charges.len() - first) as u32;
        self.descriptors.push(DescriptorPlan { reached, charges, is_over: false });
    }

    /// Adds the descriptors of a request to a domain whose limits apply by conditions. The first descriptor without an override or a block
    /// gets the charges of these limits.
    #[inline(never)]
    fn add_with_conditional(
        &mut self,
        domain: &'r DomainRules,
        limits: &'r ConditionalLimits,
        keys: &Keys,
        request: &Request<'_>,
        behind: bool,
    ) {
        let mut conditional = Some(limits);
        for (descriptor, index) in request.descriptors().iter().zip(0..) {
            let before = self.charges.len();
            let is_overlaid = is_overlaid(domain, descriptor, behind);
            let reached = match conditional.take_if(|_| !is_overlaid) {
                Some(limits) => self.add_conditional(domain, limits, keys, index, request),
                None => self.add_charges(domain, keys, (index, descriptor), request, behind),
            };
            self.add_descriptor(reached, before);
        }
    }

    /// Adds the charges of one descriptor, past blocks if `behind`.
    #[inline(always)]
    fn add_charges(
        &mut self,
        domain: &'r DomainRules,
        keys: &Keys,
        (index, descriptor): (u32, &Descriptor<'_>),
        request: &Request<'_>,
        behind: bool,
    ) -> Reached<'r> {
        if domain.features.tickets && ticket::names_ticket(descriptor) {
            return Reached::Nothing;
        }
        // A block takes no hits and gives none back: negative hits go to the counters behind it.
        let behind = behind || matches!(descriptor.hits, Hits::GiveBack(_));
        if let Some(own) = descriptor.limit
            && self.add_own(domain, keys, (index, descriptor), own, (request, behind))
        {
            return Reached::RequestLimit;
        }
        let found =
            if behind { domain.find_counted(&descriptor.entries) } else { domain.find(&descriptor.entries) };
        let Some(found) = found else { return Reached::Nothing };
        if found.rule.unlimited {
            return Reached::Unlimited(found.rule);
        }
        let before = self.charges.len();
        for limit in &found.rule.limits {
            if limit.is_special() {
                self.add_special(domain, keys, (limit, &found.shared), (index, descriptor), request);
            } else {
                let key = keys.key(domain, limit, &descriptor.entries, &found.shared);
                self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), descriptor.hits, index));
            }
        }
        if self.charges.len() == before { Reached::Nothing } else { Reached::Rule(found.rule) }
    }

    /// Adds the charge of the limit in a descriptor, unless conditional limits, an override or a block apply. Returns whether it did.
    #[cold]
    fn add_own(
        &mut self,
        domain: &'r DomainRules,
        keys: &Keys,
        (index, descriptor): (u32, &Descriptor<'_>),
        own: RequestLimit,
        (request, behind): (&Request<'_>, bool),
    ) -> bool {
        if domain.conditional().is_some() || is_overlaid(domain, descriptor, behind) {
            return false;
        }
        let limit = Box::new(domain.own_limit(own, &descriptor.entries));
        let key = keys.key(domain, &limit, &descriptor.entries, &[]);
        let hits = if request.is_report() { descriptor.hits } else { limit.hits_at_start(descriptor.hits) };
        self.charges.push(Charge::new(key, ChargeLimit::RequestLimit(limit), hits, index));
        true
    }

    /// Adds the charges of a limit that depend on more than the hits of the request: see [`RuleLimit::is_special`].
    #[inline(never)]
    fn add_special(
        &mut self,
        domain: &DomainRules,
        keys: &Keys,
        (limit, shared): (&'r RuleLimit, &[SharedValue<'_>]),
        (index, descriptor): (u32, &Descriptor<'_>),
        request: &Request<'_>,
    ) {
        let (hits, is_report) = (descriptor.hits, request.is_report());
        // Slots are given back by ticket only, and the hits of a report are no longer in flight.
        let is_without_slots = is_report || matches!(hits, Hits::GiveBack(_));
        if is_without_slots && limit.algorithm.holds_slots() || !limit.applies(request.descriptors()) {
            return;
        }
        // Both of the declared limit: the limits of days have neither its ban nor prefixes of keys.
        let (key, ban) = (keys.key(domain, limit, &descriptor.entries, shared), &limit.ban);
        let limit = limit.of_entries(&descriptor.entries).unwrap_or_else(|| {
            self.unknown_days.push(index);
            limit
        });
        let at_start = if is_report { hits } else { limit.hits_at_start(hits) };
        self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), at_start, index));
        if let Some(ban) = ban {
            let key = keys.key(domain, ban, &descriptor.entries, shared);
            let charge = Charge::new(key, ChargeLimit::Rule(ban), hits, index);
            self.charges.push(Charge { is_ban: true, ..charge });
            self.has_bans = true;
        }
    }

    /// Adds the charges of all limits that apply by conditions, with the hits of this descriptor.
    fn add_conditional(
        &mut self,
        domain: &DomainRules,
        limits: &'r ConditionalLimits,
        keys: &Keys,
        index: u32,
        request: &Request<'_>,
    ) -> Reached<'r> {
        let descriptors = request.descriptors();
        let hits = descriptors[index as usize].hits;
        limits.for_request(descriptors, |conditional, values| {
            let limit = conditional.limit();
            let key = keys.of_values(domain, limit, values);
            self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), hits, index));
        });
        Reached::Conditional(limits)
    }

    /// Replaces the declared limits by those that their schedules have at this time.
    #[cold]
    fn apply_schedules(&mut self, now: Timestamp) {
        for charge in &mut self.charges {
            if let ChargeLimit::Rule(declared) = charge.limit
                && let Some(in_force) = declared.schedule.as_ref().and_then(|schedule| schedule.limit_at(now))
            {
                charge.limit = ChargeLimit::Scheduled { declared, in_force };
                if !charge.is_report {
                    charge.hits = in_force.hits_at_start(charge.hits);
                }
            }
        }
    }

    /// The first charge of a counter.
    #[inline]
    pub(super) fn first(&self, counter: &PlannedCounter) -> &Charge<'r> {
        &self.charges[self.by_key[counter.charges()][0] as usize]
    }

    /// Drops the charges of limits that another matched rule replaces by name.
    fn drop_replaced(&mut self) {
        let mut replaced: SmallVec<[&str; 4]> = SmallVec::new();
        let mut rest = self.charges.as_slice();
        for descriptor in &self.descriptors {
            let charges;
            (charges, rest) = rest.split_at(descriptor.charges as usize);
            // A limit whose condition does not hold is not charged, and replaces none.
            let applies = |limit: &RuleLimit| charges.iter().any(|charge| charge.limit.id == limit.id);
            replaced.extend(descriptor.reached.replaces(applies));
        }
        let descriptors = &mut self.descriptors;
        self.charges.retain(|charge| {
            let keep = charge.limit.name.is_empty() || !replaced.contains(&&*charge.limit.name);
            let descriptor = &mut descriptors[charge.descriptor as usize];
            descriptor.charges -= u32::from(!keep);
            if descriptor.charges == 0 {
                descriptor.reached = Reached::Nothing;
            }
            keep
        });
    }
}

/// Whether an override or a block applies to the descriptor instead of conditional limits. With `behind`, those that count nothing are
/// passed over.
fn is_overlaid(domain: &DomainRules, descriptor: &Descriptor<'_>, behind: bool) -> bool {
    let behind = behind || matches!(descriptor.hits, Hits::GiveBack(_));
    domain.overlaid(&descriptor.entries).is_some_and(|rule| !behind || rule.is_counted())
}

/// The counters of a plan, in the order of their keys, not yet located.
pub(super) fn counters(plan: &Plan<'_>) -> SmallVec<[PlannedCounter; INLINE]> {
    let mut counters = SmallVec::new();
    add_counters(plan, &mut counters);
    counters
}

/// Adds the counters of a plan in place: returned from a call, they would be copied.
#[inline]
pub(super) fn add_counters(plan: &Plan<'_>, counters: &mut SmallVec<[PlannedCounter; INLINE]>) {
    let charges = plan.charges.as_slice();
    for (&charge, position) in plan.by_key.as_slice().iter().zip(0..) {
        let charge = &charges[charge as usize];
        match counters.last_mut() {
            Some(counter) if counter.key == charge.key => {
                counter.charges.end += 1;
                counter.hits.add(charge.hits);
            }
            _ => {
                let mut hits = HitSum::ZERO;
                hits.add(charge.hits);
                let charges = position..position + 1;
                counters.push(PlannedCounter { key: charge.key, charges, hits, guard: 0, place: None });
            }
        }
    }
}
