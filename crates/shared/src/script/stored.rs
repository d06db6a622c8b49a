//! Counters of a store outside of decisions: read without their rules, and written from the states of another server.

use super::{
    reserved,
    signature::{MicroRate, NANOS, meter, signature},
    state::Numbers,
    value::{decode, out_of_leases},
};
use std::num::{NonZeroU32, NonZeroU64};
use tidegate_core::{
    algorithm::{
        Algorithm, Calendar, Concurrency, FixedWindow, LeakyBucket, Period, Rate, Refill, Schedule,
        SlidingLog, SlidingWindow, State, SubWindows, TokenBucket, Zone,
    },
    limit::{Timestamp, Window},
};

/// The algorithm and the state in the value of a counter; none if the value is damaged. The store does not have the number that the
/// limit admits: it is the greatest there is. Outstanding credits count as hits of now. A counter without hits has no algorithm.
pub fn read_value(value: &[u8], now: Timestamp) -> Option<Option<(Algorithm, State)>> {
    let (bytes, out) = out_of_leases(value)?;
    if bytes.is_empty() {
        return Some(None);
    }
    let signature = match reserved::signature_of(bytes) {
        Some((signature, _)) => signature,
        None => {
            let (&length, rest) = bytes.split_first()?;
            rest.get(..usize::from(length))?
        }
    };
    let algorithm = algorithm_with(signature)?;
    let state = decode(bytes, &algorithm)?;
    let state = if out > 0 { algorithm.add(state, out, now) } else { state };
    Some(Some((algorithm, state)))
}

/// The longest hold of a request in flight, which the store does not have either.
const DAY_SECS: u64 = 86_400;

/// The algorithm with this signature.
fn algorithm_with(signature: &[u8]) -> Option<Algorithm> {
    let (&kind, parameters) = signature.split_first()?;
    let (limit, mut numbers) = (u32::MAX, Numbers(parameters));
    let window = |micros: u64| Window::from_nanos(micros.checked_mul(NANOS)?).ok();
    let fixed = |schedule| Some(Algorithm::FixedWindow(FixedWindow { limit, schedule }));
    let algorithm = match kind {
        b'W' => Algorithm::SlidingWindow(SlidingWindow { limit, window: window(numbers.double()?)? }),
        b'G' => Algorithm::SlidingLog(SlidingLog { limit, window: window(numbers.double()?)? }),
        b'C' => fixed(Schedule::Clock(window(numbers.double()?)?))?,
        b'H' => fixed(Schedule::FirstHit(window(numbers.double()?)?))?,
        b'K' => {
            let (period, zone) = parameters.split_first()?;
            let period = match period {
                b'd' => Period::Day,
                b'w' => Period::Week,
                b'm' => Period::Month,
                b'y' => Period::Year,
                _ => return None,
            };
            let zone = Zone::named(str::from_utf8(zone).ok()?)?;
            return fixed(Schedule::Calendar(Calendar::new(period, zone)));
        }
        b'S' => {
            let length = NonZeroU64::new(numbers.double()?.checked_mul(NANOS)?)?;
            let (&precision, rest) = numbers.0.split_first()?;
            numbers.0 = rest;
            Algorithm::SubWindows(SubWindows::from_parts(limit, precision, length)?)
        }
        b'T' => {
            let rate = rate(numbers.double()?, numbers.double()?)?;
            Algorithm::TokenBucket(TokenBucket { size: limit, refill: Refill::Greedy(rate) })
        }
        b'I' => {
            let interval = window(numbers.double()?)?;
            let tokens = NonZeroU32::new(u32::try_from(numbers.double()?).ok()?)?;
            Algorithm::TokenBucket(TokenBucket {
                size: limit,
                refill: Refill::Intervals { tokens, interval },
            })
        }
        b'L' => {
            let rate = rate(numbers.double()?, numbers.double()?)?;
            Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate, queue: None })
        }
        b'N' => {
            let max_hold = Window::from_secs(DAY_SECS).ok()?;
            Algorithm::Concurrency(Concurrency { limit, max_hold, queue: None })
        }
        _ => return None,
    };
    numbers.0.is_empty().then_some(algorithm)
}

/// A rate of so many hits in every `micros` microseconds.
fn rate(hits: u64, micros: u64) -> Option<Rate> {
    let (mut divisor, mut rest) = (micros.checked_mul(NANOS)?, hits);
    let nanos = divisor;
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Rate::from_parts(hits.checked_div(divisor)?, nanos.checked_div(divisor)?)
}

/// Encodes a state of an algorithm [in microseconds](Algorithm::in_microseconds) as the value of a counter; none for a state of
/// another algorithm. Times are rounded up, so that no hit counts for a shorter time.
pub fn encode(state: &State, algorithm: &Algorithm) -> Option<Vec<u8>> {
    if let State::Reserved(of_open) = state {
        return reserved::encode(of_open, algorithm, |state| encode(state, algorithm));
    }
    let mut bytes = signature(algorithm).to_vec();
    let double = |bytes: &mut Vec<u8>, number: u64| bytes.extend_from_slice(&(number as f64).to_le_bytes());
    let count = |bytes: &mut Vec<u8>, number: u32| bytes.extend_from_slice(&number.to_le_bytes());
    match (algorithm, state) {
        (Algorithm::SlidingWindow(_), State::Words([number, hits])) => {
            double(&mut bytes, *number);
            count(&mut bytes, (hits >> 32) as u32);
            count(&mut bytes, *hits as u32);
        }
        (Algorithm::FixedWindow(_), State::Words([last, hits])) => {
            double(&mut bytes, last.checked_add(1)?.div_ceil(NANOS));
            count(&mut bytes, u32::try_from(*hits).ok()?);
        }
        (
            Algorithm::TokenBucket(TokenBucket { refill: Refill::Intervals { .. }, .. }),
            State::Words([number, tokens]),
        ) => {
            double(&mut bytes, *number);
            count(&mut bytes, u32::try_from(*tokens).ok()?);
        }
        (Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_), State::Words([low, high])) => {
            let MicroRate { hits, parts, .. } = meter(algorithm)?;
            let dry = (u128::from(*low) | u128::from(*high) << 64).div_ceil(u128::from(parts));
            double(&mut bytes, u64::try_from(dry / u128::from(hits)).ok()?);
            double(&mut bytes, (dry % u128::from(hits)) as u64);
        }
        (Algorithm::SubWindows(sub), State::Counts(counts)) => {
            double(&mut bytes, counts.number());
            count(&mut bytes, sub.limit / u32::from(sub.precision()));
            counts.hits().iter().for_each(|&hits| count(&mut bytes, hits));
        }
        (Algorithm::SlidingLog(_), State::Log(runs)) => {
            let mut rounded: Vec<(u64, u32)> = Vec::new();
            for run in runs.iter() {
                let at = run.at.div_ceil(NANOS);
                match rounded.last_mut().filter(|(last, _)| *last == at) {
                    Some((_, hits)) => *hits = hits.saturating_add(run.hits),
                    None => rounded.push((at, run.hits)),
                }
            }
            double(&mut bytes, rounded.iter().map(|&(_, hits)| u64::from(hits)).sum());
            for (at, hits) in rounded {
                double(&mut bytes, at);
                count(&mut bytes, hits);
            }
        }
        (Algorithm::Concurrency(_), State::Slots(slots)) => {
            double(&mut bytes, slots.mean_hold().map_or(0, |mean| mean.as_nanos() as u64));
            double(&mut bytes, slots.all().map(|slot| u64::from(slot.hits)).sum());
            for slot in slots.all() {
                bytes.extend_from_slice(&slot.id.to_le_bytes());
                double(&mut bytes, slot.deadline().as_nanos().div_ceil(NANOS));
                count(&mut bytes, slot.hits);
                count(&mut bytes, slot.hold_millis());
            }
        }
        _ => return None,
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{super::value::algorithm_of, *};
    use tidegate_core::algorithm::Reservation;

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
            fixed(Schedule::Calendar(Calendar::new(Period::Month, zone))),
            Algorithm::TokenBucket(TokenBucket { size: 9, refill: Refill::Greedy(rate(7)) }),
            Algorithm::TokenBucket(TokenBucket {
                size: 9,
                refill: Refill::Intervals { tokens: NonZeroU32::new(3).unwrap(), interval: window },
            }),
            Algorithm::LeakyBucket(LeakyBucket { burst: 9, rate: rate(4_000), queue: None }),
            Algorithm::Concurrency(Concurrency { limit: 9, max_hold: window, queue: None }),
        ]
    }

    /// States after hits at times that are no whole microseconds.
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
                // Within a microsecond of the end of all hits of one moment.
                for later in [0, 1, 999, 1_000, HOUR / 7, HOUR, 3 * HOUR] {
                    let later = now.saturating_add_nanos(later);
                    let (used, was) = (algorithm.used(&read, later), algorithm.used(&state, later));
                    assert!(used >= was && used <= was + 7, "{algorithm:?}: {used} instead of {was}");
                }
                // Ends have the same results.
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
