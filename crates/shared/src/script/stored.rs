//! Counters of a store without a decision: read without their rules, and written from the states of another server.

use super::{
    reserved,
    value::{decode, out_of_leases, signature_of_state},
};
use tidegate_core::{
    algorithm::{Algorithm, State, StoredBytes},
    limit::Timestamp,
};

/// The algorithm and the state in the value of a counter. None if the value is damaged, and no algorithm if the counter has no hits. The
/// store does not have the limit's number, so that the algorithm has the greatest one. Outstanding credits count as hits of now.
pub fn read_value(value: &[u8], now: Timestamp) -> Option<Option<(Algorithm, State)>> {
    let (bytes, out) = out_of_leases(value)?;
    if bytes.is_empty() {
        return Some(None);
    }
    let signature = match reserved::signature_of(bytes) {
        Some((signature, _)) => signature,
        None => signature_of_state(bytes)?,
    };
    let algorithm = Algorithm::of_signature(signature)?;
    let state = decode(bytes, &algorithm)?;
    let state = if out > 0 { algorithm.add(state, out, now) } else { state };
    Some(Some((algorithm, state)))
}

/// Encodes a state of an algorithm [in microseconds](Algorithm::in_microseconds) as the value of a counter. None if the state is of another
/// algorithm. Times are rounded up, so that no hit counts for a shorter time.
pub fn encode(state: &State, algorithm: &Algorithm) -> Option<Vec<u8>> {
    if let State::Reserved(of_open) = state {
        return reserved::encode(of_open, algorithm, |state| encode(state, algorithm));
    }
    algorithm.encode_stored(state).map(StoredBytes::into_vec)
}

#[cfg(test)]
mod tests {
    use super::{super::value::algorithm_of, *};
    use std::num::NonZeroU32;
    use tidegate_core::{
        algorithm::{
            Anchor, Calendar, Concurrency, FixedWindow, LeakyBucket, Period, Rate, Refill, Reservation,
            Schedule, SlidingLog, SlidingWindow, SubWindows, TokenBucket, Zone,
        },
        limit::Window,
    };

    const HOUR: u64 = 3_600_000_000_000;

    fn algorithms() -> Vec<Algorithm> {
        let window = Window::from_nanos(HOUR).unwrap();
        let rate = |hits| Rate::new(NonZeroU32::new(hits).unwrap(), window);
        let fixed = |schedule| Algorithm::FixedWindow(FixedWindow { limit: 9, schedule });
        let zone = Zone::named("Europe/Berlin").unwrap();
        vec![
            Algorithm::SlidingWindow(SlidingWindow { limit: 9, window }),
            Algorithm::SubWindows(SubWindows::new(9, window, 8)),
            Algorithm::SlidingLog(SlidingLog { limit: 9, window }),
            fixed(Schedule::Clock(window)),
            fixed(Schedule::FirstHit(window)),
            fixed(Schedule::Calendar(Calendar::new(Period::Month, zone.clone()))),
            fixed(Schedule::Calendar(Calendar::anchored(Period::Month, Anchor::OF_ENTRY, zone.clone()))),
            fixed(Schedule::Calendar(Calendar::anchored(
                Period::Month,
                Anchor::parse(Period::Month, "31 06:30").unwrap(),
                zone,
            ))),
            Algorithm::TokenBucket(TokenBucket { size: 9, refill: Refill::Greedy(rate(7)) }),
            Algorithm::TokenBucket(TokenBucket {
                size: 9,
                refill: Refill::Intervals { tokens: NonZeroU32::new(3).unwrap(), interval: window },
            }),
            Algorithm::LeakyBucket(LeakyBucket { burst: 9, rate: rate(4_000), queue: None }),
            Algorithm::Concurrency(Concurrency { limit: 9, max_hold: window, queue: None }),
        ]
    }

    /// States after hits at times that are not whole microseconds.
    fn states(algorithm: &Algorithm) -> Vec<(State, Timestamp)> {
        let (mut state, mut states) = (State::EMPTY, Vec::new());
        for step in 1..60_u64 {
            let now = Timestamp::from_nanos(1_700_000_000_000_000_000 + step * step * 1_234_567_891_011);
            state = algorithm.add(state, 1 + step % 3, now);
            states.push((state.clone(), now));
        }
        states
    }

    #[test]
    fn a_state_is_read_from_the_store_as_it_was_written() {
        for algorithm in algorithms() {
            for (state, now) in states(&algorithm) {
                let bytes = encode(&state, &algorithm).unwrap_or_else(|| panic!("{algorithm:?}: {state:?}"));
                let (read_as, read) = read_value(&bytes, now).expect("it is a value").expect("it has hits");
                assert!(algorithm.reads_as(&read_as), "{algorithm:?} is read as {read_as:?}");
                assert_eq!(
                    encode(&read, &read_as).map(|again| decode(&again, &algorithm)),
                    Some(Some(read.clone()))
                );
                // Rounded up to microseconds, at any time.
                for later in [0, 1, 999, 1_000, HOUR / 7, HOUR, 2 * HOUR] {
                    let later = now.saturating_add_nanos(later);
                    let (used, was) = (algorithm.used(&read, later), algorithm.used(&state, later));
                    assert!(used >= was && used <= was + 3, "{algorithm:?}: {used} instead of {was}");
                }
            }
        }
    }

    #[test]
    fn open_reservations_are_read_from_the_store_as_they_were_written() {
        for algorithm in algorithms().into_iter().filter(Algorithm::can_reserve) {
            for (state, now) in states(&algorithm) {
                let now = now.saturating_add_nanos(777);
                let deadline = now.saturating_add_nanos(2 * HOUR + 1);
                let reservation = |id, returns| Reservation { id, hits: 2, deadline, returns };
                let (state, _) = algorithm.reserve(state, reservation(7, false), now);
                let (state, _) = algorithm.reserve(state, reservation(u64::MAX, true), now);
                let bytes = encode(&state, &algorithm).expect("a state of the algorithm");
                assert!(algorithm_of(&bytes).is_some());
                let (read_as, read) = read_value(&bytes, now).expect("it is a value").expect("it has hits");
                assert_eq!(
                    encode(&read, &read_as).map(|again| decode(&again, &algorithm)),
                    Some(Some(read.clone()))
                );
                let open = |state: &State| state.reserved().expect("reservations").open().len();
                assert_eq!((open(&read), open(&state)), (2, 2));
                // At most a microsecond from the end of all hits of one moment.
                for later in [0, 1, 999, 1_000, HOUR / 7, HOUR, 3 * HOUR] {
                    let later = now.saturating_add_nanos(later);
                    let (used, was) = (algorithm.used(&read, later), algorithm.used(&state, later));
                    assert!(used >= was && used <= was + 7, "{algorithm:?}: {used} instead of {was}");
                }
                // Ended reservations have the same results.
                let ended = |state: State| algorithm.end_reservation(state, 7, |_| 5, u64::MAX, now).0;
                let (used, was) =
                    (algorithm.used(&ended(read), now), algorithm.used(&ended(state.clone()), now));
                assert!(used >= was && used <= was + 10, "{algorithm:?}: {used} instead of {was}");
                for damaged in 0..bytes.len() {
                    let _ = (read_value(&bytes[..damaged], now), algorithm_of(&bytes[..damaged]));
                }
            }
        }
    }

    #[test]
    fn outstanding_credits_count_as_hits_of_now() {
        let now = Timestamp::from_nanos(1_700_000_000_000_000_000);
        for algorithm in algorithms() {
            let state = algorithm.add(State::EMPTY, 2, now);
            let mut value = vec![0, 1, 0];
            value.extend_from_slice(&0_f64.to_le_bytes());
            value.extend_from_slice(&[7; 8]);
            // Holder, request, reported hits, outstanding credits, end, demand.
            [1.0, 1.0, 0.0, 5.0, 1.8e15, 5.0_f64]
                .iter()
                .for_each(|number| value.extend_from_slice(&number.to_le_bytes()));
            value.extend_from_slice(&encode(&state, &algorithm).unwrap());
            let (read_as, read) = read_value(&value, now).unwrap().unwrap();
            assert_eq!(read_as.used(&read, now), 7, "{algorithm:?}");
        }
    }
}
