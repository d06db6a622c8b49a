//! Encoding of counters with open reservations in the store: a byte, the signature of their limit, a head, two states, and the
//! reservations.

use super::microseconds::NANOS;
use tidegate_core::{
    algorithm::{Algorithm, Reservation, Reserved, State, StoredNumbers},
    limit::Timestamp,
};

/// First byte of the value of such a counter, instead of the length of a signature.
pub(super) const RESERVED: u8 = 255;

/// Bytes of the head, and of one reservation.
const HEAD_BYTES: usize = 32;
const OPEN_BYTES: usize = 37;

/// The signature of a value with reservations, and the bytes after it.
pub(super) fn signature_of(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = value.strip_prefix(&[RESERVED])?.split_first()?;
    rest.split_at_checked(usize::from(length))
}

/// The settled state, the seen state and the reservations, if the bytes after the signature are those of a counter with reservations.
fn states(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (head, rest) = rest.split_at_checked(HEAD_BYTES)?;
    let length = |at: usize| {
        let bytes = head.get(at..).and_then(<[u8]>::first_chunk)?;
        usize::try_from(u32::from_le_bytes(*bytes)).ok()
    };
    let (settled, rest) = rest.split_at_checked(length(24)?)?;
    let (seen, open) = rest.split_at_checked(length(28)?)?;
    (!open.is_empty() && open.len() % OPEN_BYTES == 0).then_some((settled, seen, open))
}

/// The bytes of the seen state in a value; none if it is damaged.
pub(super) fn seen_bytes(rest: &[u8]) -> Option<&[u8]> {
    states(rest).map(|(_, seen, _)| seen)
}

/// Decodes a value with reservations. None if it is damaged, or has another limit.
pub(super) fn decode(value: &[u8], algorithm: &Algorithm) -> Option<State> {
    let rest = value.strip_prefix(&[RESERVED])?.strip_prefix(&algorithm.signature()[..])?;
    let (settled, seen, open) = states(rest)?;
    let mut reservations = Vec::with_capacity(open.len() / OPEN_BYTES);
    let mut numbers = StoredNumbers(open);
    while !numbers.is_empty() {
        let (id, deadline) = (numbers.long()?, numbers.double()?);
        let (place, part) = (numbers.double()?, numbers.double()?);
        let (hits, returns) = (numbers.count()?, numbers.byte()? == 1);
        let deadline = Timestamp::from_nanos(deadline.checked_mul(NANOS)?);
        reservations
            .push((Reservation { id, hits, deadline, returns }, algorithm.place_from_store(place, part)?));
    }
    let (settled, seen) = (algorithm.decode_stored(settled)?, algorithm.decode_stored(seen)?);
    Some(State::Reserved(Box::new(Reserved::from_parts(settled, seen, reservations)?)))
}

/// Encodes a counter with reservations. Times are rounded up.
pub(super) fn encode(
    reserved: &Reserved,
    algorithm: &Algorithm,
    plain: impl Fn(&State) -> Option<Vec<u8>>,
) -> Option<Vec<u8>> {
    let (settled, seen, open) = reserved.parts();
    let state = |state: &State| if *state == State::EMPTY { Some(Vec::new()) } else { plain(state) };
    let (settled, seen) = (state(settled)?, state(seen)?);
    let deadlines = || reserved.open().map(|open| open.deadline.as_nanos().div_ceil(NANOS) as f64);
    let mut bytes = [&[RESERVED], &algorithm.signature()[..]].concat();
    let double = |bytes: &mut Vec<u8>, number: f64| bytes.extend_from_slice(&number.to_le_bytes());
    double(&mut bytes, algorithm.number_of_reserved().into());
    double(&mut bytes, deadlines().fold(f64::INFINITY, f64::min));
    double(&mut bytes, deadlines().fold(0.0, f64::max));
    for length in [settled.len(), seen.len()] {
        bytes.extend_from_slice(&u32::try_from(length).ok()?.to_le_bytes());
    }
    bytes.extend_from_slice(&settled);
    bytes.extend_from_slice(&seen);
    for (Reservation { id, hits, deadline, returns }, place) in open {
        bytes.extend_from_slice(&id.to_le_bytes());
        double(&mut bytes, deadline.as_nanos().div_ceil(NANOS) as f64);
        let (place, part) = algorithm.place_to_store(place)?;
        double(&mut bytes, place as f64);
        double(&mut bytes, part as f64);
        bytes.extend_from_slice(&hits.to_le_bytes());
        bytes.push(u8::from(*returns));
    }
    Some(bytes)
}
