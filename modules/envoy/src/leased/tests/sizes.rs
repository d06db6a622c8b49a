//! Requests with long values: each fits into a message.

use super::{
    super::{
        Leased,
        exchanges::{Exchanges, HeldTicket, Question},
        room::REQUEST_BYTES_MAX,
    },
    SECOND, TIME,
    hooks::filter_of,
};
use crate::{
    fake::Fake,
    filter::{RateLimit, Stream},
    protobuf::{Wire, fields},
};
use serde_json::{Value as Json, json};
use std::sync::atomic::Ordering;
use tidegate_envoy_abi::{Flow, Module as _};
use tidegate_http2::client::BODY_MAX;
use tidegate_shared::lease::Monotonic;

/// So many descriptors, each with so many entries from headers, and one constant.
fn by_headers(descriptors: usize, headers: usize) -> Json {
    let entry = |number: usize| json!({"request_headers": {"header_name": format!("x-{number}"), "descriptor_key": format!("key-{number}")}});
    let descriptor = |number: usize| {
        let entries = (0..headers).map(|header| entry(number * headers + header));
        let constant = json!({"generic_key": {"descriptor_value": "a-constant-of-the-configuration"}});
        json!({"actions": entries.chain([constant]).collect::<Vec<_>>()})
    };
    (0..descriptors).map(descriptor).collect()
}

/// A request with these headers.
fn request(headers: usize, value: &[u8]) -> Fake {
    (0..headers).fold(Fake::new("/"), |host, number| host.with(&format!("x-{number}"), value))
}

/// The request that a filter sends to its server.
fn asked(leased: &Leased) -> Option<Question> {
    leased.shared.questions.lock().pop()
}

/// The fields of a message with this number.
fn all(message: &[u8], number: u32) -> Vec<&[u8]> {
    let own = |field| match field {
        (own, Wire::Bytes(bytes)) if own == number => Some(bytes),
        _ => None,
    };
    fields(message).filter_map(|field| own(field.unwrap())).collect()
}

/// The value of the last entry of each descriptor.
fn constants(body: &[u8]) -> Vec<&[u8]> {
    all(body, 2).into_iter().map(|descriptor| all(all(descriptor, 1).last().unwrap(), 2)[0]).collect()
}

#[test]
fn a_request_with_values_of_any_length_fits_into_a_message() {
    TIME.set(Some(SECOND));
    for (descriptors, headers) in [(1, 1), (10, 3), (1, 31), (4, 31), (20, 5), (50, 1)] {
        let (config, leased) = filter_of(&by_headers(descriptors, headers), 1);
        let count = descriptors * headers;
        for bytes in [10, 24 * 1024 / count, 32_000 / count, 33_000 / count, 1_100, 3_000] {
            for value in [b"a".repeat(bytes), b"\xff".repeat(bytes), b"\\\xff".repeat(bytes / 2)] {
                let (mut stream, mut host) = (Stream::default(), request(count, &value));
                let flow = RateLimit::request_headers(&config, None, &mut stream, &mut host);
                assert_eq!(flow, Flow::Wait);
                let question = asked(&leased).expect("the server decides it");
                assert!(question.body.len() <= REQUEST_BYTES_MAX, "{descriptors} × {headers} × {bytes}");
                assert_eq!(
                    constants(&question.body),
                    vec![&b"a-constant-of-the-configuration"[..]; descriptors]
                );
                let held = HeldTicket {
                    domain: "d".into(),
                    ticket: "t".repeat(103).into(),
                    request: question.body.clone(),
                };
                let renewal = Question::renewal(1, &held, Monotonic::from_nanos(SECOND));
                assert!(renewal.body.len() <= REQUEST_BYTES_MAX, "{descriptors} × {headers} × {bytes}");
                let mut exchanges = Exchanges::new(1);
                exchanges.push([question]);
                let (_, message) =
                    exchanges.next(&leased.shared.known, Monotonic::from_nanos(SECOND)).unwrap();
                assert!(message.len() <= BODY_MAX && message.len() > count * bytes.min(100));
            }
        }
    }
}

#[test]
fn long_values_that_differ_in_their_last_byte_are_sent_as_values_that_differ() {
    let (config, leased) = filter_of(&by_headers(10, 3), 1);
    let sent = |last: &[u8]| {
        let mut host = request(30, &[&b"a".repeat(1_500), last].concat());
        let mut stream = Stream::default();
        assert_eq!(RateLimit::request_headers(&config, None, &mut stream, &mut host), Flow::Wait);
        asked(&leased).unwrap().body
    };
    assert_eq!(sent(b"b"), sent(b"b"));
    assert_ne!(sent(b"b"), sent(b"c"));
}

#[test]
fn a_configuration_with_too_many_entries_for_a_message_is_logged() {
    let (config, leased) = filter_of(&by_headers(100, 31), 1);
    for _ in 0..2 {
        let (mut stream, mut host) = (Stream::default(), request(3_100, b"a"));
        let flow = RateLimit::request_headers(&config, None, &mut stream, &mut host);
        assert_eq!((flow, &*host.responses[0]), (Flow::Responded, "500 rate_limiter_error "));
        assert!(asked(&leased).is_none() && leased.shared.is_length_logged.load(Ordering::Relaxed));
    }
}
