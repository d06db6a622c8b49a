//! Reservations of every algorithm against a list of all charges, from which a plain counter is made anew each time.

use super::{Ended, RESERVATIONS_MAX, Reservation};
use crate::{
    algorithm::{
        Algorithm, Calendar, FixedWindow, LeakyBucket, Period, Rate, Schedule, SlidingLog, SlidingWindow,
        State, SubWindows, TokenBucket, Zone,
    },
    limit::{Reset, Timestamp, Window},
};
use proptest::{collection::vec, prelude::*};
use std::{num::NonZeroU32, time::Duration};

const LIMIT: u32 = 6;
const WINDOW_NANOS: u64 = 10_000_000;
const START_MILLIS: u64 = 1_700_000_000_000;

fn window() -> Window {
    Window::from_nanos(WINDOW_NANOS).unwrap()
}

pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START_MILLIS + millis)
}

/// All whose counters are determined by the times and the numbers of hits.
pub(super) fn algorithms() -> [Algorithm; 8] {
    let hits = NonZeroU32::new(LIMIT).unwrap();
    let thirds = NonZeroU32::new(3).unwrap();
    [
        Algorithm::SlidingWindow(SlidingWindow { limit: LIMIT, window: window() }),
        Algorithm::SubWindows(SubWindows::new(LIMIT, window(), 4)),
        Algorithm::SlidingLog(SlidingLog { limit: LIMIT, window: window() }),
        Algorithm::FixedWindow(FixedWindow::on_the_clock(LIMIT, window())),
        Algorithm::TokenBucket(TokenBucket::greedy(LIMIT, thirds, window())),
        Algorithm::TokenBucket(TokenBucket::by_intervals(LIMIT, thirds, window())),
        Algorithm::LeakyBucket(LeakyBucket { burst: LIMIT, rate: Rate::new(hits, window()), queue: None }),
        Algorithm::FixedWindow(FixedWindow {
            limit: LIMIT,
            schedule: Schedule::Calendar(Calendar::new(Period::Day, Zone::UTC)),
        }),
    ]
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Add(u64),
    GiveBack(u64),
    Start {
        hits: u32,
        hold_nanos: u64,
        returns: bool,
    },
    /// Of a reservation so far, ended or not.
    End {
        which: prop::sample::Index,
        hits: u64,
    },
    /// Likewise.
    Renew {
        which: prop::sample::Index,
        hold_nanos: u64,
    },
    EndUnknown,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let start = (1..4u32, 1..3 * WINDOW_NANOS, any::<bool>());
    prop_oneof![
        4 => (0..WINDOW_NANOS / 2).prop_map(Step::Wait),
        2 => (1..4u64).prop_map(Step::Add),
        1 => (1..3u64).prop_map(Step::GiveBack),
        4 => start.prop_map(|(hits, hold_nanos, returns)| Step::Start { hits, hold_nanos, returns }),
        4 => (any::<prop::sample::Index>(), 0..9u64).prop_map(|(which, hits)| Step::End { which, hits }),
        3 => (any::<prop::sample::Index>(), 1..3 * WINDOW_NANOS)
            .prop_map(|(which, hold_nanos)| Step::Renew { which, hold_nanos }),
        1 => Just(Step::EndUnknown),
        1 => Just(Step::Restart),
    ]
}

/// One charge, as the oracle remembers it.
#[derive(Clone, Debug)]
struct Charged {
    at: Timestamp,
    hits: Number,
}

#[derive(Clone, Copy, Debug)]
enum Number {
    Known(u64),
    GivenBack(u64),
    Open(Reservation),
}

impl Number {
    /// The hits as of `now`.
    fn as_of(self, now: Timestamp) -> Self {
        match self {
            Self::Open(Reservation { deadline, returns: true, .. }) if deadline <= now => Self::Known(0),
            Self::Open(Reservation { hits, .. }) => Self::Known(hits.into()),
            known => known,
        }
    }
}

/// The plain counter that was charged with these numbers at these times.
fn replayed(algorithm: &Algorithm, charged: &[Charged], now: Timestamp) -> State {
    charged.iter().fold(State::EMPTY, |state, charged| match charged.hits.as_of(now) {
        Number::Known(0) => state,
        Number::Known(hits) => algorithm.add(state, hits, charged.at),
        Number::GivenBack(hits) => algorithm.give_back(state, hits, charged.at),
        Number::Open(_) => unreachable!("it has a number"),
    })
}

/// Whether `wait` is the least after which the counter of the oracle is as wanted.
fn is_least(wait: Duration, now: Timestamp, is_as_wanted: impl Fn(Timestamp) -> bool) -> bool {
    let nanos = wait.as_nanos() as u64;
    let then = now.saturating_add_nanos(nanos);
    is_as_wanted(then) && (nanos == 0 || !is_as_wanted(Timestamp::from_nanos(then.as_nanos() - 1)))
}

fn check(algorithm: &Algorithm, steps: &[Step]) -> Result<(), TestCaseError> {
    let (charged, started) = (Vec::new(), Vec::new());
    let mut counter = Reserving { algorithm, state: State::EMPTY, charged, started, now: at(0) };
    for step in steps {
        counter.play(step)?;
        counter.compare(step)?;
    }
    Ok(())
}

/// A counter with reservations, and all that was charged to it.
struct Reserving<'a> {
    algorithm: &'a Algorithm,
    state: State,
    charged: Vec<Charged>,
    /// The ids of reservations, and their indices among what was charged.
    started: Vec<(u64, usize)>,
    now: Timestamp,
}

impl Reserving<'_> {
    fn play(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let (algorithm, now) = (self.algorithm, self.now);
        match *step {
            Step::Wait(nanos) => self.now = now.saturating_add_nanos(nanos),
            Step::Add(hits) => {
                self.state = algorithm.add(std::mem::take(&mut self.state), hits, now);
                self.charged.push(Charged { at: now, hits: Number::Known(hits) });
            }
            Step::GiveBack(hits) => self.give_back(hits),
            Step::Start { hits, hold_nanos, returns } => {
                let id = self.started.len() as u64 + 1;
                let deadline = now.saturating_add_nanos(hold_nanos);
                let reservation = Reservation { id, hits, deadline, returns };
                let reserved;
                (self.state, reserved) = algorithm.reserve(std::mem::take(&mut self.state), reservation, now);
                prop_assert!(reserved.is_some());
                self.started.push((id, self.charged.len()));
                self.charged.push(Charged { at: now, hits: Number::Open(reservation) });
            }
            Step::End { ref which, hits } if !self.started.is_empty() => {
                let &(id, index) = which.get(&self.started);
                self.end(id, index, hits)?;
            }
            Step::Renew { ref which, hold_nanos } if !self.started.is_empty() => {
                let &(id, index) = which.get(&self.started);
                self.renew(id, index, now.saturating_add_nanos(hold_nanos))?;
            }
            Step::End { .. } | Step::EndUnknown | Step::Renew { .. } => {
                let before = self.state.clone();
                let ended;
                (self.state, ended, _) =
                    algorithm.end_reservation(std::mem::take(&mut self.state), 99, |_| 9, u64::MAX, now);
                prop_assert_eq!(ended, Ended::Unknown);
                prop_assert_eq!(algorithm.used(&self.state, now), algorithm.used(&before, now));
            }
            Step::Restart => {
                let mut bytes = Vec::new();
                self.state.encode(&mut bytes);
                self.state = State::decode(&bytes).unwrap();
            }
        }
        Ok(())
    }

    /// Only for buckets, in which hits that are given back are of no particular time, and only of unreserved hits: a replay does not know
    /// that reserved hits are kept.
    fn give_back(&mut self, hits: u64) {
        let (algorithm, now) = (self.algorithm, self.now);
        let is_known = |charged: &&Charged| !matches!(charged.hits.as_of(now), Number::Known(_) if is_open(charged.hits, now));
        let known: Vec<_> = self.charged.iter().filter(is_known).cloned().collect();
        if algorithm.drain().is_some() && algorithm.used(&replayed(algorithm, &known, now), now) > hits {
            self.state = algorithm.give_back(std::mem::take(&mut self.state), hits, now);
            self.charged.push(Charged { at: now, hits: Number::GivenBack(hits) });
        }
    }

    fn end(&mut self, id: u64, index: usize, hits: u64) -> Result<(), TestCaseError> {
        let ended;
        (self.state, ended, _) =
            self.algorithm.end_reservation(std::mem::take(&mut self.state), id, |_| hits, u64::MAX, self.now);
        match self.charged[index].hits {
            Number::Open(reservation) if reservation.deadline > self.now => {
                prop_assert_eq!(ended, Ended::Reserved(reservation));
                self.charged[index].hits = Number::Known(hits);
            }
            _ => prop_assert_eq!(ended, Ended::Unknown),
        }
        Ok(())
    }

    fn renew(&mut self, id: u64, index: usize, deadline: Timestamp) -> Result<(), TestCaseError> {
        let expected = match &mut self.charged[index].hits {
            Number::Open(reservation) if reservation.deadline > self.now => {
                let former = reservation.deadline;
                reservation.deadline = former.max(deadline);
                Some(former)
            }
            _ => None,
        };
        let renewed;
        (self.state, renewed, _) =
            self.algorithm.renew_reservation(std::mem::take(&mut self.state), id, deadline, self.now);
        prop_assert_eq!(renewed, expected);
        Ok(())
    }

    /// Compares all numbers with those of a counter to which the same was charged anew.
    fn compare(&self, step: &Step) -> Result<(), TestCaseError> {
        let Self { algorithm, state, charged, now, .. } = self;
        let now = *now;
        let oracle = |at| replayed(algorithm, charged, at);
        prop_assert_eq!(
            algorithm.remaining(state, now),
            algorithm.remaining(&oracle(now), now),
            "{:?}",
            step
        );
        for hits in [1, 3, u64::from(LIMIT)] {
            let admits = |at| algorithm.remaining(&oracle(at), at) >= hits;
            let Reset::After(wait) = algorithm.until_admits(state, hits, now) else {
                panic!("it admits {hits} at some time")
            };
            prop_assert!(is_least(wait, now, admits), "{} after {:?}", hits, wait);
        }
        let wait = algorithm.until_full(state, now);
        prop_assert!(is_least(wait, now, |at| algorithm.used(&oracle(at), at) == 0), "full after {:?}", wait);
        prop_assert!(algorithm.expires(state) >= now.saturating_add(wait) || wait.is_zero());
        let open = charged.iter().filter(|charged| is_open(charged.hits, now)).count();
        prop_assert!(state.reserved().map_or(0, |reserved| reserved.open().len()) >= open);
        Ok(())
    }
}

fn is_open(hits: Number, now: Timestamp) -> bool {
    matches!(hits, Number::Open(reservation) if reservation.deadline > now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]

    #[test]
    fn a_counter_equals_one_that_was_charged_the_actual_cost_at_the_start(steps in vec(step(), 1..40)) {
        for algorithm in algorithms() {
            check(&algorithm, &steps)?;
        }
    }

    #[test]
    fn no_stored_bytes_panic(bytes: Vec<u8>, hits: u64, nanos: u64) {
        let stored: Vec<u8> = [5].into_iter().chain(bytes).collect();
        if let Ok(state) = State::decode(&stored) {
            for algorithm in algorithms() {
                let now = Timestamp::from_nanos(nanos);
                let _ = algorithm.standing(algorithm.add(state.clone(), hits, now), now);
            }
        }
    }
}

pub(super) fn reservation(id: u64, hits: u32, deadline: Timestamp) -> Reservation {
    Reservation { id, hits, deadline, returns: false }
}

fn from_first_hit() -> Algorithm {
    Algorithm::FixedWindow(FixedWindow { limit: LIMIT, schedule: Schedule::FirstHit(window()) })
}

/// The first of two starts costs nothing: 3 and 6 hits fitted within the 10 ms from the second on.
#[test]
fn a_window_from_the_first_hit_begins_with_the_first_start_that_costs_something() {
    let algorithm = from_first_hit();
    let (state, _) = algorithm.reserve(State::EMPTY, reservation(1, 2, at(60)), at(0));
    let (state, _) = algorithm.reserve(state, reservation(2, 3, at(60)), at(3));
    let state = algorithm.add(state, 1, at(4));
    assert_eq!(algorithm.until_full(&state, at(5)).as_millis(), 5);
    let (state, ended, _) = algorithm.end_reservation(state, 1, |_| 0, u64::MAX, at(5));
    assert_eq!(ended, Ended::Reserved(reservation(1, 2, at(60))));
    assert_eq!((algorithm.used(&state, at(5)), algorithm.until_full(&state, at(5)).as_millis()), (4, 8));
    let (state, ..) = algorithm.end_reservation(state, 2, |_| 0, u64::MAX, at(6));
    assert_eq!((algorithm.used(&state, at(6)), algorithm.until_full(&state, at(6)).as_millis()), (1, 8));
    // Without other hits it is closed.
    let (state, _) = algorithm.reserve(state, reservation(3, 4, at(60)), at(20));
    let (state, ..) = algorithm.end_reservation(state, 3, |_| 0, u64::MAX, at(21));
    let state = algorithm.add(state, 1, at(25));
    assert_eq!(algorithm.until_full(&state, at(25)).as_millis(), 10);
    // An end after the window corrects nothing in the next one.
    let (state, _) = algorithm.reserve(state, reservation(4, 2, at(90)), at(40));
    let state = algorithm.add(state, 1, at(55));
    let (state, ended, _) = algorithm.end_reservation(state, 4, |_| 9, u64::MAX, at(56));
    assert_eq!((ended, algorithm.used(&state, at(56))), (Ended::Reserved(reservation(4, 2, at(90))), 1));
}

/// The hit that opened the window was forgotten, so that an open estimate made a window of its own, which lasts longer.
#[test]
fn hits_given_back_to_a_past_window_from_the_first_hit_do_not_open_it_again() {
    let algorithm = from_first_hit();
    let state = algorithm.add(State::EMPTY, 1, at(0));
    let (state, _) = algorithm.reserve(state, reservation(1, 3, at(60)), at(3));
    assert_eq!(algorithm.used(&state, at(9)), 4);
    let state = algorithm.give_back(state, 1, at(10));
    assert_eq!(algorithm.used(&state, at(10)), 0);
}

/// Otherwise the stated wait would not suffice.
#[test]
fn a_window_from_the_first_hit_keeps_its_end_if_its_first_hits_are_returned_at_their_deadline() {
    let algorithm = from_first_hit();
    let first = Reservation { returns: true, ..reservation(1, 2, at(5)) };
    let (state, _) = algorithm.reserve(State::EMPTY, first, at(0));
    let (state, _) = algorithm.reserve(state, reservation(2, 3, at(60)), at(3));
    for millis in [4, 6] {
        assert_eq!(algorithm.until_full(&state, at(millis)).as_millis(), 10 - u128::from(millis));
    }
    let state = algorithm.add(state, 1, at(6));
    assert_eq!((algorithm.used(&state, at(6)), algorithm.until_full(&state, at(6)).as_millis()), (4, 4));
    let (state, ..) = algorithm.end_reservation(state, 2, |_| 1, u64::MAX, at(7));
    assert_eq!((algorithm.used(&state, at(7)), algorithm.until_full(&state, at(7)).as_millis()), (2, 3));
}

/// The returned estimate was not that of the first hit: the window kept a beginning at which nothing was charged.
#[test]
fn a_window_from_the_first_hit_moves_although_a_later_estimate_was_returned_at_its_deadline() {
    let algorithm = from_first_hit();
    let (state, _) = algorithm.reserve(State::EMPTY, reservation(1, 2, at(60)), at(0));
    let later = Reservation { returns: true, ..reservation(2, 1, at(5)) };
    let (state, _) = algorithm.reserve(state, later, at(2));
    let (state, _) = algorithm.reserve(state, reservation(3, 3, at(60)), at(4));
    let (state, ..) = algorithm.end_reservation(state, 1, |_| 0, u64::MAX, at(6));
    assert_eq!((algorithm.used(&state, at(6)), algorithm.until_full(&state, at(6)).as_millis()), (3, 8));
}

/// The second window was forgotten once it was empty, and the next change counted an estimate of the first as a window of its own.
#[test]
fn hits_of_a_window_from_the_first_hit_do_not_count_again_when_the_next_one_becomes_empty() {
    let algorithm = from_first_hit();
    let (state, _) = algorithm.reserve(State::EMPTY, reservation(1, 1, at(60)), at(0));
    let (state, _) = algorithm.reserve(state, reservation(2, 2, at(60)), at(9));
    let (state, _) = algorithm.reserve(state, reservation(3, 3, at(60)), at(11));
    let (state, ..) = algorithm.end_reservation(state, 3, |_| 0, u64::MAX, at(12));
    let (state, ..) = algorithm.end_reservation(state, 1, |_| 0, u64::MAX, at(13));
    assert_eq!(algorithm.used(&state, at(13)), 0);
}

/// They were charged in full under the new algorithm, as if each had opened a window of its own.
#[test]
fn hits_of_a_window_from_the_first_hit_that_is_over_do_not_count_under_another_algorithm() {
    let (former, algorithm) =
        (from_first_hit(), Algorithm::FixedWindow(FixedWindow::on_the_clock(LIMIT, window())));
    let (state, _) = former.reserve(State::EMPTY, reservation(1, 1, at(60)), at(0));
    let (state, _) = former.reserve(former.add(state, 2, at(3)), reservation(2, 3, at(60)), at(9));
    assert_eq!(former.used(&state, at(10)), 0);
    assert_eq!(algorithm.used(&algorithm.take_over(&former, state, u64::MAX, at(10)), at(10)), 0);
}

/// They were joined with hits beyond the limit, and then had their time.
#[test]
fn hits_that_have_left_a_log_do_not_count_again_when_a_debt_is_joined() {
    let log = |limit| Algorithm::SlidingLog(SlidingLog { limit, window: window() });
    let (state, _) = log(2).reserve(State::EMPTY, reservation(1, 1, at(10)), at(0));
    let (state, _) = log(2).reserve(state, reservation(2, 1, at(60)), at(5));
    let (state, ..) = log(2).end_reservation(state, 2, |_| 3, u64::MAX, at(11));
    assert_eq!(log(9).used(&state, at(11)), 3);
}

proptest! {
    /// As of all algorithms, while the window has not been followed by another.
    #[test]
    fn a_window_from_the_first_hit_equals_one_that_was_charged_the_actual_cost(
        starts in vec((0..WINDOW_NANOS, 1..4u32, 0..4u64, 0..WINDOW_NANOS), 1..8),
    ) {
        let algorithm = from_first_hit();
        let mut times: Vec<u64> = starts.iter().map(|(start, ..)| *start).collect();
        times.sort_unstable();
        let mut state = State::EMPTY;
        let begin = |nanos: u64| at(0).saturating_add_nanos(nanos);
        for (id, (start, (_, hits, ..))) in (1..).zip(times.iter().zip(&starts)) {
            state = algorithm.reserve(state, reservation(id, *hits, at(1_000)), begin(*start)).0;
        }
        let mut ends: Vec<(u64, u64)> = (1..).zip(&starts).map(|(id, (.., end))| (WINDOW_NANOS + end, id)).collect();
        ends.sort_unstable();
        let (mut charged, mut now) = (vec![None; starts.len()], begin(0));
        for (end, id) in ends {
            let index = id as usize - 1;
            let cost = starts[index].2;
            now = begin(end);
            state = algorithm.end_reservation(state, id, |_| cost, u64::MAX, now).0;
            charged[index] = Some(cost);
        }
        let oracle = times.iter().zip(&charged).fold(State::EMPTY, |state, (start, cost)| match cost {
            Some(cost @ 1..) => algorithm.add(state, *cost, begin(*start)),
            _ => state,
        });
        for nanos in [0, WINDOW_NANOS / 3, WINDOW_NANOS] {
            let then = now.saturating_add_nanos(nanos);
            prop_assert_eq!(algorithm.used(&state, then), algorithm.used(&oracle, then));
        }
    }
}

/// The bucket was empty from 2 to 5 ms: what did not drain then is not to be had later.
#[test]
fn a_bucket_that_ran_dry_in_between_does_not_gain_by_an_end() {
    let rate = Rate::new(NonZeroU32::MIN, Window::from_nanos(1_000_000).unwrap());
    let algorithm = Algorithm::LeakyBucket(LeakyBucket { burst: 20, rate, queue: None });
    let (state, _) = algorithm.reserve(State::EMPTY, reservation(1, 10, at(60)), at(0));
    let state = algorithm.add(state, 4, at(5));
    assert_eq!(algorithm.used(&state, at(6)), 8);
    let (state, ..) = algorithm.end_reservation(state, 1, |_| 2, u64::MAX, at(6));
    assert_eq!(algorithm.used(&state, at(6)), 3, "four of 5 ms, less one");
}

#[test]
fn hits_that_are_given_back_without_a_ticket_are_not_reserved_ones() {
    for algorithm in algorithms() {
        let (state, _) = algorithm.reserve(State::EMPTY, reservation(1, 3, at(60)), at(0));
        let state = algorithm.add(state, 2, at(0));
        let state = algorithm.give_back(state, 9, at(0));
        assert_eq!(algorithm.used(&state, at(0)), 3, "{algorithm:?}");
        let (state, ..) = algorithm.end_reservation(state, 1, |_| 1, u64::MAX, at(0));
        assert_eq!(algorithm.used(&state, at(0)), 1, "{algorithm:?}");
    }
}

#[test]
fn open_reservations_stay_open_under_another_algorithm() {
    for former in algorithms() {
        for algorithm in algorithms() {
            let (state, _) =
                former.reserve(former.add(State::EMPTY, 1, at(0)), reservation(1, 4, at(60)), at(0));
            let state = algorithm.take_over(&former, state, u64::MAX, at(0));
            assert_eq!(algorithm.used(&state, at(0)), 5, "{former:?} {algorithm:?}");
            let (state, ended, _) = algorithm.end_reservation(state, 1, |_| 2, u64::MAX, at(0));
            assert_eq!(
                (ended, algorithm.used(&state, at(0))),
                (Ended::Reserved(reservation(1, 4, at(60))), 3)
            );
        }
    }
}

#[test]
fn a_counter_with_too_many_reservations_counts_estimates_that_stay() {
    let fixed = Algorithm::FixedWindow(FixedWindow::on_the_clock(9_999, window()));
    let mut state = State::EMPTY;
    for id in 1..=RESERVATIONS_MAX as u64 + 1 {
        let reserved;
        (state, reserved) = fixed.reserve(state, reservation(id, 1, at(60)), at(0));
        assert_eq!(reserved.is_some(), id <= RESERVATIONS_MAX as u64);
    }
    assert_eq!(fixed.used(&state, at(0)), RESERVATIONS_MAX as u64 + 1);
    let (state, ended, _) = fixed.end_reservation(state, RESERVATIONS_MAX as u64 + 1, |_| 0, u64::MAX, at(0));
    assert_eq!((ended, fixed.used(&state, at(0))), (Ended::Unknown, RESERVATIONS_MAX as u64 + 1));
}
