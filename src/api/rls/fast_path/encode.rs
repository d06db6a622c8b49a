//! From a decision to the bytes of a framed `RateLimitResponse`, in the buffer that they are sent from.
//!
//! The numbers are those of [`encode`]; the bytes are those that prost makes of its message. An answer that says more than
//! its verdict and statuses is rare, and made by prost itself.

use crate::{
    api::{
        grpc::PREFIX_BYTES,
        pb::service::RateLimitResponse,
        rls::encode::{self, Precision},
    },
    limit::{Code, CurrentLimit, Decision, Status},
};
use prost::Message as _;

/// Appends the answer with its prefix.
#[inline]
pub(in crate::api) fn framed(decision: &Decision<'_>, precision: Precision, out: &mut Vec<u8>) {
    let answer = Answer { code: decision.code, statuses: &decision.statuses, precision };
    with_prefix(out, |out| answer.write(out));
}

/// Appends an answer that prost made, with its prefix.
#[cold]
pub(in crate::api) fn framed_message(message: &RateLimitResponse, out: &mut Vec<u8>) {
    with_prefix(out, |out| message.encode(out).expect("a vector grows as needed"));
}

/// Appends a message and, before it, what says that it is not compressed and how long it is.
#[inline]
fn with_prefix(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let start = out.len();
    write(out);
    // A request has at most as many descriptors as fit a message of 4 GiB; what is said of one is shorter than that by far.
    let length = (out.len() - start) as u32;
    out[start - size_of::<u32>()..start].copy_from_slice(&length.to_be_bytes());
}

/// A protobuf message.
trait Message {
    fn write(&self, out: &mut Vec<u8>);
}

#[inline]
fn varint(out: &mut Vec<u8>, number: u64) {
    varint_bytes(number).for_each(|byte| out.push(byte));
}

/// Seven bits a byte, the lowest first; all but the last byte are marked.
#[inline]
fn varint_bytes(number: u64) -> impl Iterator<Item = u8> {
    let bytes = (u64::BITS - (number | 1).leading_zeros()).div_ceil(7);
    let marked = move |at: u32| if at + 1 < bytes { 0x80 } else { 0 };
    (0..bytes).map(move |at| (number >> (7 * at)) as u8 & 0x7f | marked(at))
}

/// A number, which is left out if it is zero.
#[inline]
fn number(out: &mut Vec<u8>, tag: u64, number: u64) {
    if number != 0 {
        varint(out, tag << 3);
        varint(out, number);
    }
}

#[inline]
fn text(out: &mut Vec<u8>, tag: u64, text: &str) {
    if !text.is_empty() {
        varint(out, tag << 3 | 2);
        varint(out, text.len() as u64);
        out.extend_from_slice(text.as_bytes());
    }
}

#[inline]
fn message(out: &mut Vec<u8>, tag: u64, message: &impl Message) {
    varint(out, tag << 3 | 2);
    let length_at = out.len();
    out.push(0);
    message.write(out);
    let length = out.len() - length_at - 1;
    match u8::try_from(length) {
        Ok(byte @ ..0x80) => out[length_at] = byte,
        _ => lengthen(out, length_at, length),
    }
}

/// Makes room for a length that one byte does not hold: somebody gave a limit a long name.
#[cold]
fn lengthen(out: &mut Vec<u8>, length_at: usize, length: usize) {
    out.splice(length_at..=length_at, varint_bytes(length as u64));
}

/// `RateLimitResponse`.
struct Answer<'d> {
    code: Code,
    statuses: &'d [Status<'d>],
    precision: Precision,
}

impl Message for Answer<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, encode::code(self.code) as u64);
        for status in self.statuses {
            message(out, 2, &OfDescriptor { status, precision: self.precision });
        }
    }
}

/// `DescriptorStatus`.
struct OfDescriptor<'d> {
    status: &'d Status<'d>,
    precision: Precision,
}

impl Message for OfDescriptor<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, encode::code(self.status.code) as u64);
        if let Some(limit) = &self.status.limit {
            message(out, 2, limit);
        }
        number(out, 3, self.status.remaining.into());
        if let Some(wait) = self.status.reset.and_then(|reset| encode::duration(reset, self.precision)) {
            message(out, 4, &wait);
        }
    }
}

/// `RateLimit`.
impl Message for CurrentLimit<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, self.requests.into());
        number(out, 2, encode::unit(self.unit) as u64);
        text(out, 3, self.name);
    }
}

/// Never negative here.
impl Message for prost_types::Duration {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, self.seconds as u64);
        number(out, 2, self.nanos as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Reset, Unit};
    use proptest::{collection::vec, option, prelude::*, sample::select};
    use std::time::Duration;

    fn code() -> impl Strategy<Value = Code> {
        select(&[Code::Ok, Code::OverLimit][..])
    }

    /// Longer than a length of one byte can say.
    const LONG: &str = concat!(
        "a name that is longer than one hundred and twenty-seven bytes, so that its length takes two bytes, ",
        "and so does the length of what it is part of, and of what that is part of in turn"
    );

    fn limit() -> impl Strategy<Value = CurrentLimit<'static>> {
        let name = select(&["", "per-user", "naïve", LONG][..]);
        (name, number(), option::of(select(&Unit::ALL[..]))).prop_map(|(name, requests, unit)| CurrentLimit {
            name,
            requests,
            window: Unit::Minute.window(),
            unit,
        })
    }

    fn number() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), 0..300_u32, any::<u32>()]
    }

    fn reset() -> impl Strategy<Value = Reset> {
        prop_oneof![
            Just(Reset::NOW),
            Just(Reset::Never),
            any::<u64>().prop_map(|nanos| Reset::After(Duration::from_nanos(nanos))),
            (0..5_000_000_000_u64).prop_map(|nanos| Reset::After(Duration::from_nanos(nanos))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_bytes_are_those_that_prost_makes(
            overall in code(),
            statuses in vec((code(), option::of(limit()), number(), option::of(reset())), 0..5),
            exact: bool,
        ) {
            let status = |(code, limit, remaining, reset)| Status { code, limit, remaining, reset, rule: None };
            let decision =
                Decision { code: overall, statuses: statuses.into_iter().map(status).collect() };
            let precision = if exact { Precision::Exact } else { Precision::Seconds };
            let message = prost::Message::encode_to_vec(&encode::response(&decision, precision));
            let mut out = b"before".to_vec();
            framed(&decision, precision, &mut out);
            let framed = out.strip_prefix(b"before").expect("what was there stays");
            prop_assert_eq!(&framed[..5], &[&[0], &(message.len() as u32).to_be_bytes()[..]].concat()[..]);
            prop_assert_eq!(&framed[5..], &message[..]);
        }
    }

    #[test]
    fn an_answer_takes_no_memory() {
        let limit =
            CurrentLimit { name: LONG, requests: 7, window: Unit::Hour.window(), unit: Some(Unit::Hour) };
        let reset = Some(Reset::After(Duration::new(2, 1)));
        let status = Status { code: Code::Ok, limit: Some(limit), remaining: 3, reset, rule: None };
        let decision = Decision { code: Code::Ok, statuses: [status; 4].into_iter().collect() };
        let mut out = Vec::with_capacity(4096);
        let allocated = allocation_counter::measure(|| framed(&decision, Precision::Exact, &mut out));
        assert_eq!(allocated.count_total, 0);
    }
}
