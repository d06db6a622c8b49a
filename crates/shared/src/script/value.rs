//! Values of counters as the store keeps them: leases, if there are any, and a state, with or without open reservations.

use super::{
    reserved,
    state::{algorithm_of_state, decode_plain, name_of, whole},
};
use tidegate_core::algorithm::{Algorithm, State};

/// Decodes the state of a counter that counts by this algorithm; none if the bytes are of another one, or damaged. No bytes are
/// an empty counter.
pub fn decode(bytes: &[u8], algorithm: &Algorithm) -> Option<State> {
    match bytes.first() {
        Some(&reserved::RESERVED) => reserved::decode(bytes, algorithm),
        _ => decode_plain(bytes, algorithm),
    }
}

/// The algorithm that the value of a counter is of, by the signature of its state, `empty` if it has leases and no hits yet; none
/// if the bytes are no such value.
pub fn algorithm_of(value: &[u8]) -> Option<&'static str> {
    let bytes = match without_leases(value)? {
        ([], leases) if leases > 0 => return Some("empty"),
        (state, _) => state,
    };
    if let Some((signature, rest)) = reserved::signature_of(bytes) {
        return match reserved::seen_bytes(rest)? {
            [] => signature.first().and_then(name_of),
            seen => algorithm_of_state(seen),
        };
    }
    algorithm_of_state(bytes)
}

/// Bytes of one lease in the value of a counter, and of what precedes the leases: a zero byte, their number, and the hits of
/// exact decisions.
const LEASE_BYTES: usize = 56;
const LEASES_HEAD: usize = 11;

/// Position in a lease of the outstanding credits: after the server, the holder, the request and the reported hits.
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
        out += whole(*value.get(at..)?.first_chunk()?)?;
    }
    Some((state, out))
}
