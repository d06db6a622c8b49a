//! The report of each descriptor: the tightest of its limits, and the first moment at which a denied request is admitted.

use super::{Oracle, charges::Charge, counter::Counter};
use crate::{
    naive::resets::first_under_schedules,
    oracle::first,
    outcome::{Hits, Status, Tightest, Wait, gives, takes},
    reserved::rules::Estimate,
    rules::Rule,
    schedule::Schedule,
};
use std::collections::BTreeMap;

impl Oracle {
    pub(super) fn status(&self, charges: &[Charge], descriptor: usize, is_denied: bool) -> Status {
        let is_charged = |charge: &&Charge| {
            let Rule { shadow, quota, .. } = self.rules.0[charge.key.0];
            self.limit(charge.key).always && takes(charge.hits) > 0 && !charge.is_over() && !(shadow || quota)
        };
        // A denial that has charged limits waits for these limits too.
        let charged: Vec<&Charge> = charges.iter().filter(is_charged).filter(|_| is_denied).collect();
        let of_descriptor = || charges.iter().filter(|charge| charge.descriptor == descriptor);
        let is_joint =
            !charged.is_empty() || of_descriptor().any(|charge| self.limit(charge.key).schedule.is_some());
        let quotas = if is_denied { self.quotas_that_admit(charges, descriptor) } else { Vec::new() };
        let limits = of_descriptor().map(|charge| {
            let (counter, remaining) =
                (self.counter(charge.key), self.counter(charge.key).remaining(0, self.now));
            // This denial may begin a ban.
            let is_banned = gives(charge.hits) == 0 && self.banned_until(charge.key) > self.now;
            if !(charge.is_over() || is_banned) || self.rules.0[charge.key.0].shadow {
                return (false, Tightest { remaining, reset: self.until_full(&counter) });
            }
            let all = match is_joint {
                true => of_descriptor().chain(charged.iter().copied()).collect(),
                false => vec![charge],
            };
            let reset = self.until_all_admit(charges, &all, &quotas);
            (true, Tightest { remaining: if is_banned { 0 } else { remaining }, reset })
        });
        Status::of_limits(limits)
    }

    /// The charges of each quota of the request, if one of them admits, for the reset of a descriptor without a quota: while one quota
    /// admits, they do not deny.
    fn quotas_that_admit<'c>(&self, charges: &'c [Charge], descriptor: usize) -> Vec<Vec<&'c Charge>> {
        let mut quotas: BTreeMap<usize, Vec<&Charge>> = BTreeMap::new();
        for charge in charges {
            let Rule { shadow, quota, .. } = self.rules.0[charge.key.0];
            if quota && !shadow {
                quotas.entry(charge.descriptor).or_default().push(charge);
            }
        }
        let admits = |quota: &Vec<&Charge>| !quota.iter().any(|charge| charge.is_over());
        let is_awaited = !quotas.contains_key(&descriptor) && quotas.values().any(admits);
        if is_awaited { quotas.into_values().collect() } else { Vec::new() }
    }

    /// The wait until the counters of all these charges, and of one of the quotas, admit the request, and none of them is banned.
    fn until_all_admit(&self, charges: &[Charge], all: &[&Charge], quotas: &[Vec<&Charge>]) -> Wait {
        // At the moment with the greatest number.
        let is_possible = |charge: &&Charge| {
            let limit = self.limit(charge.key);
            let hits = match (charge.hits, limit.reserve.map(|reserve| reserve.estimate)) {
                (Hits::Peek, Some(Estimate::Hits(hits))) => hits,
                (Hits::Peek, _) => 1,
                (_, Some(Estimate::Hits(hits))) => {
                    let takes =
                        charges.iter().filter(|other| other.key == charge.key && takes(other.hits) > 0);
                    takes.count() as u64 * hits
                }
                _ => self.sum(charges, charge.key, takes, self.now, |_| true),
            };
            hits <= limit.most()
        };
        if !all.iter().all(is_possible) {
            return Wait::Never;
        }
        let admits = |at, from| {
            let a_quota_admits = || {
                let takes = |charge: &&&Charge| gives(charge.hits) == 0;
                let is_admitted = |charge: &&Charge| self.admits(charges, charge, at, from);
                quotas.iter().any(|quota| quota.iter().filter(takes).all(is_admitted))
            };
            let all_admit = all.iter().all(|charge| {
                let is_banned = gives(charge.hits) == 0 && self.banned_until(charge.key) > at;
                !is_banned && self.admits(charges, charge, at, from)
            });
            all_admit && (quotas.is_empty() || a_quota_admits())
        };
        let of_quotas = quotas.iter().flatten();
        let schedules: Vec<&Schedule> = all
            .iter()
            .chain(of_quotas)
            .filter_map(|charge| self.limit(charge.key).schedule.as_ref())
            .collect();
        match schedules.is_empty() {
            true => Wait::After(first(self.now, |at| admits(at, self.now)) - self.now),
            false => first_under_schedules(&schedules, self.now, admits),
        }
    }

    fn until_full(&self, counter: &Counter) -> Wait {
        Wait::After(first(self.now, |at| counter.at(at, false).used(at) == 0) - self.now)
    }
}
