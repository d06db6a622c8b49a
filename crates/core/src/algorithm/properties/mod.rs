//! Properties of every algorithm.

use super::{Algorithm, Concurrency, SlidingLog, State, SubWindows, TokenBucket};
use crate::limit::{Timestamp, Window};
use counter::{Counter, Event, case, case_under_two_limits, events, nanos};
use oracle::{BERLIN_MONTHS, Model};
use proptest::prelude::*;
use std::num::NonZeroU32;

mod counter;
mod credits;
#[expect(dead_code, reason = "the rest serves the simulator")]
#[path = "../../../../../tests/sim/oracle.rs"]
mod oracle;

proptest! {
    #[test]
    fn every_result_equals_the_oracles(case in case(), events in events()) {
        let mut counter = Counter::new(case);
        for (share, more, event) in events {
            counter.wait(share, more);
            counter.equals_the_oracle()?;
            counter.apply(event);
            counter.equals_the_oracle()?;
        }
    }

    #[test]
    fn waiting_exactly_the_reset_admits_and_one_nanosecond_less_does_not(
        case in case(), events in events(), hits in 1..12u64,
    ) {
        let counter = Counter::after(case, &events);
        match counter.until_admits(hits) {
            None => prop_assert!(hits > counter.oracle.limit()),
            Some(0) => prop_assert!(hits <= counter.remaining(counter.now)),
            Some(wait) => {
                prop_assert!(hits <= counter.remaining(counter.now + wait));
                prop_assert!(hits > counter.remaining(counter.now + wait - 1));
            }
        }
    }

    #[test]
    fn waiting_exactly_until_full_frees_the_whole_limit_and_one_nanosecond_less_does_not(
        case in case(), events in events(),
    ) {
        let counter = Counter::after(case, &events);
        let full = counter.until_full();
        prop_assert_eq!(counter.remaining(counter.now + full), counter.oracle.limit());
        prop_assert_eq!(counter.used(counter.now + full), 0);
        if full > 0 {
            prop_assert!(counter.used(counter.now + full - 1) > 0);
        }
    }

    #[test]
    fn the_remaining_hits_can_be_taken_and_not_one_more(case in case(), events in events()) {
        let mut counter = Counter::after(case, &events);
        let remaining = counter.remaining(counter.now);
        prop_assert_ne!(counter.until_admits(remaining + 1), Some(0));
        if remaining > 0 {
            prop_assert_eq!(counter.until_admits(remaining), Some(0));
            counter.apply(Event::Charge(remaining));
            prop_assert_eq!(counter.remaining(counter.now), 0);
            prop_assert_ne!(counter.until_admits(1), Some(0));
        }
    }

    #[test]
    fn hits_are_counted_one_by_one_as_they_are_together(case in case(), events in events(), hits in 1..9u64) {
        let mut one_by_one = Counter::after(case.clone(), &events);
        let mut together = Counter::after(case, &events);
        (0..hits).for_each(|_| one_by_one.apply(Event::Charge(1)));
        together.apply(Event::Charge(hits));
        prop_assert_eq!(one_by_one.used(one_by_one.now), together.used(together.now));
        prop_assert_eq!(one_by_one.state, together.state);
    }

    #[test]
    fn hits_taken_and_given_back_can_be_taken_again(
        case in case(), events in events(), hits in 1..12u64, share in 0.0..0.2f64,
    ) {
        let mut counter = Counter::after(case, &events);
        let before = (counter.used(counter.now), counter.until_admits(1), counter.until_full());
        let is_counted_one_by_one = counter.remaining(counter.now) >= hits;
        counter.apply(Event::Charge(hits));
        counter.apply(Event::GiveBack(hits));
        // A log keeps only the number and the newest instant of hits beyond the limit.
        if is_counted_one_by_one || !matches!(counter.case.algorithm, Algorithm::SlidingLog(_)) {
            prop_assert_eq!((counter.used(counter.now), counter.until_admits(1), counter.until_full()), before);
        }
        counter.wait(share, 0);
        let later = counter.used(counter.now);
        counter.apply(Event::GiveBack(u64::MAX));
        prop_assert_eq!(counter.used(counter.now), 0, "of {}", later);
    }

    /// Two requests with others between them; the first is cancelled.
    #[test]
    fn giving_back_the_rest_of_hits_leaves_all_others(
        case in case(), earlier in events(), later in events(), hits in 1..9u64,
    ) {
        // Without the first of them, windows that begin with the first hit would lie elsewhere.
        prop_assume!(!matches!(case.model, Model::FirstHitWindow { .. }));
        let mut counter = Counter::after(case, &earlier);
        let taken = Timestamp::from_nanos(counter.now);
        let mut without = counter.clone();
        counter.apply(Event::Charge(hits));
        prop_assert_eq!(
            counter.case.algorithm.left_of(&counter.state, hits, taken, taken),
            hits,
            "all of them at once"
        );
        for (share, more, event) in later {
            for counter in [&mut counter, &mut without] {
                counter.wait(share, more);
                let hits = match event { Event::Take(hits) | Event::Charge(hits) | Event::GiveBack(hits) => hits };
                counter.apply(Event::Charge(hits));
            }
        }
        let now = Timestamp::from_nanos(counter.now);
        let left = counter.case.algorithm.left_of(&counter.state, hits, taken, now);
        prop_assert!(left <= hits);
        counter.apply(Event::GiveBack(left));
        prop_assert!(counter.used(counter.now) >= without.used(without.now));
        if matches!(counter.case.model, Model::GreedyBucket { .. } | Model::LeakyBucket { .. }) {
            // Used hits are rounded up. No part of another's hit is gone.
            prop_assert!(counter.until_full() >= without.until_full());
        }
    }

    /// The basis of leases (`shared::lease`): hits that are counted later, or more of them, never leave more room.
    #[test]
    fn hits_that_are_counted_later_leave_no_more_room(
        case in case(), hits in prop::collection::vec((0.0..0.4f64, 0.0..0.6f64, 1..5u64), 1..20), share in 0.0..2.0f64,
    ) {
        // Such a window begins with its first hit, wherever that is.
        prop_assume!(!matches!(case.model, Model::FirstHitWindow { .. }));
        let (mut on_time, mut late) = (Counter::new(case.clone()), Counter::new(case));
        let nanos = on_time.case.nanos as f64;
        let (mut now, mut delayed) = (on_time.now, Vec::new());
        for (gap, delay, hits) in hits {
            now += (nanos * gap) as u64;
            on_time.now = now;
            on_time.apply(Event::Charge(hits));
            delayed.push((now + (nanos * delay) as u64, hits));
        }
        delayed.sort_unstable();
        for (at, hits) in delayed {
            late.now = at;
            late.apply(Event::Charge(hits));
        }
        let at = late.now.max(on_time.now) + (nanos * share) as u64;
        prop_assert!(late.remaining(at) <= on_time.remaining(at));
    }

    #[test]
    fn used_hits_stay_used_under_another_rule(from in case(), to in case(), events in events()) {
        let mut counter = Counter::after(from.clone(), &events);
        // The oracle has the months of one year only.
        let is_known = !matches!(to.model, Model::CalendarWindow { .. }) || counter.now < BERLIN_MONTHS[12];
        prop_assume!(is_known);
        let now = Timestamp::from_nanos(counter.now);
        let used = counter.used(counter.now);
        // Sub-windows of one length keep their counts, and the share that is overlooked follows the limit.
        let keeps_counts = to.algorithm.reads_as(&from.algorithm);
        let is_overlooked = keeps_counts && matches!(to.algorithm, Algorithm::SubWindows(_));
        counter.state = to.algorithm.take_over(&from.algorithm, counter.state, u64::MAX, now);
        counter.oracle.change_rule(to.model.clone(), counter.now);
        counter.case = to;
        if !is_overlooked {
            prop_assert_eq!(counter.used(counter.now), used);
        }
        counter.equals_the_oracle()?;
        counter.wait(0.3, 0);
        counter.apply(Event::Take(1));
        counter.equals_the_oracle()?;
    }

    /// For each pair of algorithms.
    #[test]
    fn no_more_hits_than_a_bound_stay_used_under_another_rule(
        (from, to) in (case(), case()), events in events(), most in 0..6u64,
    ) {
        let mut counter = Counter::after(from.clone(), &events);
        let is_known = !matches!(to.model, Model::CalendarWindow { .. }) || counter.now < BERLIN_MONTHS[12];
        prop_assume!(is_known);
        let now = Timestamp::from_nanos(counter.now);
        let keeps_counts = to.algorithm.reads_as(&from.algorithm);
        let used = if keeps_counts { &to } else { &from }.algorithm.used(&counter.state, now);
        counter.state = to.algorithm.take_over(&from.algorithm, counter.state, most, now);
        counter.oracle.change_rule_within(most, to.model.clone(), counter.now);
        counter.case = to;
        prop_assert_eq!(counter.used(counter.now), used.min(most));
        counter.equals_the_oracle()?;
        counter.wait(0.3, 0);
        counter.apply(Event::Take(1));
        counter.equals_the_oracle()?;
    }

    /// A raised limit frees at once, a lowered one denies at once.
    #[test]
    fn a_changed_limit_applies_at_once_to_counted_hits(
        (from, to) in case_under_two_limits(), events in events(),
    ) {
        let mut counter = Counter::after(from.clone(), &events);
        let used = counter.used(counter.now);
        counter.state = to.algorithm.take_over(&from.algorithm, counter.state, u64::MAX, Timestamp::from_nanos(counter.now));
        counter.oracle.change_rule(to.model.clone(), counter.now);
        counter.case = to;
        counter.equals_the_oracle()?;
        // With sub-windows, how much is overlooked of a burst is a share of the limit.
        if !matches!(counter.case.algorithm, Algorithm::SubWindows(_)) {
            let remaining = counter.oracle.limit().saturating_sub(used);
            prop_assert_eq!(counter.remaining(counter.now), remaining);
        }
    }

    #[test]
    fn an_expired_counter_is_as_good_as_a_new_one(
        case in case(), (before, after) in (events(), events()), late in prop_oneof![Just(0), 0..3_000_000u64],
    ) {
        let mut old = Counter::after(case.clone(), &before);
        let expires = old.case.algorithm.expires(&old.state).as_nanos();
        old.now = old.now.max(expires.saturating_add(late));
        let mut new = Counter::new(case);
        new.now = old.now;
        for (share, more, event) in after {
            prop_assert_eq!(old.used(old.now), new.used(new.now));
            prop_assert_eq!(old.until_admits(1), new.until_admits(1));
            old.apply(event);
            new.apply(event);
            old.wait(share, more);
            new.wait(share, more);
        }
    }

    #[test]
    fn a_state_survives_encoding_and_decoding(case in case(), (before, after) in (events(), events())) {
        let mut counter = Counter::after(case, &before);
        let mut bytes = Vec::new();
        counter.state.encode(&mut bytes);
        counter.state = State::decode(&bytes).unwrap();
        let mut again = Vec::new();
        counter.state.encode(&mut again);
        prop_assert_eq!(bytes, again);
        counter.equals_the_oracle()?;
        for (share, more, event) in after {
            counter.wait(share, more);
            counter.apply(event);
            counter.equals_the_oracle()?;
        }
    }

    /// Arbitrary bytes are an error, or a state that every algorithm can use.
    #[test]
    fn no_bytes_are_a_state_that_panics(
        case in case(), kind in 0..5u8, mut bytes in prop::collection::vec(stored(), 0..40), events in events(),
    ) {
        bytes.insert(0, kind);
        if let Ok(state) = State::decode(&bytes) {
            let mut counter = Counter::new(case);
            counter.state = state;
            for (share, more, event) in events {
                counter.wait(share, more);
                counter.apply(event);
                let _ = (counter.used(counter.now), counter.until_admits(1), counter.state.heap_bytes());
            }
        }
    }

    #[test]
    fn looking_back_frees_nothing(case in case(), events in events(), back in 0.0..3.0f64) {
        let counter = Counter::after(case, &events);
        let earlier = counter.now - (counter.case.nanos as f64 * back) as u64;
        prop_assert!(counter.remaining(earlier) <= counter.remaining(counter.now));
        // The moment of the reset is the same at either time.
        let wait = |now: u64| counter.case.algorithm.until_full(&counter.state, Timestamp::from_nanos(now));
        if counter.until_full() > 0 {
            prop_assert_eq!(nanos(wait(earlier)), counter.until_full() + (counter.now - earlier));
        }
    }

    #[test]
    fn hits_are_counted_while_the_clock_is_set_back(
        case in case(), events in events(), back in 0.0..3.0f64, hits in 1..9u64,
    ) {
        let mut counter = Counter::after(case, &events);
        counter.now -= (counter.case.nanos as f64 * back) as u64;
        let before = counter.used(counter.now);
        counter.equals_the_oracle()?;
        counter.apply(Event::Charge(hits));
        prop_assert_eq!(counter.used(counter.now), before + hits);
        counter.equals_the_oracle()?;
    }

    /// Whatever the numbers: nothing panics, counting frees nothing, and a counter that took more than any limit admits
    /// nothing more at that moment.
    #[test]
    fn no_number_is_too_large(
        case in case(), words in any::<[u64; 2]>(),
        steps in prop::collection::vec((extreme(), extreme(), any::<bool>()), 1..12),
    ) {
        let algorithm = case.algorithm;
        for start in [State::EMPTY, State::Words(words)] {
            let mut state = start;
            for &(now, hits, is_given_back) in &steps {
                let now = Timestamp::from_nanos(now);
                let before = algorithm.remaining(&state, now);
                let _ = (algorithm.until_admits(&state, hits, now), algorithm.until_full(&state, now));
                let _ = algorithm.expires(&state);
                if is_given_back {
                    state = algorithm.give_back(state, hits, now);
                    prop_assert!(algorithm.remaining(&state, now) >= before);
                } else {
                    state = algorithm.add(state, hits, now);
                    prop_assert_eq!(algorithm.remaining(&state, now), before.saturating_sub(hits));
                }
            }
            let other = case_of_each().into_iter().map(|other| other.take_over(&algorithm, state.clone(), u64::MAX, Timestamp::EPOCH));
            prop_assert_eq!(other.count(), 4);
        }
    }
}

/// Bytes, many of them the last of an integer.
fn stored() -> impl Strategy<Value = u8> {
    prop_oneof![2 => 0..8u8, 1 => any::<u8>()]
}

/// Numbers near the ends of their range, and any others.
fn extreme() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..3u64,
        (0..3u64).prop_map(|less| u64::MAX - less),
        (0..3u64).prop_map(|more| u64::from(u32::MAX) - 1 + more),
        any::<u64>(),
    ]
}

fn case_of_each() -> [Algorithm; 4] {
    let window = Window::from_nanos(Window::NANOS_MAX).unwrap();
    [
        Algorithm::SlidingLog(SlidingLog { limit: 3, window }),
        Algorithm::SubWindows(SubWindows::new(3, window, 7)),
        Algorithm::TokenBucket(TokenBucket::greedy(u32::MAX, NonZeroU32::MAX, window)),
        Algorithm::Concurrency(Concurrency { limit: 3, max_hold: window, queue: None }),
    ]
}

/// Counters of all precisions, and logs with as many instants as they have hits, whatever the times between them.
#[test]
fn no_counter_has_more_on_the_heap_than_is_planned() {
    let window = Window::from_secs(3_600).expect("a window");
    let at = |nanos: u64| Timestamp::from_nanos(1_700_000_000_000_000_000 + nanos);
    for precision in 2..=255 {
        let algorithm = Algorithm::SubWindows(SubWindows::new(9, window, precision));
        let state = algorithm.add(State::EMPTY, 1, at(0));
        assert!(state.heap_bytes() as u64 <= algorithm.heap_bytes().first, "precision {precision}");
    }
    for gap in [1_000, 1_000_000, 1_000_000_000] {
        let algorithm = Algorithm::SlidingLog(SlidingLog { limit: 500, window });
        let mut state = algorithm.add(State::EMPTY, 1, at(0));
        assert!(state.heap_bytes() as u64 <= algorithm.heap_bytes().first);
        for hit in 1..500 {
            state = algorithm.add(state, 1, at(hit * gap));
        }
        assert!(state.heap_bytes() as u64 <= algorithm.heap_bytes().most, "{gap} ns between hits");
    }
}
