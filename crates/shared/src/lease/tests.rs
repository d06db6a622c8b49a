//! Scenarios of one counter, one or two nodes and a store.

use super::{
    CounterState, Epoch, ExactDecision, Holder, HolderDecision, LeaseRequest, LeaseResponse, Monotonic,
    NodeId, ResponseState, Settings, SharedCounter, StoreDenial, Supply, Terms,
};
use proptest::prelude::*;
use std::{num::NonZeroU32, time::Duration};
use tidegate_core::{
    algorithm::{Algorithm, FixedWindow, Rate, Refill, Schedule, SlidingLog, State, TokenBucket},
    limit::{Reset, Timestamp, Window},
};

const MILLIS: u64 = 1_000_000;
const NODE: NodeId = NodeId(1);

/// The store's time. `clock` is the time of a node, whose clock has another origin.
fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

fn clock(millis: u64) -> Monotonic {
    Monotonic::from_nanos((5_000 + millis) * MILLIS)
}

/// An epoch that began long ago.
const OLD: Epoch = Epoch { id: 1, began: Timestamp::EPOCH };

fn minute() -> Window {
    Window::from_secs(60).unwrap()
}

fn log(limit: u32) -> Algorithm {
    Algorithm::SlidingLog(SlidingLog { limit, window: minute() })
}

fn terms(algorithm: &Algorithm) -> Terms<'_> {
    Terms::of(algorithm, Settings::default()).unwrap()
}

/// A node with a demand of 100 hits, its counter, and a lease from 20 ms on.
fn leased(terms: Terms<'_>) -> (Holder, SharedCounter) {
    let (mut holder, mut counter) = (Holder::new(terms.for_holder(), clock(0)), SharedCounter::default());
    for _ in 0..100 {
        assert_eq!(holder.decide(1, clock(10)), HolderDecision::Undecided);
    }
    let request = holder.poll(NODE, clock(20)).unwrap();
    let response = counter.lease(terms, OLD, &request, at(21)).unwrap();
    assert_eq!(response.supply, Supply::Ample);
    assert!(holder.accept(&response, clock(22)));
    (holder, counter)
}

fn free(counter: &mut SharedCounter, terms: Terms<'_>, now: Timestamp) -> u64 {
    match counter.decide(terms, OLD, 0, now) {
        ExactDecision::Admitted { free, .. } => free,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_with_credits_decides_without_the_store() {
    let algorithm = log(100_000);
    let (mut holder, mut counter) = leased(terms(&algorithm));
    let credits = holder.credits(clock(22));
    assert!(credits >= 100, "{credits} credits");
    assert_eq!(holder.decide(1, clock(23)), HolderDecision::Covered);
    assert_eq!(holder.credits(clock(23)), credits - 1);
    assert_eq!(free(&mut counter, terms(&algorithm), at(23)), 100_000 - credits);
}

#[test]
fn credits_end_before_the_stores_end_of_the_lease() {
    let algorithm = log(100_000);
    let (mut holder, counter) = leased(terms(&algorithm));
    // The lease began at 21 ms for the store, and the request was sent at 20 ms.
    assert_eq!(counter.leases()[0].end, at(221));
    assert!(holder.credits(clock(219)) > 0);
    assert_eq!(holder.credits(clock(220)), 0);
    assert_eq!(holder.decide(1, clock(220)), HolderDecision::Undecided);
}

#[test]
fn the_credits_of_a_silent_node_count_as_spent_at_the_end_of_its_lease() {
    let algorithm = log(100_000);
    let (holder, mut counter) = leased(terms(&algorithm));
    let credits = holder.credits(clock(22));
    let minute = 60_000;
    assert_eq!(free(&mut counter, terms(&algorithm), at(220 + minute)), 100_000 - credits);
    assert_eq!(free(&mut counter, terms(&algorithm), at(221 + minute)), 100_000);
}

#[test]
fn what_a_node_does_not_spend_is_free_when_it_stops() {
    let algorithm = log(100_000);
    let (mut holder, mut counter) = leased(terms(&algorithm));
    for _ in 0..7 {
        holder.decide(1, clock(30));
    }
    let request = holder.release(NODE, clock(40)).unwrap();
    assert_eq!(holder.credits(clock(40)), 0);
    counter.lease(terms(&algorithm), OLD, &request, at(41)).unwrap();
    assert_eq!(counter.leases(), []);
    assert_eq!(free(&mut counter, terms(&algorithm), at(41)), 100_000 - 7);
}

#[test]
fn a_lost_response_costs_its_credits_until_the_next_request_only() {
    let algorithm = log(100_000);
    let (mut holder, mut counter) = leased(terms(&algorithm));
    for _ in 0..holder.credits(clock(60)) {
        holder.decide(1, clock(60));
    }
    let lost = holder.poll(NODE, clock(61)).unwrap();
    let late = counter.lease(terms(&algorithm), OLD, &lost, at(62)).unwrap();
    assert_eq!(holder.poll(NODE, clock(63)), None);
    let request = holder.poll(NODE, clock(86)).unwrap();
    assert!(!holder.accept(&late, clock(87)), "a response to an earlier request");
    let response = counter.lease(terms(&algorithm), OLD, &request, at(87)).unwrap();
    assert!(holder.accept(&response, clock(88)));
    assert_eq!(holder.credits(clock(88)), counter.leases()[0].outstanding);
    assert_eq!(counter.lease(terms(&algorithm), OLD, &lost, at(89)), None, "a request before the last");
}

#[test]
fn a_request_in_a_learning_phase_declares_and_gets_nothing() {
    let algorithm = log(1_000);
    let (mut holder, _) = leased(terms(&algorithm));
    holder.decide(3, clock(30));
    let credits = holder.credits(clock(30));
    let (mut empty, epoch) = (SharedCounter::default(), Epoch { id: 2, began: at(35) });
    assert_eq!(empty.decide(terms(&algorithm), epoch, 1, at(36)), ExactDecision::Learning);
    holder.declare();
    let request = holder.poll(NODE, clock(40)).unwrap();
    assert_eq!(request.kept, credits);
    let response = empty.lease(terms(&algorithm), epoch, &request, at(41)).unwrap();
    assert_eq!(response.supply, Supply::Learning);
    assert!(holder.accept(&response, clock(42)));
    assert_eq!(holder.credits(clock(42)), credits);
    // The credits that it holds, and the three hits that it had spent.
    assert_eq!(free(&mut empty, terms(&algorithm), at(42)), 1_000 - credits - 3);
}

fn denied(hits: u64, wait: Duration) -> StoreDenial {
    StoreDenial { hits, remaining: 0, denied_for: wait, reset: wait, state: None }
}

/// Outstanding credits deny the hits and may be returned at any time: one request at a time finds out.
#[test]
fn of_a_denied_counter_in_high_demand_one_call_is_with_the_store() {
    let algorithm = log(499);
    let terms = terms(&algorithm);
    let mut holder = Holder::new(terms.for_holder(), clock(0));
    for millis in 1..=200 {
        (0..10).for_each(|_| _ = holder.decide(1, clock(millis)));
    }
    let by_credits = StoreDenial { denied_for: Duration::ZERO, ..denied(1, Duration::from_mins(1)) };
    holder.keep_denial(by_credits, clock(200), clock(200));
    let decide = |holder: &mut Holder, millis| holder.decide(1, clock(millis));
    assert!(
        matches!(decide(&mut holder, 201), HolderDecision::Denied { .. }),
        "it is kept for some milliseconds"
    );
    assert_eq!(decide(&mut holder, 205), HolderDecision::Undecided);
    assert!(matches!(decide(&mut holder, 206), HolderDecision::Denied { .. }), "one is with the store");
    holder.admitted(2, clock(207));
    let after = [decide(&mut holder, 207), decide(&mut holder, 207)];
    assert_eq!(after, [HolderDecision::Undecided; 2], "the store had two left");
    let HolderDecision::Denied { remaining, .. } = decide(&mut holder, 208) else { panic!("it had no more") };
    assert_eq!(remaining, 0);
}

/// A client that waits for the reset is admitted.
#[test]
fn a_denial_of_a_counter_in_low_demand_is_kept_for_no_longer_than_it_holds() {
    let algorithm = log(499);
    let terms = terms(&algorithm);
    let mut holder = Holder::new(terms.for_holder(), clock(0));
    holder.decide(1, clock(10));
    holder.keep_denial(denied(1, Duration::from_millis(1)), clock(10), clock(10));
    assert_eq!(holder.decide(1, clock(11)), HolderDecision::Undecided);
    assert_eq!(holder.decide(1, clock(11)), HolderDecision::Undecided);
}

#[test]
fn a_denial_is_kept_until_its_reset_and_for_a_second_at_most() {
    let algorithm = log(5);
    let (mut holder, mut counter) =
        (Holder::new(terms(&algorithm).for_holder(), clock(0)), SharedCounter::default());
    assert!(matches!(counter.decide(terms(&algorithm), OLD, 5, at(0)), ExactDecision::Admitted { .. }));
    let ExactDecision::Denied { denied_for, reset, .. } = counter.decide(terms(&algorithm), OLD, 1, at(10))
    else {
        panic!("the limit is used");
    };
    assert_eq!(reset, Reset::After(Duration::from_millis(59_990)));
    holder.keep_denial(denied(1, denied_for), clock(9), clock(11));
    let kept = HolderDecision::Denied { until: clock(60_001), remaining: 0 };
    assert_eq!(holder.decide(1, clock(1_008)), kept);
    assert_eq!(holder.decide(1, clock(1_009)), HolderDecision::Undecided);
    let three = denied(3, Duration::from_millis(100));
    holder.keep_denial(three, clock(2_000), clock(2_000));
    assert_eq!(holder.decide(2, clock(2_001)), HolderDecision::Undecided);
    assert!(matches!(holder.decide(3, clock(2_001)), HolderDecision::Denied { .. }));
    holder.drop_denial();
    assert_eq!(holder.decide(3, clock(2_001)), HolderDecision::Undecided);
}

#[test]
fn a_changed_rule_ends_the_lease_and_the_denial() {
    let (algorithm, lower) = (log(1_000), log(10));
    let (mut holder, mut counter) = leased(terms(&algorithm));
    holder.decide(20, clock(30));
    holder.keep_denial(denied(1, Duration::from_secs(1)), clock(30), clock(30));
    let request = holder.release(NODE, clock(40)).unwrap();
    assert_eq!(holder.decide(1, clock(40)), HolderDecision::Undecided);
    counter.change_rule(terms(&algorithm), terms(&lower), at(41));
    counter.lease(terms(&lower), OLD, &request, at(42)).unwrap();
    assert!(matches!(counter.decide(terms(&lower), OLD, 1, at(43)), ExactDecision::Denied { .. }));
}

/// If the node's report were dated at the last of its hits, before the reset, they would drain beside the hits that were given back.
#[test]
fn hits_of_a_bucket_that_are_reported_after_a_give_back_have_not_drained() {
    let per_minute = NonZeroU32::new(6_000).unwrap();
    let algorithm = Algorithm::TokenBucket(TokenBucket::greedy(6_000, per_minute, minute()));
    let (mut holder, mut counter) = leased(terms(&algorithm));
    assert!(matches!(counter.decide(terms(&algorithm), OLD, 1_000, at(25)), ExactDecision::Admitted { .. }));
    holder.decide(50, clock(30));
    // At 100 hits a second, 15 of the thousand drain until then. The fifty are behind them.
    assert_eq!(counter.give_back(terms(&algorithm), u64::MAX, at(180)), 985);
    let request = holder.release(NODE, clock(190)).unwrap();
    counter.lease(terms(&algorithm), OLD, &request, at(191)).unwrap();
    assert_eq!(free(&mut counter, terms(&algorithm), at(191)), 5_950);
}

#[test]
fn a_window_from_the_first_hit_is_opened_by_the_store_and_not_closed_while_leased() {
    let schedule = Schedule::FirstHit(minute());
    let algorithm = Algorithm::FixedWindow(FixedWindow { limit: 1_000, schedule });
    let mut counter = SharedCounter::default();
    let request = LeaseRequest {
        node: NODE,
        holder: 0,
        sequence: 1,
        spent: 0,
        acknowledged: 0,
        spent_ago: 0,
        kept: 0,
        demand: 100,
    };
    let response = counter.lease(terms(&algorithm), OLD, &request, at(0)).unwrap();
    assert_eq!((response.spend_to, response.supply), (0, Supply::TooSmall));
    assert!(matches!(counter.decide(terms(&algorithm), OLD, 1, at(10)), ExactDecision::Admitted { .. }));
    let request = LeaseRequest { sequence: 2, ..request };
    let response = counter.lease(terms(&algorithm), OLD, &request, at(20)).unwrap();
    assert!(response.spend_to > 0);
    assert_eq!(counter.give_back(terms(&algorithm), 1, at(30)), 0);
    // Near its end, the lease ends with the window.
    let request = LeaseRequest { sequence: 3, ..request };
    let response = counter.lease(terms(&algorithm), OLD, &request, at(59_960)).unwrap();
    assert_eq!(response.valid_for, Duration::from_nanos(50 * MILLIS - 1_000));
}

/// A late request makes the store forget how much of the total it has counted. The rest was spent in a window that is over, and would
/// otherwise begin the next window too early.
#[test]
fn hits_of_an_earlier_window_open_none() {
    let schedule = Schedule::FirstHit(minute());
    let algorithm = Algorithm::FixedWindow(FixedWindow { limit: 1_000, schedule });
    let (terms, mut counter) = (terms(&algorithm), SharedCounter::default());
    let request = |sequence, spent, spent_ago| LeaseRequest {
        node: NODE,
        holder: 0,
        sequence,
        spent,
        acknowledged: 0,
        spent_ago,
        kept: 0,
        demand: 100,
    };
    assert!(matches!(counter.decide(terms, OLD, 1, at(0)), ExactDecision::Admitted { .. }));
    assert!(counter.lease(terms, OLD, &request(2, 0, 0), at(59_800)).unwrap().spend_to >= 3);
    // The lease and the window are over, and the next window is closed again.
    counter.lease(terms, OLD, &request(1, 0, 0), at(60_500)).unwrap();
    assert!(matches!(counter.decide(terms, OLD, 1, at(60_510)), ExactDecision::Admitted { .. }));
    assert_eq!(counter.give_back(terms, 1, at(60_520)), 1);
    counter.lease(terms, OLD, &request(3, 3, 650 * MILLIS), at(60_550)).unwrap();
    assert_eq!(free(&mut counter, terms, at(60_600)), 1_000);
}

/// The limit is below the smallest limit that is worth leasing: whatever the demand is, nothing is held back for a node.
#[test]
fn a_small_limit_is_never_leased_and_its_denials_are_kept() {
    for (limit, is_leased) in [(100, false), (499, false), (500, true)] {
        let algorithm = log(limit);
        let terms = terms(&algorithm);
        let mut holder = Holder::new(terms.for_holder(), clock(0));
        for millis in 1..400 {
            (0..10).for_each(|_| assert_eq!(holder.decide(1, clock(millis)), HolderDecision::Undecided));
        }
        holder.declare();
        assert_eq!(holder.is_leased(), is_leased, "a limit of {limit}");
        assert_eq!(holder.poll(NODE, clock(400)).is_some(), is_leased, "a limit of {limit}");
        holder.keep_denial(denied(1, Duration::from_millis(300)), clock(400), clock(401));
        assert!(matches!(holder.decide(1, clock(402)), HolderDecision::Denied { .. }));
        assert_eq!(holder.decide(1, clock(701)), HolderDecision::Undecided);
    }
}

#[test]
fn rules_whose_windows_are_shorter_than_a_lease_are_not_leased() {
    let window = Window::from_nanos(199 * MILLIS).unwrap();
    let algorithm = Algorithm::SlidingLog(SlidingLog { limit: 100, window });
    assert!(Terms::of(&algorithm, Settings::default()).is_none());
    let settings = Settings { length: Duration::ZERO, ..Settings::default() };
    assert!(Terms::of(&log(100), settings).is_none());
}

/// A step of a node: the milliseconds before it, the hits that the node decides, and whether it gets the response to a request.
type Step = (u64, u64, bool);

/// The first step at which a request was due before the node would have looked for one.
fn overlooked(terms: Terms<'_>, steps: &[Step]) -> Option<usize> {
    let (mut holder, mut counter) = (Holder::new(terms.for_holder(), clock(0)), SharedCounter::default());
    let (mut look_at, mut millis) = (Monotonic::ORIGIN, 0);
    for (number, &(wait, hits, responds)) in steps.iter().enumerate() {
        millis += wait;
        let now = clock(millis);
        holder.decide(hits, now);
        holder.lower_next_look(&mut look_at, now);
        if look_at > now {
            if holder.clone().poll(NODE, now).is_some() {
                return Some(number);
            }
            continue;
        }
        holder.drop_expired(now);
        let request = holder.poll(NODE, now);
        look_at = holder.next_look();
        if let Some(request) = request.filter(|_| responds) {
            let response = counter.lease(terms, OLD, &request, at(millis)).unwrap();
            assert!(holder.accept(&response, now));
            look_at = holder.next_look().min(look_at);
        }
    }
    None
}

proptest! {
    #[test]
    fn no_request_is_due_before_the_next_look(
        steps in prop::collection::vec((0..40_u64, 0..60_u64, prop::bool::weighted(0.9)), 1..200),
        limit in prop::sample::select(vec![500_u32, 3_000, 1_000_000]),
    ) {
        let algorithm = log(limit);
        prop_assert_eq!(overlooked(terms(&algorithm), &steps), None);
    }
}

/// A claim: the milliseconds before it, the node, the credits to keep, and the demand.
type Claim = (u64, u64, u64, u64);

/// More than any share, so that the claim is cut down to the share.
const BEYOND: u64 = u32::MAX as u64;

/// The first claim that renews more credits than the share of its node. Nothing is ever spent.
fn renewed_beyond_its_share(terms: Terms<'_>, limit: u64, claims: &[Claim]) -> Option<usize> {
    let (mut counter, mut millis) = (SharedCounter::default(), 0);
    assert!(matches!(counter.decide(terms, OLD, 1, at(0)), ExactDecision::Admitted { .. }));
    for (number, &(wait, node, kept, demand)) in claims.iter().enumerate() {
        millis += wait;
        // Drops leases that have ended.
        counter.decide(terms, OLD, 0, at(millis));
        let lease_of = |counter: &SharedCounter| {
            counter
                .leases()
                .iter()
                .find(|lease| lease.node == node)
                .map(|lease| (lease.outstanding, lease.end))
        };
        let former = lease_of(&counter).map(|(_, end)| end);
        let (node, sequence) = (NodeId(node), number as u64 + 1);
        let request =
            LeaseRequest { node, holder: 0, sequence, spent: 0, acknowledged: 0, spent_ago: 0, kept, demand };
        counter.lease(terms, OLD, &request, at(millis)).unwrap();
        let greedy = counter.leases().iter().filter(|lease| lease.demand == BEYOND).count() as u64;
        // A quarter more than demanded. If nodes demand more than there is, equal parts.
        let share = (demand * 5 / 4 + 1).min(limit / if demand == BEYOND { greedy } else { 1 });
        let renews = |(credits, end)| credits > share && former.is_none_or(|former| end > former);
        if lease_of(&counter).is_some_and(renews) {
            return Some(number);
        }
    }
    None
}

proptest! {
    /// Such credits end with the lease by which they were granted, however often the node claims them.
    #[test]
    fn credits_beyond_the_share_of_a_node_are_not_renewed(
        claims in prop::collection::vec(
            (
                0..60_u64,
                1..4_u64,
                prop_oneof![Just(0), 1..200_u64, Just(BEYOND)],
                prop_oneof![Just(0), 1..200_u64, Just(BEYOND)],
            ),
            1..60,
        ),
        kind in 0..4_usize,
    ) {
        let window = minute();
        let algorithm = match kind {
            0 => log(1_000),
            1 => Algorithm::FixedWindow(FixedWindow { limit: 1_000, schedule: Schedule::Clock(window) }),
            2 => Algorithm::FixedWindow(FixedWindow { limit: 1_000, schedule: Schedule::FirstHit(window) }),
            _ => Algorithm::TokenBucket(TokenBucket::greedy(1_000, NonZeroU32::new(1_000).unwrap(), window)),
        };
        prop_assert_eq!(renewed_beyond_its_share(terms(&algorithm), 1_000, &claims), None);
    }
}

/// A bucket of 10 per 10 s, of which 6 are used: 5 fit in a second, 8 in four, and 11 never. All three used to have the wait of the first.
#[test]
fn a_kept_denial_denies_more_hits_by_their_own_numbers() {
    let rate = Rate::new(NonZeroU32::new(10).unwrap(), Window::from_secs(10).unwrap());
    let algorithm = Algorithm::TokenBucket(TokenBucket { size: 10, refill: Refill::Greedy(rate) });
    let mut holder = Holder::new(terms(&algorithm).for_holder(), clock(0));
    let state = algorithm.add(State::EMPTY, 6, at(0));
    let second = Duration::from_secs(1);
    let five = StoreDenial { state: Some(CounterState { state, at: at(0) }), ..denied(5, second) };
    holder.keep_denial(five, clock(0), clock(0));
    for (hits, millis, remaining, wait) in
        [(5, 0, 4, Some(1_000)), (8, 0, 4, Some(4_000)), (8, 500, 4, Some(3_500)), (11, 500, 4, None)]
    {
        assert!(matches!(holder.decide(hits, clock(millis)), HolderDecision::Denied { .. }), "{hits}");
        let wait = wait.map_or(Reset::Never, |wait| Reset::After(Duration::from_millis(wait)));
        assert_eq!(holder.denied(hits, &algorithm, clock(millis)), Some((remaining, wait)), "{hits}");
    }
    assert_eq!(holder.decide(4, clock(0)), HolderDecision::Undecided);
    // Without the state, the store has to decide more hits.
    holder.keep_denial(denied(5, second), clock(0), clock(0));
    assert!(matches!(holder.decide(5, clock(1)), HolderDecision::Denied { .. }));
    assert_eq!(holder.decide(8, clock(1)), HolderDecision::Undecided);
}

/// A bucket of 1,000 per minute: 960 are used and 40 are credits of others. One hit is free 60 ms after all of these were spent, and not at
/// the next report.
#[test]
fn a_denial_for_lack_of_credits_states_a_wait_that_holds_if_others_spend_all_of_theirs() {
    let rate = Rate::new(NonZeroU32::new(1_000).unwrap(), minute());
    let algorithm = Algorithm::TokenBucket(TokenBucket { size: 1_000, refill: Refill::Greedy(rate) });
    let (mut holder, mut counter) = leased(terms(&algorithm));
    holder.spend(holder.credits(clock(30)), clock(30));
    let request = holder.poll(NODE, clock(40)).unwrap();
    let mut response = counter.lease(terms(&algorithm), OLD, &request, at(41)).unwrap();
    (response.supply, response.spend_to, response.free) = (Supply::Scarce, request.spent, 7);
    response.report_after = Duration::from_millis(1);
    let state = algorithm.add(State::EMPTY, 960, at(41));
    let known = ResponseState { state, at: at(41), outstanding: 40, end: at(241) };
    assert!(holder.accept_with(&response, Some(known.clone()), clock(42)));
    let HolderDecision::Denied { remaining, .. } = holder.decide(1, clock(43)) else {
        panic!("credits are scarce, and there are none");
    };
    assert_eq!(remaining, 0, "those that are free are not for this server");
    let wait = Reset::After(Duration::from_millis(59));
    assert_eq!(holder.denied(1, &algorithm, clock(43)), Some((0, wait)));
    // Nothing can be granted for 5 ms, and a hit is free after ten.
    response.empty_for = Duration::from_millis(5);
    let request = holder.poll(NODE, clock(90)).unwrap();
    let none = LeaseResponse { sequence: request.sequence, spend_to: request.spent, ..response };
    let full = ResponseState { at: at(91), ..known };
    assert!(holder.accept_with(&none, Some(full), clock(91)));
    assert!(matches!(holder.decide(1, clock(91)), HolderDecision::Denied { .. }));
    let denied = holder.denied(1, &algorithm, clock(91)).expect("the counter is known");
    assert!(denied >= (0, Reset::After(Duration::from_millis(10))), "{denied:?}");
}
