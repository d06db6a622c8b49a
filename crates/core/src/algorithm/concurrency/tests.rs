//! Slots one by one, and against a list of every slot with its end.

use super::*;
use proptest::prelude::*;

const HOLD_MILLIS: u64 = 10;

fn of(limit: u32) -> Concurrency {
    Concurrency { limit, max_hold: Window::from_nanos(HOLD_MILLIS * NANOS_PER_MILLI).unwrap(), queue: None }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

#[test]
fn a_release_ends_its_slot_once_and_no_other() {
    let rule = of(3);
    let (state, _) = rule.take(State::EMPTY, 7, 2, at(0));
    let (mut state, _) = rule.take(state, 8, 1, at(1));
    assert_eq!(rule.remaining(&state, at(1)), 0);
    assert_eq!(state.release_slot(9, None, at(1)), (Released::Unknown, 0));
    assert_eq!(state.release_slot(0, None, at(1)), (Released::Unknown, 0));
    assert_eq!(state.release_slot(7, None, at(2)), (Released::Hits(2), 0));
    assert_eq!(state.release_slot(7, None, at(2)), (Released::Unknown, 0));
    assert_eq!(rule.remaining(&state, at(2)), 2);
    assert_eq!(state.release_slot(8, None, at(11)), (Released::Unknown, 1), "past its deadline");
}

#[test]
fn part_of_a_slot_is_released_and_the_rest_stays_held() {
    let rule = of(5);
    let (mut state, _) = rule.take(State::EMPTY, 7, 5, at(0));
    assert_eq!(state.release_slot(7, Some(2), at(1)), (Released::Hits(2), 0));
    assert_eq!(rule.remaining(&state, at(1)), 2);
    assert_eq!(state.release_slot(7, Some(99), at(1)), (Released::Hits(3), 0));
    assert_eq!(state.release_slot(7, Some(1), at(1)), (Released::Unknown, 0));
}

#[test]
fn a_shorter_hold_applies_to_later_slots_and_leaves_earlier_deadlines() {
    let short = Concurrency { max_hold: Window::from_nanos(2 * NANOS_PER_MILLI).unwrap(), ..of(9) };
    let (state, _) = of(9).take(State::EMPTY, 1, 4, at(0));
    let (state, _) = short.take(state, 2, 1, at(1));
    assert_eq!(short.used(&state, at(2)), 5);
    assert_eq!(short.used(&state, at(3)), 4);
    assert_eq!((short.used(&state, at(9)), short.used(&state, at(10))), (4, 0));
    assert_eq!(short.expires(&state), at(10));
}

/// Renewed before each of its deadlines, it has one average hold, from the time at which it was taken.
#[test]
fn a_renewed_slot_is_held_since_it_was_taken() {
    let rule = of(1);
    let (mut state, _) = rule.take(State::EMPTY, 7, 1, at(0));
    let micros = |micros: u64| at(0).saturating_add_nanos(1_000 * micros);
    for renewal in 1..=1_000 {
        assert_eq!(state.renew_slot(7, rule.max_hold, micros(9_900 * renewal)), (true, 0));
    }
    assert_eq!((rule.used(&state, at(9_909)), rule.used(&state, at(9_910))), (1, 0));
    assert_eq!(state.release_slot(7, None, at(9_909)), (Released::Hits(1), 0));
    let mean = state.slots().and_then(Slots::mean_hold).unwrap();
    assert!(mean.abs_diff(Duration::from_millis(9_909)) < Duration::from_millis(1), "{mean:?}");
    assert_eq!(state.renew_slot(7, rule.max_hold, at(9_909)), (false, 0), "it was released");
}

#[test]
fn the_expected_wait_is_by_the_average_hold_and_never_beyond_the_deadline() {
    let rule = of(2);
    let (state, _) = rule.take(State::EMPTY, 1, 1, at(0));
    let (mut state, _) = rule.take(state, 2, 1, at(0));
    let wait = |state: &State, millis| rule.expected_wait(state, 1, at(millis));
    let millis = |millis| Reset::After(Duration::from_millis(millis));
    assert_eq!(wait(&state, 1), millis(9), "nothing was released yet");
    state.release_slot(1, None, at(4));
    assert_eq!(wait(&state, 4), millis(0));
    (state, _) = rule.take(state, 3, 1, at(4));
    assert_eq!(wait(&state, 4), millis(2), "held for longer than the average: half of it");
    state.release_slot(2, None, at(4));
    (state, _) = rule.take(state, 4, 1, at(4));
    assert_eq!(wait(&state, 5), millis(3), "the older one after 4 ms");
    assert_eq!(rule.expected_wait(&state, 3, at(5)), Reset::Never);
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Take {
        hits: u64,
    },
    /// Of a recent slot, by how many were taken since; it may have ended.
    Release {
        back: usize,
        hits: Option<u64>,
    },
    /// Likewise.
    Renew {
        back: usize,
    },
    /// Of an id that was never taken.
    Forge,
    /// Under other parameters from now on.
    Limit {
        limit: u32,
        hold_millis: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1..4u64).prop_map(|hits| Event::Take { hits }),
        6 => (0..12usize, prop_oneof![3 => Just(None), 1 => (1..3u64).prop_map(Some)])
            .prop_map(|(back, hits)| Event::Release { back, hits }),
        4 => (0..12usize).prop_map(|back| Event::Renew { back }),
        1 => Just(Event::Forge),
        1 => (0..9u32, 1..15u64).prop_map(|(limit, hold_millis)| Event::Limit { limit, hold_millis }),
    ]
}

proptest! {
    /// Against a list of every slot with its end: at no time are more hits in flight than the limit that admitted them,
    /// whatever is lost, repeated, reordered or forged.
    #[test]
    fn hits_in_flight_are_those_of_slots_neither_released_nor_past_their_deadline(
        limit in 0..9u32, events in prop::collection::vec((0..4u64, event()), 1..80),
    ) {
        let (mut rule, mut now, mut state) = (of(limit), at(0), State::EMPTY);
        // Hits in flight and deadline, by id less one.
        let mut taken: Vec<(u64, Timestamp)> = Vec::new();
        for (after, event) in events {
            now = now.saturating_add_nanos(after * NANOS_PER_MILLI);
            let in_flight = |taken: &[(u64, Timestamp)]| -> u64 {
                taken.iter().filter(|(_, deadline)| *deadline > now).map(|(hits, _)| hits).sum()
            };
            let used = in_flight(&taken);
            prop_assert_eq!(rule.used(&state, now), used);
            match event {
                Event::Take { hits } => {
                    let fits = used + hits <= u64::from(rule.limit);
                    prop_assert_eq!(hits <= rule.remaining(&state, now), fits);
                    if fits {
                        taken.push((hits, now.saturating_add(rule.max_hold.duration())));
                        (state, _) = rule.take(state, taken.len() as u64, hits, now);
                    }
                }
                Event::Release { back, hits } => {
                    let Some(index) = taken.len().checked_sub(back + 1) else { continue };
                    let (held, deadline) = taken[index];
                    let held = if deadline > now { held } else { 0 };
                    let released = hits.unwrap_or(u64::MAX).min(held);
                    let expected = if held == 0 { Released::Unknown } else { Released::Hits(released as u32) };
                    prop_assert_eq!(state.release_slot(index as u64 + 1, hits, now).0, expected);
                    taken[index].0 = held - released;
                }
                Event::Renew { back } => {
                    let Some(index) = taken.len().checked_sub(back + 1) else { continue };
                    let (held, deadline) = taken[index];
                    let is_held = held > 0 && deadline > now;
                    prop_assert_eq!(state.renew_slot(index as u64 + 1, rule.max_hold, now).0, is_held);
                    if is_held {
                        taken[index].1 = deadline.max(now.saturating_add(rule.max_hold.duration()));
                    }
                }
                Event::Forge => {
                    let forged = state.release_slot(u64::MAX, None, now).0;
                    prop_assert_eq!(forged, Released::Unknown);
                    prop_assert!(!state.renew_slot(u64::MAX, rule.max_hold, now).0);
                }
                Event::Limit { limit, hold_millis } => {
                    let max_hold = Window::from_nanos(hold_millis * NANOS_PER_MILLI).unwrap();
                    rule = Concurrency { limit, max_hold, queue: None };
                }
            }
            prop_assert_eq!(rule.used(&state, now), in_flight(&taken));
            let mut bytes = Vec::new();
            state.encode(&mut bytes);
            prop_assert_eq!(&State::decode(&bytes).unwrap(), &state);
            if let Reset::After(wait) = rule.until_admits(&state, 1, now) {
                let then = now.saturating_add(wait);
                prop_assert!(rule.remaining(&state, then) >= 1);
                let before = Timestamp::from_nanos(then.as_nanos() - 1);
                prop_assert!(wait.is_zero() || rule.remaining(&state, before) == 0);
                prop_assert!(rule.expected_wait(&state, 1, now) <= Reset::After(wait));
            }
        }
    }
}
