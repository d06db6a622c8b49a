//! Requests that arrive together: memory is prefetched for all of their counters, then they are decided in order.
//!
//! With many counters none of them is in a near cache, and the cache miss is most of a decision; overlapped misses cost as
//! much as one.

#[cfg(test)]
mod tests;

use super::{
    class::Class,
    decide::{decide_general, decide_other},
    fast_path::{self, PlainCharge},
    in_force::Pinned,
    keys::Keys,
};
use crate::{
    limit::{Decision, Request, Timestamp},
    rules::Found,
};
use smallvec::SmallVec;

/// Requests in a batch that are handled without allocation.
const REQUESTS: usize = 16;

/// One value for each descriptor of the requests that are candidates for the fast path.
type PerDescriptor<T> = SmallVec<[T; REQUESTS * fast_path::DESCRIPTORS_MAX]>;

impl Pinned<'_> {
    /// Decides requests that arrived together, each exactly as [`Pinned::decide`] would, in order. Faster than one by one,
    /// because memory is prefetched for the counters of all of them. `decided` gets the index of each request and its
    /// decision.
    pub fn decide_all<'r, 'q, 't: 'q>(
        &'r self,
        requests: impl Iterator<Item = &'q Request<'t>> + Clone,
        now: Timestamp,
        mut decided: impl FnMut(usize, &Decision<'r>),
    ) {
        let mut first_two = requests.clone().take(2);
        if let (Some(request), None) = (first_two.next(), first_two.next()) {
            return decided(0, &self.decide(request, now));
        }
        let store = &self.limiter.store;
        let mut classes: SmallVec<[Class<'r>; REQUESTS]> =
            requests.clone().map(|request| self.classify(request)).collect();
        let (mut found, mut charges) = (PerDescriptor::new(), PerDescriptor::new());
        find_rules(requests.clone(), &classes, &mut found);
        plan_charges(requests.clone(), &mut classes, &found, &self.in_force.keys, &mut charges);
        fast_path::fetch(&charges, store);
        let mut charges = &charges[..];
        // Each arm passes on its own decision: a common variable would cost a copy.
        for (index, (request, class)) in requests.zip(classes).enumerate() {
            match class {
                Class::Single(domain) | Class::Multi(domain) => {
                    let of_request = charges.split_off(..request.descriptors().len()).unwrap_or_default();
                    // By reference: a binding by value would copy the decision.
                    if let Some(decision) = &fast_path::decide(of_request, store, now) {
                        decided(index, decision);
                    } else {
                        decided(index, &decide_general(self, domain, request, now));
                    }
                }
                Class::General(domain) | Class::Remote(domain) => {
                    decided(index, &decide_general(self, domain, request, now))
                }
                Class::NoRules | Class::GivesBack(_) => {
                    decided(index, &decide_other(self, class, request, now));
                }
            }
        }
    }
}

/// Looks up the rules for the fast path and prefetches them.
#[inline]
fn find_rules<'r, 'q, 't: 'q>(
    requests: impl Iterator<Item = &'q Request<'t>>,
    classes: &[Class<'r>],
    all: &mut PerDescriptor<Option<Found<'r>>>,
) {
    for (request, class) in requests.zip(classes) {
        let (Class::Single(domain) | Class::Multi(domain)) = class else { continue };
        for descriptor in request.descriptors() {
            let found = domain.find(&descriptor.entries);
            if let Some(Found { rule, .. }) = &found {
                rule.prefetch();
            }
            all.push(found);
        }
    }
}

/// Makes the charges for the fast path. Requests that need more become [`Class::General`].
#[inline]
fn plan_charges<'r, 'q, 't: 'q>(
    requests: impl Iterator<Item = &'q Request<'t>>,
    classes: &mut [Class<'r>],
    mut found: &[Option<Found<'r>>],
    keys: &Keys,
    all: &mut PerDescriptor<Option<PlainCharge<'r>>>,
) {
    for (request, class) in requests.zip(classes) {
        let (Class::Single(domain) | Class::Multi(domain)) = *class else { continue };
        let before = all.len();
        let descriptors = request.descriptors();
        let of_request = found.split_off(..descriptors.len()).unwrap_or_default();
        for (descriptor, found) in descriptors.iter().zip(of_request) {
            match fast_path::charge_of(found.as_ref(), descriptor, domain, keys) {
                Some(charge) => all.push(charge),
                None => {
                    all.truncate(before);
                    *class = Class::General(domain);
                    break;
                }
            }
        }
    }
}
