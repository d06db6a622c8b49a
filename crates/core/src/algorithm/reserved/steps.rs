//! Bounds on the steps that a counter with many open reservations takes.

use super::{
    Reservation,
    tests::{at, reservation},
};
use crate::{
    algorithm::{Algorithm, SlidingLog, State},
    limit::Window,
};
use std::{cell::Cell, time::Duration};

thread_local! {
    /// Reservations that were closed one by one, each of which moves those behind it.
    pub(super) static SETTLED: Cell<usize> = const { Cell::new(0) };
}

/// With 2,000 open estimates an admission took milliseconds under the lock: each probe of the search closed them one by one.
#[test]
fn estimates_to_be_returned_are_dropped_together_and_searched_only_if_they_shorten_the_wait() {
    const MANY: u64 = 2_000;
    let returning = |id| Reservation { returns: true, ..reservation(id, 1, at(60_000 + id)) };
    let count_probes = |window: Window| {
        let algorithm = Algorithm::SlidingLog(SlidingLog { limit: 9_999, window });
        let state =
            (1..=MANY).fold(State::EMPTY, |state, id| algorithm.reserve(state, returning(id), at(0)).0);
        let probes = Cell::new(0);
        let reserved = state.reserved().expect("open reservations");
        let wait = reserved.least_wait(&algorithm, at(0), |state, now| {
            probes.set(probes.get() + 1);
            algorithm.until_full(state, now)
        });
        assert_eq!(algorithm.used(&state, at(60_000 + MANY)), 0);
        (wait, probes.get())
    };
    SETTLED.set(0);
    let (wait, probes) = count_probes(Window::from_secs(3_600).unwrap());
    assert_eq!(wait, Duration::from_millis(60_000 + MANY));
    assert!(probes <= 20, "{probes} probes");
    assert_eq!(count_probes(Window::from_secs(60).unwrap()), (Duration::from_secs(60), 1));
    assert_eq!(SETTLED.get(), 0, "reservations closed one by one");
}
