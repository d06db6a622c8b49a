//! The report of each descriptor: the tightest of its limits, and the first moment at which a denied request is admitted.

use super::{Charge, Naive, is_of_ban, sum};
use crate::{
    oracle::{Model, Oracle, first},
    outcome::{DescriptorHits, Hits, SEARCHED, Status, Tightest, Wait, gives, takes},
    schedule::{Schedule, with_limit},
};

/// Hits of a request for one counter, and the state that may admit them.
struct Wanted {
    /// The present counter, under the numbers that the rule declares.
    oracle: Oracle,
    declared: Model,
    schedule: Option<Schedule>,
    hits: u64,
    /// Hits that the request gives back.
    given: u64,
}

impl Naive {
    pub(super) fn status(
        &self,
        descriptors: &[DescriptorHits],
        charges: &[Charge],
        descriptor: usize,
        is_denied: bool,
        now: u64,
    ) -> Status {
        let DescriptorHits { rule, own, .. } = descriptors[descriptor];
        let is_shadow = own.is_none() && self.rules.0.get(rule).is_some_and(|rule| rule.shadow);
        let of_descriptor = || charges.iter().filter(|charge| charge.descriptor == descriptor);
        // Without a schedule an admitted request stays admitted, so the longest wait is the wait for all.
        let charged = if is_denied { self.charged_by_denial(descriptors, charges, now) } else { Vec::new() };
        let joint = of_descriptor().any(|charge| charge.schedule.is_some()) && !self.settings.is_reference
            || !charged.is_empty();
        let quotas =
            if is_denied { self.quotas_that_admit(descriptors, charges, descriptor) } else { Vec::new() };
        let jointly = || {
            let others = charged.iter().copied().filter(|charge| charge.descriptor != descriptor);
            of_descriptor().chain(others).collect::<Vec<&Charge>>()
        };
        let is_limit = |charge: &Charge| charge.descriptor == descriptor && !is_of_ban(charge.key);
        let limits = charges.iter().enumerate().filter(|(_, charge)| is_limit(charge));
        Status::of_limits(limits.map(|(index, charge)| {
            let oracle = self.oracle_of(charge, now);
            let ban = self.ban_in_force(charges, index, now);
            let is_over = (charge.is_over() || ban.is_some()) && !is_shadow;
            let remaining = || oracle.remaining(now);
            let next = match oracle.until_window_ends(now) {
                // Also in shadow mode.
                _ if charge.has_no_room => Tightest { remaining: 0, reset: Wait::Unknown },
                _ if is_over && ban.is_some() => {
                    let all: Vec<&Charge> = match joint {
                        true => jointly(),
                        false => [charge].into_iter().chain(ban).collect(),
                    };
                    Tightest { remaining: 0, reset: self.until_all_admit(charges, &all, &quotas, now) }
                }
                // In the reference semantics, a reset is always the end of the window.
                Some(nanos) if self.settings.is_reference => {
                    let remaining = charge.remaining_in_order.unwrap_or_else(remaining);
                    Tightest { remaining, reset: Wait::After(nanos) }
                }
                _ if is_over => {
                    let all = if joint { jointly() } else { vec![charge] };
                    let until_admits = || self.until_all_admit(charges, &all, &quotas, now);
                    Tightest {
                        remaining: remaining(),
                        reset: charge.until_queueable.unwrap_or_else(until_admits),
                    }
                }
                _ => Tightest { remaining: remaining(), reset: Wait::After(oracle.until_full(now)) },
            };
            (is_over, next)
        }))
    }

    /// The ban of the limit of a charge, if it is in force.
    fn ban_in_force<'c>(&self, charges: &'c [Charge], index: usize, now: u64) -> Option<&'c Charge> {
        let ban = charges.get(index + 1).filter(|next| is_of_ban(next.key) && gives(next.hits) == 0);
        ban.filter(|ban| self.oracle_of(ban, now).is_banned(now))
    }

    /// The charges of limits that admitted their hits, and counted them although the request is denied. The request waits for them too,
    /// unless their rule does not deny by itself; a limit that denies has a wait of its own. In the reference semantics, a reset is of one
    /// limit.
    fn charged_by_denial<'c>(
        &self,
        descriptors: &[DescriptorHits],
        charges: &'c [Charge],
        now: u64,
    ) -> Vec<&'c Charge> {
        let denies = |charge: &Charge| match descriptors[charge.descriptor] {
            DescriptorHits { own: None, rule, .. } => {
                self.rules.0.get(rule).is_some_and(|rule| !(rule.shadow || rule.quota))
            }
            DescriptorHits { own: Some(_), .. } => true,
        };
        let is_charged = |index: usize, charge: &Charge| {
            charge.always
                && !charge.is_over()
                // There was room for the counter.
                && self.counters.contains_key(&charge.key)
                && self.ban_in_force(charges, index, now).is_none()
                && takes(charge.hits) > 0
                && !is_of_ban(charge.key)
                && denies(charge)
        };
        if self.settings.is_reference {
            return Vec::new();
        }
        let charged = charges.iter().enumerate().filter(|(index, charge)| is_charged(*index, charge));
        charged.map(|(_, charge)| charge).collect()
    }

    /// The charges of each quota of the request, if one of them admits, for the reset of a descriptor without a quota: while one quota
    /// admits, they do not deny.
    fn quotas_that_admit<'c>(
        &self,
        descriptors: &[DescriptorHits],
        charges: &'c [Charge],
        of: usize,
    ) -> Vec<Vec<&'c Charge>> {
        let is_quota = |index: &usize| {
            let rule = self.rules.0.get(descriptors[*index].rule);
            descriptors[*index].own.is_none() && rule.is_some_and(|rule| rule.quota && !rule.shadow)
        };
        let of_quota = |index| charges.iter().filter(|charge| charge.descriptor == index).collect();
        let quotas: Vec<Vec<&Charge>> = (0..descriptors.len()).filter(is_quota).map(of_quota).collect();
        let admits = |quota: &Vec<&Charge>| !quota.iter().any(|charge| charge.is_over());
        let is_awaited = !self.settings.is_reference && !is_quota(&of) && quotas.iter().any(admits);
        if is_awaited { quotas } else { Vec::new() }
    }

    /// The wait until the hits of the request for the counters of all these charges, and for those of one of the quotas, are admitted.
    fn until_all_admit(
        &self,
        charges: &[Charge],
        all: &[&Charge],
        quotas: &[Vec<&Charge>],
        now: u64,
    ) -> Wait {
        let wanted = |charge: &&Charge| {
            let [given, taken] = [gives, takes].map(|hits| sum(charges, charge.key, |_| true, hits));
            let hits = if charge.hits == Hits::Peek { 1 } else { taken };
            let oracle = self.oracle_of(charge, now);
            let (declared, schedule) = (charge.declared.clone(), charge.schedule.clone());
            Wanted { oracle, declared, schedule, hits, given }
        };
        let takes = |charge: &&&Charge| gives(charge.hits) == 0;
        let of_quota = |quota: &Vec<&Charge>| quota.iter().filter(takes).map(wanted).collect();
        let quotas: Vec<Vec<Wanted>> = quotas.iter().map(of_quota).collect();
        until_admitted(&all.iter().map(wanted).collect::<Vec<_>>(), &quotas, now)
    }
}

/// Between two moments at which another number begins to apply, an admitted request stays admitted.
fn until_admitted(all: &[Wanted], quotas: &[Vec<Wanted>], now: u64) -> Wait {
    let of_quotas = || quotas.iter().flatten();
    if all.iter().chain(of_quotas()).all(|wanted| wanted.schedule.is_none()) {
        let until = |wanted: &Wanted| wanted.oracle.until_admits(wanted.given, wanted.hits, now);
        let longest = |all: &[Wanted]| -> Option<u64> {
            let waits = all.iter().map(until).collect::<Option<Vec<u64>>>()?;
            Some(waits.into_iter().max().unwrap_or(0))
        };
        let quota =
            if quotas.is_empty() { Some(0) } else { quotas.iter().filter_map(|of| longest(of)).min() };
        let both = longest(all).zip(quota);
        return both.map_or(Wait::Never, |(all, quota)| Wait::After(all.max(quota)));
    }
    if all.iter().any(|wanted| wanted.hits > wanted.most()) {
        return Wait::Never;
    }
    let schedules: Vec<&Schedule> =
        all.iter().chain(of_quotas()).filter_map(|wanted| wanted.schedule.as_ref()).collect();
    // A debt may last for years, if the clock was set back when a rule was changed.
    let possible = first(now, |at| all.iter().all(|wanted| wanted.admits_by(Some(wanted.most()), at)));
    if possible == u64::MAX {
        return Wait::After(possible - now);
    }
    match first_under_schedules(&schedules, possible, |at, from| {
        let a_quota_admits = || quotas.iter().any(|of| of.iter().all(|wanted| wanted.admits(at, from)));
        all.iter().all(|wanted| wanted.admits(at, from)) && (quotas.is_empty() || a_quota_admits())
    }) {
        Wait::After(nanos) => Wait::After(nanos + (possible - now)),
        wait => wait,
    }
}

/// The wait until `admits` holds for a moment, by the numbers that apply from an earlier moment on: while no other number begins to apply,
/// it holds from then on.
/// so once it does.
pub fn first_under_schedules(schedules: &[&Schedule], now: u64, admits: impl Fn(u64, u64) -> bool) -> Wait {
    let mut from = now;
    while from < now.saturating_add(SEARCHED) {
        let mut ends: Vec<u64> = schedules.iter().flat_map(|schedule| schedule.changes(from)).collect();
        ends.sort_unstable();
        for end in ends {
            if from < end && admits(end - 1, from) {
                return Wait::After(first(from, |at| at >= end || admits(at, from)) - now);
            }
            from = end;
        }
    }
    // In one zone a week contains everything that ever applies.
    if schedules.iter().all(|schedule| schedule.zone() == schedules[0].zone()) {
        Wait::Never
    } else {
        Wait::Late
    }
}

impl Wanted {
    /// The most that are ever admitted at once.
    fn most(&self) -> u64 {
        if let Model::Ban { .. } = self.declared {
            return u64::MAX;
        }
        Oracle::new(self.declared.clone()).limit().max(self.schedule.as_ref().map_or(0, Schedule::most))
    }

    /// Whether the hits are admitted at `at`, by the number that applies at `from`.
    fn admits(&self, at: u64, from: u64) -> bool {
        self.admits_by(self.schedule.as_ref().and_then(|schedule| schedule.requests_at(from)), at)
    }

    /// Whether the hits are admitted at `at`, by this number or the declared number.
    fn admits_by(&self, number: Option<u64>, at: u64) -> bool {
        let mut then = self.oracle.clone();
        if self.schedule.is_some() {
            let declared = self.declared.clone();
            then.change_rule(number.map_or(declared.clone(), |number| with_limit(&declared, number)), at);
        }
        then.give_back(self.given, at);
        then.remaining(at) >= self.hits
    }
}
