//! Requests of servers for their parts of quota, encoded for the script, and the script's grants.

use crate::quota::{OtherPart, PART_LIFE, Part, PartGrant, PartRequest};
use tidegate_core::{
    algorithm::{Algorithm, whole_double},
    limit::Timestamp,
};

/// The life of a part, in microseconds, as the third argument of the script.
pub const LIFE_ARGUMENT: u64 = PART_LIFE.as_micros() as u64;

/// Bytes of the head of a grant, and of the part of each other server.
const NUMBERS_BYTES: usize = 5 * 8;

/// The argument for a request for a part of a counter. `algorithm` is that of the counter, `now` is the time of this machine.
pub fn encode_part(request: &PartRequest, algorithm: &Algorithm, now: Timestamp) -> Vec<u8> {
    let PartRequest { server, sequence, kept, spent, acknowledged, wanted, rate_max, span, demand, clients } =
        *request;
    let most = algorithm.remaining(&Default::default(), Timestamp::EPOCH);
    let mut out = server.0.to_le_bytes().to_vec();
    let mut write = |number: f64| out.extend(number.to_le_bytes());
    [sequence, kept.rate, kept.burst, spent].into_iter().for_each(|number| write(number as f64));
    write(acknowledged.map_or(-1.0, |acknowledged| acknowledged as f64));
    [wanted.rate, wanted.burst, rate_max, span, most, demand, clients]
        .into_iter()
        .for_each(|number| write(number as f64));
    out.extend_from_slice(&algorithm.parameters_in_store(now));
    out
}

/// The grants of a reply, in the order of the requests. A grant is none if the request was not newer than the last one. The result is none
/// if the store has no epoch, or if the script did not send the reply.
pub fn decode_parts(reply: &[Vec<u8>], requests: usize) -> Option<Vec<Option<PartGrant>>> {
    let (now, grants) = reply.split_first()?;
    let is_whole = grants.len() == requests && now.len() == size_of::<f64>();
    is_whole.then(|| grants.iter().map(|grant| decode_part(grant)).collect())
}

fn decode_part(bytes: &[u8]) -> Option<PartGrant> {
    let (numbers, others) = bytes.split_at_checked(NUMBERS_BYTES)?;
    let [rate, burst, exact, leased, free] = five(numbers)?;
    let other = |bytes: &[u8]| {
        let [rate, burst, ends_in, demand, clients] = five(bytes)?;
        Some(OtherPart { part: Part { rate, burst }, ends_in, demand, clients })
    };
    let others = others.chunks(NUMBERS_BYTES).map(other).collect::<Option<_>>()?;
    Some(PartGrant { part: Part { rate, burst }, others, free, exact, leased })
}

fn five(bytes: &[u8]) -> Option<[u64; 5]> {
    let mut numbers = bytes.as_chunks::<8>().0.iter().map(|double| whole_double(*double));
    let mut next = || numbers.next()?;
    Some([next()?, next()?, next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doubles(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|&number| (number as f64).to_le_bytes()).collect()
    }

    #[test]
    fn grants_are_read_and_replies_of_another_form_are_not() {
        let part = Part { rate: 3, burst: 4 };
        let other = OtherPart { part: Part { rate: 5, burst: 6 }, ends_in: 7, demand: 8, clients: 9 };
        let grant = PartGrant { part, others: vec![other], free: 12, exact: 10, leased: 11 };
        let encoded = doubles(&[3, 4, 10, 11, 12, 5, 6, 7, 8, 9]);
        let reply = |grants: &[&[u8]]| -> Vec<Vec<u8>> {
            std::iter::once(doubles(&[1])).chain(grants.iter().map(|grant| grant.to_vec())).collect()
        };
        assert_eq!(decode_parts(&reply(&[&encoded, b""]), 2), Some(vec![Some(grant), None]));
        assert_eq!(decode_parts(&reply(&[&encoded[..79]]), 1), Some(vec![None]));
        assert_eq!(decode_parts(&reply(&[&encoded]), 2), None);
        assert_eq!(decode_parts(&[], 0), None);
    }
}
