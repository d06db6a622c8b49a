//! States of counters as the store keeps them: the signature of their limit, then numbers.

use super::signature::{MicroRate, NANOS, meter, signature};
use tidegate_core::{
    algorithm::{Algorithm, Counts, Refill, Run, Runs, Slot, Slots, State, TokenBucket},
    limit::Timestamp,
};

/// Bytes of a slot.
const SLOT_BYTES: usize = 24;

/// Doubles below represent every whole number.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// Decodes the state of a counter without reservations that counts by this algorithm; none if the bytes are of another one, or damaged. No bytes are
/// an empty counter.
pub(super) fn decode_plain(bytes: &[u8], algorithm: &Algorithm) -> Option<State> {
    if bytes.is_empty() {
        return Some(State::EMPTY);
    }
    let mut numbers = Numbers(bytes.strip_prefix(&signature(algorithm)[..])?);
    let state = match algorithm {
        Algorithm::Concurrency(_) => {
            let (mean_hold_nanos, _total) = (numbers.double()?, numbers.double()?);
            let mut held = Vec::with_capacity(numbers.0.len() / SLOT_BYTES);
            while !numbers.0.is_empty() {
                let (id, deadline) = (numbers.id()?, numbers.double()?.checked_mul(NANOS)?);
                let (hits, hold_millis) = (numbers.count()?, numbers.count()?);
                held.push(Slot::new(id, Timestamp::from_nanos(deadline), hits, hold_millis)?);
            }
            State::Slots(Slots::from_ascending(&held, mean_hold_nanos)?)
        }
        // Bans are not in a store.
        Algorithm::Ban(_) => return None,
        Algorithm::SlidingWindow(_) => {
            let (number, previous, current) = (numbers.double()?, numbers.count()?, numbers.count()?);
            State::Words([number, u64::from(previous) << 32 | u64::from(current)])
        }
        Algorithm::FixedWindow(_) => {
            let (end, hits) = (numbers.double()?, numbers.count()?);
            State::Words([end.checked_mul(NANOS)?.checked_sub(1)?, u64::from(hits)])
        }
        Algorithm::TokenBucket(TokenBucket { refill: Refill::Intervals { .. }, .. }) => {
            let (number, tokens) = (numbers.double()?, numbers.count()?);
            State::Words([number, u64::from(tokens)])
        }
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
            let MicroRate { hits, parts, .. } = meter(algorithm)?;
            let (dry, part) = (numbers.double()?, numbers.double()?);
            let dry = (u128::from(dry) * u128::from(hits) + u128::from(part)) * u128::from(parts);
            State::Words([dry as u64, (dry >> 64) as u64])
        }
        Algorithm::SubWindows(sub) => {
            let (number, _allowance) = (numbers.double()?, numbers.count()?);
            let hits: Option<Vec<u32>> = (0..=sub.precision()).map(|_| numbers.count()).collect();
            State::Counts(Box::new(Counts::new(number, hits?.into())?))
        }
        Algorithm::SlidingLog(_) => {
            let _total = numbers.double()?;
            let mut runs = Vec::with_capacity(numbers.0.len() / 12);
            while !numbers.0.is_empty() {
                runs.push(Run { at: numbers.double()?.checked_mul(NANOS)?, hits: numbers.count()? });
            }
            State::Log(Box::new(Runs::from_ascending(runs)?))
        }
    };
    numbers.0.is_empty().then_some(state)
}

/// The name of the algorithm with this letter.
pub(super) fn name_of(kind: &u8) -> Option<&'static str> {
    Some(match kind {
        b'W' | b'S' => "sliding_window",
        b'G' => "sliding_log",
        b'C' | b'H' | b'K' => "fixed_window",
        b'T' | b'I' => "token_bucket",
        b'L' => "leaky_bucket",
        b'N' => "concurrency",
        _ => return None,
    })
}

/// The algorithm of a state without reservations; none if the bytes are no such state.
pub(super) fn algorithm_of_state(bytes: &[u8]) -> Option<&'static str> {
    let (&length, rest) = bytes.split_first()?;
    let (signature, numbers) = rest.split_at_checked(usize::from(length))?;
    let (&kind, parameters) = signature.split_first()?;
    let fits = match (kind, parameters.len(), numbers.len()) {
        (b'W', 8, length) => length == 16,
        (b'S', 9, length) => length == 8 + 4 * (usize::from(parameters[8]) + 2),
        (b'G', 8, length) => length >= 20 && length % 12 == 8,
        (b'C' | b'H', 8, length) | (b'K', 2.., length) => length == 12,
        (b'T' | b'L', 16, length) => length == 16,
        (b'I', 16, length) => length == 12,
        (b'N', 0, length) => length >= 16 && length % SLOT_BYTES == 16,
        _ => return None,
    };
    name_of(&kind).filter(|_| fits)
}

/// The whole number in a double, if it is one.
pub(super) fn whole(bytes: [u8; 8]) -> Option<u64> {
    let number = f64::from_le_bytes(bytes);
    ((0.0..EXACT_BELOW).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

/// The numbers that are left.
pub(super) struct Numbers<'b>(pub(super) &'b [u8]);

impl Numbers<'_> {
    pub(super) fn double(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        whole(*bytes)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    pub(super) fn id(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    pub(super) fn count(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }
}
