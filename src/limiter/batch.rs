//! Requests that came together: memory is asked for all of their counters before any of them is waited for.
//!
//! Of many counters none is in a near cache, and the wait for one is most of a decision; waits that overlap cost one.

use super::{Pinned, decide, fast_path, keys::Keys};
use crate::{
    limit::{Decision, Request, Timestamp},
    rules::{DomainRules, Found},
};
use smallvec::SmallVec;

/// As many as commonly come together; what is beyond takes memory of its own.
const REQUESTS: usize = 16;

/// What is known of each descriptor of the requests that may go a short way.
type OfEach<T> = SmallVec<[T; REQUESTS * fast_path::DESCRIPTORS_MAX]>;

/// The way that a request goes.
#[derive(Clone, Copy)]
enum Way<'r> {
    /// A short one, as far as is known.
    Short(&'r DomainRules),
    Long(&'r DomainRules),
    /// What else there is: nothing is known ahead.
    Other,
}

/// Decides the requests one after the other, and tells each decision with the index of its request.
pub(super) fn decide_all<'r, 'q, 't: 'q>(
    pinned: &'r Pinned<'_>,
    requests: impl Iterator<Item = &'q Request<'t>> + Clone,
    now: Timestamp,
    mut tell: impl FnMut(usize, &Decision<'r>),
) {
    let mut of_one = requests.clone().take(2);
    if let (Some(request), None) = (of_one.next(), of_one.next()) {
        return tell(0, &pinned.decide(request, now));
    }
    let Pinned { in_force, limiter } = pinned;
    let mut ways: SmallVec<[Way<'r>; REQUESTS]> =
        requests.clone().map(|request| way(pinned, request)).collect();
    let (mut found, mut asked) = (OfEach::new(), OfEach::new());
    find(requests.clone(), &ways, &mut found);
    ask(requests.clone(), &mut ways, &found, &in_force.keys, &mut asked);
    fast_path::fetch(&asked, &limiter.store);
    let mut asked = &asked[..];
    // Each way tells its own decision: one that they had in common would be made elsewhere first, and copied.
    for (index, (request, way)) in requests.zip(ways).enumerate() {
        let domain = match way {
            Way::Short(domain) => {
                let of_request = asked.split_off(..request.descriptors().len()).unwrap_or_default();
                if let Some(decision) = fast_path::decide(of_request, &limiter.store, now) {
                    tell(index, &decision);
                    continue;
                }
                domain
            }
            Way::Long(domain) => domain,
            Way::Other => {
                tell(index, &pinned.decide(request, now));
                continue;
            }
        };
        tell(index, &decide::decide_any(in_force, domain, limiter, request, now));
    }
}

#[inline]
fn way<'r>(pinned: &'r Pinned<'_>, request: &Request<'_>) -> Way<'r> {
    let Pinned { in_force, limiter } = pinned;
    match in_force.rules.domain(request.domain()) {
        Some(_) if pinned.domain_with_lines(request).is_some() => Way::Other,
        Some(domain) if !limiter.global_shadow && fast_path::may_take(request.descriptors(), domain) => {
            Way::Short(domain)
        }
        Some(domain) => Way::Long(domain),
        None => Way::Other,
    }
}

/// The rules of the requests that may go a short way; memory is asked for what these say.
#[inline]
fn find<'r, 'q, 't: 'q>(
    requests: impl Iterator<Item = &'q Request<'t>>,
    ways: &[Way<'r>],
    all: &mut OfEach<Option<Found<'r>>>,
) {
    for (request, way) in requests.zip(ways) {
        let Way::Short(domain) = way else { continue };
        for descriptor in request.descriptors() {
            let found = domain.find(&descriptor.entries);
            if let Some(Found { rule, .. }) = &found {
                rule.prefetch();
            }
            all.push(found);
        }
    }
}

/// What the requests that may go a short way ask for. Those that ask for more are sent the long way.
#[inline]
fn ask<'r, 'q, 't: 'q>(
    requests: impl Iterator<Item = &'q Request<'t>>,
    ways: &mut [Way<'r>],
    mut found: &[Option<Found<'r>>],
    keys: &Keys,
    all: &mut OfEach<fast_path::Asked<'r>>,
) {
    for (request, way) in requests.zip(ways) {
        let Way::Short(domain) = *way else { continue };
        let before = all.len();
        let descriptors = request.descriptors();
        let of_request = found.split_off(..descriptors.len()).unwrap_or_default();
        for (descriptor, found) in descriptors.iter().zip(of_request) {
            match fast_path::asked_of(found.as_ref(), descriptor, domain, keys) {
                Some(asked) => all.push(asked),
                None => {
                    all.truncate(before);
                    *way = Way::Long(domain);
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limit::{Code, Descriptor, Hits},
        limiter::{
            Due, Verdict,
            fast_path::tests::{Asks, KEYS, RULES, asking, counters, limiter},
            tests::descriptor,
        },
    };
    use proptest::{collection::vec, prelude::*};
    use std::{task::Waker, time::Duration};

    /// A rule whose answers wait for their turn.
    const HELD: &str = "  - { key: held, rate_limit: { per: 1s, requests_per_unit: 1, algorithm: leaky_bucket, max_wait: 9s } }\n";

    /// Domains of requests; the last is not known.
    const DOMAINS: [&str; 2] = ["d", "unknown"];

    fn request(domain: usize, asks: Vec<Asks>) -> Request<'static> {
        let mut request = Request::new(DOMAINS[domain]);
        asks.into_iter().for_each(|asks| request.push(asking(asks)));
        request
    }

    fn requests() -> impl Strategy<Value = Vec<Request<'static>>> {
        let asks = vec((0..KEYS.len(), 0..2u8, 0..8u8, 0..40u8), 1..6);
        let domain = prop_oneof![9 => Just(0), 1 => Just(1)];
        vec((domain, asks).prop_map(|(domain, asks)| request(domain, asks)), 1..20)
    }

    proptest! {
        #[test]
        fn what_comes_together_is_decided_as_one_after_the_other(
            steps in vec((0..8_000u64, requests()), 1..8),
            holds in any::<bool>(),
            global_shadow in any::<bool>(),
        ) {
            let rules = [RULES, if holds { HELD } else { "" }].concat();
            let (mut together, mut one_by_one) = (limiter(&rules), limiter(&rules));
            (together.global_shadow, one_by_one.global_shadow) = (global_shadow, global_shadow);
            let mut now = Timestamp::from_millis(1_700_000_000_000);
            for (wait, requests) in steps {
                now = Timestamp::from_nanos(now.as_nanos() + wait * 1_000_000);
                let (together, one_by_one, mut told) = (together.pin(), one_by_one.pin(), 0);
                together.decide_all(requests.iter(), now, |index, decision| {
                    assert_eq!((index, decision), (told, &one_by_one.decide(&requests[index], now)));
                    told += 1;
                });
                prop_assert_eq!(told, requests.len());
                prop_assert_eq!(counters(together.limiter), counters(one_by_one.limiter));
            }
        }
    }

    #[test]
    fn what_is_given_back_among_others_moves_those_who_wait() {
        let limiter = limiter(&[RULES, HELD].concat());
        let (now, patience) = (Timestamp::from_millis(1_700_000_000_000), Duration::from_secs(9));
        let of_one = |text, hits| {
            let mut request = Request::new("d");
            request.push(Descriptor { hits, ..descriptor(text) });
            request
        };
        let rules = limiter.pin();
        let come = || rules.decide_or_queue(&of_one("held=a", Hits::ONE), patience, now);
        let (Verdict::Decided(_), Verdict::Queued(ticket)) = (come(), come()) else {
            panic!("the second waits")
        };
        let turn = || match limiter.due(&ticket, Waker::noop()) {
            Due::At(turn) => turn.since(now),
            Due::TooLate => panic!("it is not sent away"),
        };
        assert_eq!(turn(), Duration::from_secs(1));
        let together = [of_one("sliding=a", Hits::ONE), of_one("held=a", Hits::new(Some(1), 1, true))];
        rules.decide_all(together.iter(), now, |_, decision| assert_eq!(decision.code, Code::Ok));
        assert_eq!(turn(), Duration::ZERO);
        limiter.cancel(ticket, now);
    }
}
