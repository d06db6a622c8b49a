//! Encodes a decision as a framed `RateLimitResponse`, in the buffer that it is sent from.
//!
//! The numbers are those of [`encode`]; the bytes are those that prost makes of its message. A response with additions is
//! rare, and encoded by prost itself.

use crate::api::{
    pb::service::RateLimitResponse,
    rls::encode::{self, Precision},
};
use prost::Message as _;
use tidegate_core::{
    limit::{Code, CurrentLimit, Decision, Status},
    varint,
};
use tidegate_http2::grpc::PREFIX_BYTES;

/// Appends the response with its prefix.
#[inline]
pub(in crate::api) fn framed(decision: &Decision<'_>, precision: Precision, out: &mut Vec<u8>) {
    let response = Response { code: decision.code, statuses: &decision.statuses, precision };
    with_prefix(out, |out| response.write(out));
}

/// Appends a message that prost encodes, with its prefix.
#[cold]
pub(in crate::api) fn framed_message(message: &RateLimitResponse, out: &mut Vec<u8>) {
    with_prefix(out, |out| message.encode(out).expect("a vector grows as needed"));
}

/// Appends a message and, before it, its prefix: not compressed, and the length.
#[inline]
fn with_prefix(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    let start = out.len();
    write(out);
    // Fits: a request has at most as many descriptors as a message of 4 GiB can hold, and each status is far shorter than 4 GiB.
    let length = (out.len() - start) as u32;
    out[start - size_of::<u32>()..start].copy_from_slice(&length.to_be_bytes());
}

/// Number of the field `RateLimit.window`.
const WINDOW: u64 = 50_000;
/// Number of the field `DescriptorStatus.mode`.
const MODE: u64 = 50_000;
/// Number of the field `DescriptorStatus.estimated`.
const ESTIMATED: u64 = 50_001;

/// A protobuf message.
trait Message {
    fn write(&self, out: &mut Vec<u8>);
}

#[inline]
fn varint(out: &mut Vec<u8>, number: u64) {
    varint::bytes(number).for_each(|byte| out.push(byte));
}

/// A number, omitted if it is zero.
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

/// Makes room for a length above one byte: a limit has a long name.
#[cold]
fn lengthen(out: &mut Vec<u8>, length_at: usize, length: usize) {
    out.splice(length_at..=length_at, varint::bytes(length as u64));
}

/// `RateLimitResponse`.
struct Response<'d> {
    code: Code,
    statuses: &'d [Status<'d>],
    precision: Precision,
}

impl Message for Response<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, encode::code(self.code) as u64);
        for status in self.statuses {
            message(out, 2, &DescriptorStatus { status, precision: self.precision });
        }
    }
}

/// `DescriptorStatus`.
struct DescriptorStatus<'d> {
    status: &'d Status<'d>,
    precision: Precision,
}

impl Message for DescriptorStatus<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, encode::code(self.status.code) as u64);
        if let Some(limit) = &self.status.limit {
            message(out, 2, &RateLimit { limit, precision: self.precision });
        }
        number(out, 3, self.status.remaining.into());
        if let Some(wait) = self.status.reset.and_then(|reset| encode::duration(reset, self.precision)) {
            message(out, 4, &wait);
        }
        if self.precision == Precision::Exact {
            number(out, MODE, encode::mode(self.status, self.precision) as u64);
            number(out, ESTIMATED, encode::is_estimated(self.status, self.precision).into());
        }
    }
}

/// `RateLimit`.
struct RateLimit<'d> {
    limit: &'d CurrentLimit<'d>,
    precision: Precision,
}

impl Message for RateLimit<'_> {
    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        number(out, 1, self.limit.requests.into());
        number(out, 2, encode::unit(self.limit.unit) as u64);
        text(out, 3, self.limit.name);
        if let Some(window) = encode::window(self.limit, self.precision) {
            message(out, WINDOW, &window);
        }
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
    use proptest::{collection::vec, option, prelude::*, sample::select};
    use std::time::Duration;
    use tidegate_core::limit::{Reset, RuleInfo, Unit, Window};

    fn code() -> impl Strategy<Value = Code> {
        select(&[Code::Ok, Code::OverLimit][..])
    }

    /// Longer than a length of one byte can express.
    const LONG: &str = concat!(
        "a name that is longer than one hundred and twenty-seven bytes, so that its length takes two bytes, ",
        "and so does the length of what it is part of, and of what that is part of in turn"
    );

    fn limit() -> impl Strategy<Value = CurrentLimit<'static>> {
        let name = select(&["", "per-user", "naïve", LONG][..]);
        let window = any::<u64>().prop_map(|nanos| {
            Window::from_nanos(Window::NANOS_MIN + nanos % Window::NANOS_MAX / 2).expect("a window")
        });
        (name, number(), option::of(select(&Unit::ALL[..])), window).prop_map(
            |(name, requests, unit, window)| CurrentLimit {
                name,
                requests,
                capacity: requests,
                window,
                unit,
            },
        )
    }

    fn rule() -> impl Strategy<Value = Option<RuleInfo>> {
        option::of((any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(quota, queues, holds_slots)| {
            RuleInfo {
                path: "k".into(),
                declared_at: Box::default(),
                quota,
                queues,
                holds_slots,
                shown_values: 0,
                metric_labels: Box::default(),
                metadata: None,
                on_deny: None,
            }
        }))
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
            statuses in vec((code(), option::of(limit()), number(), option::of(reset()), rule()), 0..5),
            exact: bool,
        ) {
            let status = |(code, limit, remaining, reset, rule): (_, _, _, _, Option<RuleInfo>)| {
                let rule = rule.map(|rule| &*Box::leak(Box::new(rule)));
                Status { code, limit, remaining, reset, rule, ..Status::NO_LIMIT }
            };
            let decision =
                Decision::new(overall, statuses.into_iter().map(status).collect());
            let precision = if exact { Precision::Exact } else { Precision::Seconds };
            let message = prost::Message::encode_to_vec(&encode::response(&decision, precision));
            let mut out = b"before".to_vec();
            framed(&decision, precision, &mut out);
            let framed = out.strip_prefix(b"before").expect("the bytes before it stay");
            prop_assert_eq!(&framed[..5], &[&[0], &(message.len() as u32).to_be_bytes()[..]].concat()[..]);
            prop_assert_eq!(&framed[5..], &message[..]);
        }
    }

    #[test]
    fn encoding_does_not_allocate() {
        let limit =
            CurrentLimit { name: LONG, requests: 7, capacity: 7, window: Unit::Hour.window(), unit: None };
        let reset = Some(Reset::After(Duration::new(2, 1)));
        let status = Status { limit: Some(limit), remaining: 3, reset, ..Status::NO_LIMIT };
        let decision = Decision::new(Code::Ok, [status; 4].into_iter().collect());
        let mut out = Vec::with_capacity(4096);
        let allocated = allocation_counter::measure(|| framed(&decision, Precision::Exact, &mut out));
        assert_eq!(allocated.count_total, 0);
    }
}
