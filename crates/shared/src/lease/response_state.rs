//! A counter as of a response of the store. The waits of requests that a server denies by itself follow from it.

use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::{Reset, Timestamp},
};

/// The state of a counter, and the credits of all servers beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResponseState {
    /// The hits that are used.
    pub state: State,
    /// Time of the store's clock.
    pub at: Timestamp,
    /// Outstanding credits of all servers.
    pub outstanding: u64,
    /// Time by which all of them have ended.
    pub end: Timestamp,
}

impl ResponseState {
    /// The wait after which `hits` are admitted, `passed` nanoseconds after the response. It holds whatever servers do with their credits:
    /// credits count as hits of the present until their end, and then as spent.
    pub(super) fn until_admits(&self, hits: u64, algorithm: &Algorithm, passed: u64) -> Reset {
        let Self { state, at, outstanding, end } = self;
        let now = at.saturating_add_nanos(passed);
        if now < *end
            && let Reset::After(wait) = algorithm.until_admits(state, hits.saturating_add(*outstanding), now)
            && now.saturating_add(wait) < *end
        {
            return Reset::After(wait);
        }
        let spent = match *outstanding {
            0 => state.clone(),
            credits => algorithm.add(state.clone(), credits, *end),
        };
        let then = now.max(*end);
        match algorithm.until_admits(&spent, hits, then) {
            Reset::After(wait) => Reset::After(wait.saturating_add(then.since(now))),
            Reset::Never => Reset::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{num::NonZeroU32, time::Duration};
    use tidegate_core::{
        algorithm::{FixedWindow, Lease, Leased, Rate, Refill, Schedule, SlidingWindow, TokenBucket},
        limit::Window,
    };

    fn algorithms() -> [Algorithm; 3] {
        let window = Window::from_secs(1).unwrap();
        let rate = Rate::new(NonZeroU32::new(100).unwrap(), window);
        [
            Algorithm::SlidingWindow(SlidingWindow { limit: 100, window }),
            Algorithm::FixedWindow(FixedWindow { limit: 100, schedule: Schedule::Clock(window) }),
            Algorithm::TokenBucket(TokenBucket { size: 100, refill: Refill::Greedy(rate) }),
        ]
    }

    proptest! {
        #[test]
        fn a_caller_that_waits_is_admitted_if_all_credits_are_spent_at_their_end(
            kind in 0..3_usize, used in 0..120_u64, since in 0..1_500_u64, outstanding in 0..80_u64, lasts in 1..400_u64,
            passed in 0..600_u64, hits in 1..101_u64,
        ) {
            let algorithm = &algorithms()[kind];
            let at = |millis| Timestamp::from_millis(1_700_000_000_000 + millis);
            let state = algorithm.add(State::EMPTY, used.max(1), at(0));
            let (response, end) = (at(since), at(since + lasts));
            let known = ResponseState { state: state.clone(), at: response, outstanding, end };
            let passed_nanos = passed * 1_000_000;
            let Reset::After(wait) = known.until_admits(hits, algorithm, passed_nanos) else { panic!("never") };
            let lease = Lease { node: 1, holder: 1, sequence: 1, settled: 0, outstanding, end, demand: 1 };
            let oracle = State::Leased(Box::new(Leased { state, leases: vec![lease], ..Leased::default() }));
            let then = response.saturating_add_nanos(passed_nanos).saturating_add(wait);
            prop_assert!(algorithm.remaining(&oracle, then) >= hits, "after {:?}", wait);
            if wait > Duration::ZERO {
                let early = Timestamp::from_nanos(then.as_nanos() - 1);
                prop_assert!(algorithm.remaining(&oracle, early) < hits, "before {:?}", wait);
            }
        }
    }
}
