//! The general decision, in three steps: evaluate every counter of the request; conclude, so that all are charged or none;
//! settle, which charges and reads each descriptor's status.

use super::{
    charge_limit::ChargeLimit,
    compat::Compat,
    counters::Counters,
    hit_sum::HitSum,
    plan::{Charge, DescriptorPlan, Fit, Plan, PlannedCounter},
    slots::SlotCharges,
    status::{Reading, after_give_back, apply, report},
};
use crate::{
    algorithm::State,
    limit::{Code, Hits, Timestamp},
    rules::{RuleLimit, Semantics},
    store::{OnFull, Store},
};
use smallvec::SmallVec;

/// A request in the middle of its decision. See [`Plan`] for the fields that have the same names.
pub(super) struct Deciding<'d, 'r, C> {
    pub(super) descriptors: &'d mut [DescriptorPlan<'r>],
    pub(super) charges: &'d mut [Charge<'r>],
    pub(super) by_key: &'d [u32],
    pub(super) counters: &'d [PlannedCounter],
    pub(super) has_bans: bool,
    pub(super) has_schedules: bool,
    pub(super) shards: &'d mut C,
    pub(super) compat: Compat,
    /// Whether counters of the reference server's limits are charged one descriptor after another.
    pub(super) in_order: bool,
    pub(super) now: Timestamp,
    /// Whether the request was denied and has charged counters.
    pub(super) is_charged_denial: bool,
    /// The slots that the request takes.
    pub(super) slots: SlotCharges<'d>,
}

impl<'d, 'r, C: Counters> Deciding<'d, 'r, C> {
    /// A plan with its counters locked, not yet evaluated.
    #[inline]
    pub(super) fn new(
        plan: &'d mut Plan<'r>,
        counters: &'d [PlannedCounter],
        shards: &'d mut C,
        slots: SlotCharges<'d>,
        compat: Compat,
        now: Timestamp,
    ) -> Self {
        let (has_bans, has_schedules) = (plan.has_bans, plan.has_schedules);
        let Plan { descriptors, charges, by_key, .. } = plan;
        let in_order = true;
        Self {
            descriptors,
            charges,
            by_key,
            counters,
            has_bans,
            has_schedules,
            shards,
            compat,
            in_order,
            now,
            is_charged_denial: false,
            slots,
        }
    }

    /// Decides by the sum of each counter's hits, as the shared store does.
    pub(super) fn by_sums(self) -> Self {
        Self { in_order: false, ..self }
    }

    /// The first charge of a counter. All charges of a counter have one limit, except that limits in a request may differ in
    /// `requests_per_unit`.
    #[inline]
    pub(super) fn first(&self, counter: &PlannedCounter) -> &Charge<'r> {
        &self.charges[self.by_key[counter.charges().start] as usize]
    }

    /// Finds out which charges fit; charges nothing.
    #[inline]
    pub(super) fn evaluate(&mut self) {
        if self.compat.stop_counting {
            self.stop_counting();
        }
        for counter in self.counters {
            let limit = &*self.first(counter).limit;
            let (algorithm, is_joined) = (&limit.algorithm, limit.is_joined);
            if is_joined && self.in_order {
                self.evaluate_in_order(counter);
                continue;
            }
            let now = self.shards.time(counter, self.now);
            let state = after_give_back(algorithm, self.shards.state(counter), counter.hits, now);
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if !admits(charge, counter.hits.taken, &state, now) {
                    charge.fit = Fit::Over;
                    self.descriptors[charge.descriptor as usize].is_over = true;
                }
            }
            if is_joined {
                self.set_excess_of_sum(counter);
            }
        }
    }

    /// The verdict on the request: over if any descriptor is; quota descriptors count only if all of them are over.
    #[inline]
    pub(super) fn verdict(&self) -> Code {
        let (mut quotas, mut quotas_over) = (0, 0);
        for descriptor in &*self.descriptors {
            let over = descriptor.is_over && !descriptor.reached.is_shadow();
            if descriptor.reached.is_quota(self.compat) {
                quotas += 1;
                quotas_over += usize::from(over);
            } else if over {
                return Code::OverLimit;
            }
        }
        if quotas > 0 && quotas == quotas_over { Code::OverLimit } else { Code::Ok }
    }

    /// Hits to count on a counter, given the verdict. A descriptor over its limit is not charged even if the request is admitted: all
    /// limits of a descriptor must admit.
    #[inline]
    pub(super) fn counted(&self, counter: &PlannedCounter, admitted: bool) -> HitSum {
        if self.is_of_ban(counter) {
            return self.denials(counter);
        }
        let mut counted = HitSum::ZERO;
        for &charge in &self.by_key[counter.charges()] {
            let charge = &self.charges[charge as usize];
            if !charge.counts {
                continue;
            }
            if charge.is_always() || (admitted && !self.descriptors[charge.descriptor as usize].is_over) {
                counted.add(charge.hits);
            }
        }
        counted
    }

    /// The hits to count, without those that exceed the bound on debts.
    #[inline]
    fn within_debt(
        &self,
        first: &Charge<'r>,
        counter: &PlannedCounter,
        counted: HitSum,
        now: Timestamp,
    ) -> HitSum {
        if first.is_always() { self.bounded(first, counter, counted, now) } else { counted }
    }

    /// The same for a charge that is always counted. Not inlined: few charges are.
    #[inline(never)]
    fn bounded(
        &self,
        first: &Charge<'r>,
        counter: &PlannedCounter,
        counted: HitSum,
        now: Timestamp,
    ) -> HitSum {
        if counted.taken == 0 {
            return counted;
        }
        let given = HitSum { taken: 0, ..counted };
        let state = after_give_back(&first.limit.algorithm, self.shards.state(counter), given, now);
        HitSum { taken: first.limit.within_debt(&state, counted.taken, now), ..counted }
    }

    /// Reserves room for new counters. Returns the final verdict, and whether there is room.
    #[inline]
    pub(super) fn conclude(&mut self, store: &Store, global_shadow: bool) -> (Code, bool) {
        let verdict = |deciding: &Self| if global_shadow { Code::Ok } else { deciding.verdict() };
        let mut code = verdict(self);
        let has_room = self.make_room(code == Code::Ok);
        if !has_room && store.on_full() == OnFull::Deny {
            self.deny_new_counters();
            code = verdict(self);
        }
        (code, has_room)
    }

    /// Reserves room for the counters that [`Self::settle`] will create.
    #[inline]
    fn make_room(&mut self, admitted: bool) -> bool {
        if self.counters.iter().all(|counter| self.shards.has(counter)) {
            return true;
        }
        let creates = |counter| {
            let now = self.shards.time(counter, self.now);
            let counted = self.counted(counter, admitted);
            !self.is_of_ban(counter) && self.within_debt(self.first(counter), counter, counted, now).taken > 0
        };
        let creates: SmallVec<[bool; 4]> = self.counters.iter().map(creates).collect();
        let has_room = self.shards.make_room(self.counters, &creates, self.now);
        // A peek must report what hits would get: without room, a denial.
        has_room
            && (self.creates_new(&creates) || !self.peeks_at_new_counter() || self.shards.has_room(self.now))
    }

    /// Whether a counter to be charged does not exist.
    fn creates_new(&self, charged: &[bool]) -> bool {
        self.counters.iter().zip(charged).any(|(counter, &charged)| charged && !self.shards.has(counter))
    }

    /// Whether a peek reads a counter that does not exist.
    #[cold]
    fn peeks_at_new_counter(&self) -> bool {
        let is_peek = |charge: &u32| self.charges[*charge as usize].hits == Hits::Peek;
        let new =
            self.counters.iter().filter(|counter| !self.shards.has(counter) && !self.is_of_ban(counter));
        new.flat_map(|counter| &self.by_key[counter.charges()]).any(is_peek)
    }

    /// Marks descriptors that need a new counter as over, because the store is full.
    #[cold]
    fn deny_new_counters(&mut self) {
        for counter in self.counters.iter().filter(|counter| !self.shards.has(counter)) {
            if self.is_of_ban(counter) {
                continue;
            }
            for &charge in &self.by_key[counter.charges()] {
                let charge = &mut self.charges[charge as usize];
                if !matches!(charge.hits, Hits::GiveBack(_)) && charge.fit == Fit::Admitted {
                    charge.fit = Fit::NoRoom;
                    charge.remaining = 0;
                    self.descriptors[charge.descriptor as usize].is_over = true;
                }
            }
        }
    }

    /// Charges the counters and reports their numbers. Without room, no counter is created.
    #[inline]
    pub(super) fn settle(&mut self, admitted: bool, has_room: bool) {
        for counter in self.counters {
            let now = self.shards.time(counter, self.now);
            let charges = &self.by_key[counter.charges()];
            let first = charges[0] as usize;
            let counted =
                self.within_debt(&self.charges[first], counter, self.counted(counter, admitted), now);
            // A counter that does not exist has nothing to give back.
            let changes = if self.shards.has(counter) {
                counted != HitSum::ZERO
            } else if self.is_of_ban(counter) {
                counted.taken > 0 && self.make_room_for_ban(counter)
            } else {
                counted.taken > 0 && has_room
            };
            let first = &self.charges[first];
            let (limit, reserve) = (&*first.limit, first.reserves());
            // A shared store decides by the sum.
            let is_in_order = self.in_order && limit.is_joined;
            let reading = if changes {
                if !admitted && limit.semantics == Semantics::Exact {
                    self.is_charged_denial = true;
                }
                let slots = &mut self.slots;
                let change = |state| {
                    if reserve.is_none() && !limit.algorithm.holds_slots() {
                        apply(counted, &limit.algorithm, state, now)
                    } else {
                        slots.apply(counted, (limit, reserve), (counter.key, state), now)
                    }
                };
                self.shards.change(counter, limit, now, change)
            } else {
                let state = self.shards.state(counter);
                let reading = Reading::of(&limit.algorithm, &state, now);
                if let State::Leased(_) = *state
                    && counter.hits.taken > 0
                    && self.is_over(counter)
                {
                    self.shards.note_denied(counter, counter.hits.taken);
                }
                reading
            };
            for &charge in charges {
                let charge = &mut self.charges[charge as usize];
                let descriptor = &self.descriptors[charge.descriptor as usize];
                let reading = match &charge.limit {
                    _ if is_in_order => Reading { remaining: charge.remaining, ..reading },
                    ChargeLimit::Rule(_) | ChargeLimit::Scheduled { .. } => reading,
                    // Limits in a request may share a counter and differ in number.
                    ChargeLimit::RequestLimit(own) => {
                        Reading::of(&own.algorithm, &self.shards.state(counter), now)
                    }
                };
                let state = || self.shards.state(counter);
                report(charge, counter.hits, || descriptor.reached.is_shadow(), reading, state, now);
            }
        }
    }

    /// Whether a descriptor of the counter is over its limit.
    #[cold]
    fn is_over(&self, counter: &PlannedCounter) -> bool {
        let mut charges = self.by_key[counter.charges()].iter().map(|&charge| &self.charges[charge as usize]);
        charges.any(|charge| self.descriptors[charge.descriptor as usize].is_over)
    }
}

/// Whether the charge fits, where all charges of its counter take `taken` hits.
#[inline]
fn admits(charge: &Charge<'_>, taken: u64, state: &State, now: Timestamp) -> bool {
    let RuleLimit { algorithm, requests, .. } = &*charge.limit;
    match (charge.hits, charge.semantics()) {
        (Hits::GiveBack(_), _) => true,
        (Hits::Take(_), _) => taken <= algorithm.remaining(state, now),
        (Hits::Peek, Semantics::Exact) => charge.limit.hits_of_peek() <= algorithm.remaining(state, now),
        (Hits::Peek, Semantics::Reference) => algorithm.used(state, now) <= u64::from(*requests),
    }
}
