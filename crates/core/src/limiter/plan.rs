//! The charges of a request: which hits go to which counter, under which limit.

use super::{compat::Compat, keys::Keys, slots};
use crate::{
    algorithm::State,
    limit::{BanPhase, CurrentLimit, Descriptor, Hits, Request, Reset, RuleInfo, Timestamp},
    rules::{Charge as ChargePolicy, ConditionalLimits, DomainRules, Reserve, Rule, RuleLimit, Semantics},
    store::{Key, SlotIndex},
};
use smallvec::SmallVec;
use std::ops::{Deref, Range};

/// Charges, descriptors and counters of a request that are kept without allocation.
pub(super) const INLINE: usize = 4;

/// The rule that a descriptor matched.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Reached<'r> {
    /// No rule, or one without a limit.
    Nothing,
    /// A rule with `unlimited: true`.
    Unlimited(&'r Rule),
    /// A rule with limits.
    Rule(&'r Rule),
    /// The limit in the request itself.
    Override,
    /// Limits that apply by conditions: the descriptor has those of the whole request.
    Conditional(&'r ConditionalLimits),
    /// No rule, by a renewal of what is not held any more: it denies the request.
    NotHeld,
}

impl<'r> Reached<'r> {
    /// Names of the limits that this rule replaces.
    fn replaces(self) -> impl Iterator<Item = &'r str> {
        let rule = match self {
            Self::Rule(rule) | Self::Unlimited(rule) => Some(rule),
            Self::Nothing | Self::Override | Self::Conditional(_) | Self::NotHeld => None,
        };
        rule.into_iter().flat_map(|rule| &rule.replaces).map(|name| &**name)
    }

    /// Whether the counters of the rule are local although those of its domain are shared.
    pub(super) fn is_local(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.is_local())
    }

    /// Whether the rule is in shadow mode: it never denies.
    pub(super) fn is_shadow(self) -> bool {
        matches!(self, Self::Rule(rule) if rule.shadow)
    }

    /// Facts about the rule of one of its limits that responses may carry.
    pub(super) fn rule_info(self, limit: &RuleLimit) -> Option<&'r RuleInfo> {
        match self {
            Self::Rule(rule) => Some(&rule.info),
            Self::Conditional(limits) => limits.rule_of(limit).map(|rule| &rule.info),
            Self::Nothing | Self::Unlimited(_) | Self::Override | Self::NotHeld => None,
        }
    }

    /// Whether the rule is in quota mode, or all are: it denies only if every quota of the request is over its limit. One in shadow
    /// mode has no part in that; with the reference server it is a quota that is never over.
    pub(super) fn is_quota(self, compat: Compat) -> bool {
        match self {
            Self::Unlimited(_) | Self::NotHeld => false,
            Self::Rule(rule) if rule.shadow && rule.semantics() == Semantics::Exact => false,
            Self::Rule(rule) if rule.info.quota => true,
            Self::Nothing | Self::Rule(_) | Self::Override | Self::Conditional(_) => compat.quota_mode,
        }
    }
}

/// One descriptor of a request.
#[derive(Clone, Copy)]
pub(super) struct DescriptorPlan<'r> {
    pub(super) reached: Reached<'r>,
    /// Number of its charges, which are adjacent in [`Plan::charges`].
    pub(super) charges: u32,
    /// Whether one of its limits does not admit; shadow and quota mode not considered.
    pub(super) is_over: bool,
}

/// The limit of a charge.
pub(super) enum ChargeLimit<'r> {
    /// From a rule.
    Rule(&'r RuleLimit),
    /// From the schedule of one: the limit that applies at the time of the request.
    Scheduled { declared: &'r RuleLimit, in_force: &'r RuleLimit },
    /// From the request. Boxed because it is rare and large.
    Override(Box<RuleLimit>),
}

impl Deref for ChargeLimit<'_> {
    type Target = RuleLimit;

    #[inline]
    fn deref(&self) -> &RuleLimit {
        match self {
            Self::Rule(limit) | Self::Scheduled { in_force: limit, .. } => limit,
            Self::Override(limit) => limit,
        }
    }
}

impl ChargeLimit<'_> {
    /// Whether another number may apply at another time.
    pub(super) fn has_schedule(&self) -> bool {
        match self {
            Self::Rule(limit) => limit.schedule.is_some(),
            Self::Scheduled { .. } => true,
            Self::Override(_) => false,
        }
    }

    /// The least wait after which `hits` would be admitted if no other hits arrived.
    #[inline]
    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        match self {
            Self::Rule(declared) | Self::Scheduled { declared, .. } => {
                declared.until_admits(state, hits, now)
            }
            Self::Override(limit) => limit.until_admits(state, hits, now),
        }
    }
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
    /// Whether it is that of the ban of the limit before it: see `bans.rs`.
    pub(super) is_ban: bool,
    /// Whether a peek is about one more hit in any semantics.
    pub(super) is_check: bool,
    /// Whether the hits fit.
    pub(super) fit: Fit,
    /// Whether the hits are counted at all: see [`Compat::stop_counting`](super::Compat::stop_counting).
    pub(super) counts: bool,
    /// Hits of its counter beyond its limit, after it in the order of the request; 0 with Tidegate's semantics.
    pub(super) excess: u64,
    /// After the decision: hits that its limit would admit; 0 if there is no room for the counter.
    pub(super) remaining: u64,
    /// After the decision: when that changes. None if unknown.
    pub(super) reset: Option<Reset>,
}

/// Sums of the hits of all charges to one counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HitSum {
    pub(super) taken: u64,
    pub(super) given: u64,
}

impl HitSum {
    pub(super) const ZERO: Self = Self { taken: 0, given: 0 };

    #[inline]
    pub(super) fn add(&mut self, hits: Hits) {
        match hits {
            Hits::Take(hits) => self.taken = self.taken.saturating_add(hits.get()),
            Hits::GiveBack(hits) => self.given = self.given.saturating_add(hits.get()),
            Hits::Peek => {}
        }
    }
}

/// Whether the hits of a charge fit its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fit {
    /// They fit. Also the initial value, before the charge is evaluated.
    Admitted,
    /// They exceed the limit.
    Over,
    /// Requests before them wait for slots of their counter.
    Behind,
    /// A ban denies them, or begins with them.
    Banned(BanPhase),
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

    /// The semantics by which the charge is admitted. A ban in force denies in any.
    #[inline]
    pub(super) fn semantics(&self) -> Semantics {
        if self.is_check || self.is_ban { Semantics::Exact } else { self.limit.semantics }
    }

    /// The estimate that it charges, if it does. Of a report, the cost is known.
    pub(super) fn reserves(&self) -> Option<Reserve> {
        self.limit.reserve.filter(|_| !self.is_report)
    }

    /// Whether the request is a report of hits that were used.
    pub(super) fn is_report(&self) -> bool {
        self.is_report
    }

    /// Whether the hits are counted even if the request is denied: a report, or `charge: always`.
    pub(super) fn is_always(&self) -> bool {
        self.is_report || self.limit.charge == ChargePolicy::Always
    }

    /// The ban that denies its hits.
    #[inline]
    pub(super) fn ban(&self) -> BanPhase {
        if let Fit::Banned(phase) = self.fit { phase } else { BanPhase::None }
    }

    /// The limit as a status reports it.
    pub(super) fn current(&self) -> CurrentLimit<'r> {
        match &self.limit {
            ChargeLimit::Rule(limit) | ChargeLimit::Scheduled { in_force: limit, .. } => limit.current(),
            ChargeLimit::Override(limit) => CurrentLimit {
                name: "",
                requests: limit.requests,
                capacity: limit.capacity(),
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
    /// Its slot when the shard was locked; none if it did not exist.
    pub(super) slot: Option<SlotIndex>,
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
    /// Whether some charges are those of bans.
    pub(super) has_bans: bool,
    /// Whether some limits of the domain have schedules.
    pub(super) has_schedules: bool,
}

impl<'r> Plan<'r> {
    /// Matches every descriptor against the rules, with the limits that apply at this time.
    #[inline]
    pub(super) fn new(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>, now: Timestamp) -> Self {
        let mut plan = Self::timeless(domain, keys, request);
        if domain.has_schedules() {
            plan.has_schedules = true;
            plan.apply_schedules(now);
        }
        plan
    }

    /// As [`Plan::new`] for a domain with shared counters, whose limits have no schedules.
    #[inline]
    pub(super) fn timeless(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>) -> Self {
        Self::matching(domain, keys, request, false)
    }

    /// As [`Plan::new`], but past blocks and overrides that count nothing: the charges whose counters are to be reset.
    pub(super) fn of_counters(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>) -> Self {
        Self::matching(domain, keys, request, true)
    }

    #[inline]
    fn matching(domain: &'r DomainRules, keys: &Keys, request: &Request<'_>, behind: bool) -> Self {
        let mut plan = Self {
            descriptors: SmallVec::new(),
            charges: SmallVec::new(),
            by_key: SmallVec::new(),
            has_bans: false,
            has_schedules: false,
        };
        let mut conditional = domain.conditional();
        for (descriptor, index) in request.descriptors().iter().zip(0..) {
            let before = plan.charges.len();
            let of_request = (behind, request.is_report());
            let reached = match conditional {
                Some(limits) if !is_overlaid(domain, descriptor, behind) => {
                    plan.add_conditional(domain, limits, keys, index, request)
                }
                _ => plan.add_charges(domain, keys, index, request, of_request),
            };
            if matches!(reached, Reached::Conditional(_)) {
                conditional = None;
            }
            let charges = (plan.charges.len() - before) as u32;
            plan.descriptors.push(DescriptorPlan { reached, charges, is_over: false });
        }
        if domain.has_replaces() {
            plan.drop_replaced();
        }
        if request.is_report() {
            plan.charges.iter_mut().for_each(|charge| charge.is_report = true);
        }
        if request.is_check() {
            plan.charges.iter_mut().for_each(|charge| charge.is_check = true);
        }
        plan.by_key.extend(0..plan.charges.len() as u32);
        if plan.charges.len() > 1 {
            let charges = &plan.charges;
            plan.by_key.sort_by_key(|&index| charges[index as usize].key);
        }
        plan
    }

    #[inline]
    fn add_charges(
        &mut self,
        domain: &'r DomainRules,
        keys: &Keys,
        index: u32,
        request: &Request<'_>,
        (behind, is_report): (bool, bool),
    ) -> Reached<'r> {
        let descriptor = &request.descriptors()[index as usize];
        let hits = descriptor.hits;
        if domain.has_slots() && slots::names_ticket(descriptor) {
            return Reached::Nothing;
        }
        // A block takes no hits and gives none back: those given back are those of the counters behind it.
        let gives_back = matches!(hits, Hits::GiveBack(_));
        let behind = behind || gives_back;
        // Slots are given back by ticket only, and hits of a report are in flight no more.
        let is_without_slots = is_report || gives_back;
        if let Some(own) = descriptor.limit
            && domain.conditional().is_none()
            && !domain.overlaid(&descriptor.entries).is_some_and(|rule| !behind || rule.is_counted())
        {
            let limit = Box::new(domain.override_limit(own));
            let key = keys.key(domain, &limit, &descriptor.entries, &[]);
            self.charges.push(Charge::new(key, ChargeLimit::Override(limit), hits, index));
            return Reached::Override;
        }
        let found =
            if behind { domain.find_counted(&descriptor.entries) } else { domain.find(&descriptor.entries) };
        let Some(found) = found else { return Reached::Nothing };
        if found.rule.unlimited {
            return Reached::Unlimited(found.rule);
        }
        let before = self.charges.len();
        for limit in &found.rule.limits {
            if is_without_slots && limit.algorithm.holds_slots() || !limit.applies(request.descriptors()) {
                continue;
            }
            let key = keys.key(domain, limit, &descriptor.entries, &found.shared);
            let at_start = if is_report { hits } else { limit.hits_at_start(hits) };
            self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), at_start, index));
            if let Some(ban) = &limit.ban {
                let key = keys.key(domain, ban, &descriptor.entries, &found.shared);
                let charge = Charge::new(key, ChargeLimit::Rule(ban), hits, index);
                self.charges.push(Charge { is_ban: true, ..charge });
                self.has_bans = true;
            }
        }
        if self.charges.len() == before { Reached::Nothing } else { Reached::Rule(found.rule) }
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
        limits.for_request(descriptors, |_, limit, values| {
            let key = keys.of_values(domain, limit, values);
            self.charges.push(Charge::new(key, ChargeLimit::Rule(limit), hits, index));
        });
        Reached::Conditional(limits)
    }

    /// Puts the limits that schedules have at this time in the place of the declared ones.
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
        let replaced: SmallVec<[&str; 4]> =
            self.descriptors.iter().flat_map(|descriptor| descriptor.reached.replaces()).collect();
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

/// Whether an override or a block is for the descriptor: limits that apply by conditions are not for it. With `behind`, those that
/// count nothing are passed over.
fn is_overlaid(domain: &DomainRules, descriptor: &Descriptor<'_>, behind: bool) -> bool {
    let behind = behind || matches!(descriptor.hits, Hits::GiveBack(_));
    domain.overlaid(&descriptor.entries).is_some_and(|rule| !behind || rule.is_counted())
}

/// The counters of a plan, in the order of their keys, not yet located.
#[inline]
pub(super) fn counters(plan: &Plan<'_>) -> SmallVec<[PlannedCounter; INLINE]> {
    let mut counters: SmallVec<[PlannedCounter; INLINE]> = SmallVec::new();
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
                counters.push(PlannedCounter { key: charge.key, charges, hits, guard: 0, slot: None });
            }
        }
    }
    counters
}
