//! Values of counters in the store: leases, if there are any, and a state, with or without open reservations.

use super::{microseconds::NANOS, reserved};
use tidegate_core::{
    algorithm::{Algorithm, Lease, Leased, State, whole_double},
    limit::Timestamp,
};

/// Decodes the state of a counter with this algorithm, and its leases if there are any. None if the bytes are damaged, or those of another
/// algorithm. An empty counter has no bytes.
pub fn decode(bytes: &[u8], algorithm: &Algorithm) -> Option<State> {
    match bytes.first() {
        Some(&0) => decode_leased(bytes, algorithm),
        Some(&reserved::RESERVED) => reserved::decode(bytes, algorithm),
        _ => algorithm.decode_stored(bytes),
    }
}

/// Decodes the value of a counter with leases; none if it has parts of quota.
fn decode_leased(value: &[u8], algorithm: &Algorithm) -> Option<State> {
    let (state, leases) = without_leases(value)?;
    let leases = value[LEASES_HEAD..].chunks_exact(LEASE_BYTES).take(leases).map(|bytes| {
        let (node, numbers) = bytes.split_first_chunk()?;
        let [holder, sequence, settled, outstanding, end, demand] = numbers.as_chunks().0 else {
            return None;
        };
        Some(Lease {
            node: u64::from_le_bytes(*node),
            holder: whole_double(*holder)?,
            sequence: whole_double(*sequence)?,
            settled: whole_double(*settled)?,
            outstanding: whole_double(*outstanding)?,
            end: Timestamp::from_nanos(whole_double(*end)?.checked_mul(NANOS)?),
            demand: whole_double(*demand)?,
        })
    });
    let leases = leases.collect::<Option<_>>()?;
    let exact = whole_double(*value[3..].first_chunk()?)?;
    Some(State::Leased(Box::new(Leased { state: decode(state, algorithm)?, leases, exact, assigned: None })))
}

/// The name of the algorithm in the value of a counter, by the signature of its state. `empty` if it has leases and no hits yet; none if
/// the bytes are not a value.
pub fn algorithm_of(value: &[u8]) -> Option<&'static str> {
    let bytes = match without_leases(value)? {
        ([], leases) if leases > 0 => return Some("empty"),
        (state, _) => state,
    };
    let (signature, state) = match reserved::signature_of(bytes) {
        Some((signature, rest)) => (signature, reserved::seen_bytes(rest)?),
        None => (signature_of_state(bytes)?, bytes),
    };
    let algorithm = Algorithm::of_signature(signature)?;
    algorithm.decode_stored(state).map(|_| algorithm.name())
}

/// The signature of a state without reservations.
pub(super) fn signature_of_state(bytes: &[u8]) -> Option<&[u8]> {
    let (&length, rest) = bytes.split_first()?;
    rest.get(..usize::from(length))
}

/// Bytes of one lease in the value of a counter, and of the head before the leases: a zero byte, their number, and the hits of exact
/// decisions.
const LEASE_BYTES: usize = 56;
const LEASES_HEAD: usize = 11;

/// Position of the outstanding credits in a lease: after the server, the holder, the request and the reported hits.
const CREDITS_AT: usize = 32;

/// The state in the value of a counter, and the number of leases on it; none if the value is damaged.
fn without_leases(value: &[u8]) -> Option<(&[u8], usize)> {
    if value.first() != Some(&0) {
        return Some((value, 0));
    }
    let leases = usize::from(u16::from_le_bytes([*value.get(1)?, *value.get(2)?]));
    Some((value.get(LEASES_HEAD + leases * LEASE_BYTES..)?, leases))
}

/// The state in the value of a counter, and the sum of the outstanding credits; none if the value is damaged.
pub(super) fn out_of_leases(value: &[u8]) -> Option<(&[u8], u64)> {
    let (state, leases) = without_leases(value)?;
    let mut out = 0;
    for lease in 0..leases {
        let at = LEASES_HEAD + lease * LEASE_BYTES + CREDITS_AT;
        out += whole_double(*value.get(at..)?.first_chunk()?)?;
    }
    Some((state, out))
}
