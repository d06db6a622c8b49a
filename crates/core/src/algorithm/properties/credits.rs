//! Waits of counters for which nodes hold credits and clients hold quota, for every algorithm.

use super::{
    super::{Lease, Leased, State},
    counter::{Counter, case, events},
};
use crate::limit::{Reset, Timestamp};
use proptest::prelude::*;

/// Credits, or hits of quota, and the share of the case's length after which they end.
fn held() -> impl Strategy<Value = (u64, f64)> {
    (0..9u64, 0.0..3.0f64)
}

proptest! {
    /// For a caller that is alone: neither requests nor reports arrive.
    #[test]
    fn the_wait_beside_credits_and_quota_is_never_too_short(
        case in case(), events in events(), hits in 1..12u64, passed in 0.0..1.0f64,
        leases in prop::collection::vec(held(), 0..20), quota in prop::option::of((held(), 0.0..1.2f64)),
    ) {
        let Counter { case, state, now, .. } = Counter::after(case, &events);
        let algorithm = &case.algorithm;
        let later = |share: f64| Timestamp::from_nanos(now + (case.nanos as f64 * share) as u64 + 1);
        let mut leased = Leased::of(algorithm, state, Timestamp::from_nanos(now));
        for (node, (outstanding, share)) in leases.into_iter().enumerate() {
            let (node, end) = (node as u64, later(share));
            leased.leases.push(Lease { node, holder: 2, sequence: 3, settled: 0, outstanding, end, demand: 9 });
        }
        if let Some(((held, share), part)) = quota {
            let limit = algorithm.remaining(&State::EMPTY, Timestamp::EPOCH) as f64;
            let rate = limit * part * 1e12 / case.nanos as f64;
            leased.assign(algorithm, held, rate as u64, later(share), Timestamp::from_nanos(now));
        }
        let (state, now) = (leased.into_state(algorithm, Timestamp::from_nanos(now)), later(passed));
        let wait = match algorithm.until_admits(&state, hits, now) {
            Reset::After(wait) => wait,
            Reset::Never => {
                prop_assert!(algorithm.remaining(&State::EMPTY, now) < hits);
                return Ok(());
            }
        };
        let then = now.saturating_add(wait);
        prop_assert!(algorithm.remaining(&state, then) >= hits, "after {wait:?}");
        // With a rate, the least wait is not always found.
        if !wait.is_zero() && quota.is_none() {
            let before = Timestamp::from_nanos(then.as_nanos() - 1);
            prop_assert!(algorithm.remaining(&state, before) < hits, "before {wait:?}");
        }
    }
}
