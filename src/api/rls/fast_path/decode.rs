//! Decodes the bytes of a protobuf message into a checked request that borrows its texts from them.
//!
//! It decodes what clients send. All else is [`Unsupported`]: rare or forbidden encodings (groups, a message field in two parts, a field of
//! the wrong type, a length beyond the end), texts that differ from the bytes of the message
//! ([`client_text`](tidegate_core::limit::client_text())), and every request that has to be refused. Supported messages become the same
//! request as through prost and [`decode`](super::super::decode).

use super::wire::{Decoded, Fields, Piece, Unsupported};
use crate::api::rls::decode::{gives_back, unit};
use memchr::memchr;
use smallvec::SmallVec;
use tidegate_core::limit::{
    Descriptor, Entry, Hits, Request, RequestForm, RequestLimit, RequestLimits, has_escape,
};

/// Decodes a `RateLimitRequest` into an empty request, in place because a request is large.
#[inline]
pub(in crate::api) fn read<'m>(
    message: &'m [u8],
    limits: &RequestLimits,
    request: &mut Request<'m>,
) -> Decoded<()> {
    // Few messages have a backslash, and fewer an escape.
    if memchr(b'\\', message).is_some() && has_escape(message) {
        return Err(Unsupported);
    }
    // If the whole message, tags and lengths included, is UTF-8, each text that starts and ends at a character is UTF-8 too. A message is,
    // unless a length is above 127.
    match str::from_utf8(message) {
        Ok(message) => read_pieces(message, limits, request),
        Err(_) => read_pieces(message, limits, request),
    }
}

fn read_pieces<'m>(
    message: impl Piece<'m>,
    limits: &RequestLimits,
    request: &mut Request<'m>,
) -> Decoded<()> {
    let (mut domain, mut hits_addend, mut descriptors) = ("", 0, 0);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => domain = value.text()?,
            (2, _) => descriptors += 1,
            (3, value) => hits_addend = value.number()? as u32,
            _ => {}
        }
    }
    if descriptors > limits.descriptors_max || limits.keep_sent_hits {
        return Err(Unsupported);
    }
    // The descriptors need a second pass: the request's `hits_addend`, which follows them, applies to descriptors without hits.
    request.set_domain(domain);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        if let (2, value) = field {
            request.push(descriptor(value.message()?, hits_addend, limits)?);
        }
    }
    request.check(limits).map_err(|_| Unsupported)
}

/// A `RateLimitDescriptor`.
#[inline]
fn descriptor<'m>(
    message: impl Piece<'m>,
    hits_of_request: u32,
    limits: &RequestLimits,
) -> Decoded<Descriptor<'m>> {
    let mut entries = SmallVec::new();
    let (mut limit, mut hits_addend, mut is_negative_hits) = (None, None, false);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => entries.push(entry(value.message()?, limits.text_bytes_max)?),
            (2, value) => once(&mut limit, own_limit(value.message()?, limits.form)?)?,
            (3, value) => once(&mut hits_addend, wrapped(value.message()?)?)?,
            (4, value) => is_negative_hits = value.number()? != 0,
            _ => {}
        }
    }
    let hits = Hits::new(hits_addend, hits_of_request, gives_back(is_negative_hits, limits.form));
    Ok(Descriptor { entries, limit, hits })
}

/// Fails for a message field that appears twice: protobuf merges the two, and no client relies on it.
fn once<T>(field: &mut Option<T>, value: T) -> Decoded<()> {
    if field.replace(value).is_some() { Err(Unsupported) } else { Ok(()) }
}

/// An `Entry`.
#[inline]
fn entry<'m>(message: impl Piece<'m>, bytes_max: usize) -> Decoded<Entry<'m>> {
    let (mut key, mut value) = ("", "");
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, text) => key = text.text()?,
            (2, text) => value = text.text()?,
            _ => {}
        }
    }
    // A longer text is cut by the router.
    if key.len().max(value.len()) <= bytes_max { Ok(Entry { key, value }) } else { Err(Unsupported) }
}

/// A `RateLimitOverride`.
fn own_limit<'m>(message: impl Piece<'m>, form: RequestForm) -> Decoded<RequestLimit> {
    let (mut requests, mut number) = (0, 0);
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        match field {
            (1, value) => requests = value.number()? as u32,
            (2, value) => number = value.number()? as i32,
            _ => {}
        }
    }
    Ok(RequestLimit { requests, unit: unit(number, form).ok_or(Unsupported)? })
}

/// A `UInt64Value`.
fn wrapped<'m>(message: impl Piece<'m>) -> Decoded<u64> {
    let mut number = 0;
    let mut fields = Fields::of(message);
    while let Some(field) = fields.next()? {
        if let (1, value) = field {
            number = value.number()?;
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::{super::request, *};
    use crate::api::{
        pb::{
            common::{
                RateLimitDescriptor,
                rate_limit_descriptor::{Entry as WireEntry, RateLimitOverride},
            },
            service::RateLimitRequest,
        },
        rls::decode,
    };
    use proptest::{collection::vec, option, prelude::*};
    use prost::Message;

    const LIMITS: RequestLimits = RequestLimits {
        descriptors_max: 3,
        entries_max: 3,
        text_bytes_max: 6,
        form: RequestForm::Strict,
        keep_sent_hits: false,
    };

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-zé]{1,4}", "[a-z]{5,8}"]
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => text().prop_map(String::into_bytes),
            1 => prop::sample::select(vec![&b"\xff"[..], b"\\xff", b"\\x7f", b"a\\", b"\xc3"]).prop_map(<[u8]>::to_vec),
        ]
    }

    fn wire_descriptor() -> impl Strategy<Value = RateLimitDescriptor> {
        let entry = (bytes(), bytes()).prop_map(|(key, value)| WireEntry { key, value });
        let own = (any::<u32>(), prop_oneof![1..=6, -1..9_i32])
            .prop_map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit });
        (vec(entry, 0..4), option::of(own), option::of(any::<u64>()), any::<bool>()).prop_map(
            |(entries, limit, hits_addend, is_negative_hits)| RateLimitDescriptor {
                entries,
                limit,
                hits_addend,
                is_negative_hits,
            },
        )
    }

    fn wire_request() -> impl Strategy<Value = RateLimitRequest> {
        (text(), vec(wire_descriptor(), 0..5), any::<u32>()).prop_map(|(domain, descriptors, hits_addend)| {
            RateLimitRequest { domain, descriptors, hits_addend }
        })
    }

    /// Checks that the fast path decodes the same request as prost, or declines. It must not decline if `must_be_clear`, except for a text
    /// that differs from its bytes.
    fn check(bytes: &[u8], must_be_clear: bool) {
        let message = RateLimitRequest::decode(bytes).ok();
        let texts = message.as_ref().map(|message| decode::EntryTexts::of(message, &LIMITS));
        let must_be_clear = must_be_clear && texts.as_ref().is_some_and(|texts| texts.are_borrowed());
        let expected = message.as_ref().zip(texts.as_ref());
        let expected = expected.and_then(|(message, texts)| decode::request(message, texts, &LIMITS).ok());
        match (request(bytes, &LIMITS), expected) {
            (Some(request), expected) => assert_eq!(Some(request), expected),
            (None, expected) => assert!(expected.is_none() || !must_be_clear, "{expected:?}"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn encoded_requests_are_decoded_as_by_prost(message in wire_request()) {
            check(&message.encode_to_vec(), true);
        }

        #[test]
        fn a_field_of_a_newer_version_is_skipped(
            message in wire_request(), tag in 4..5_000_u32, number: u64, bytes in vec(any::<u8>(), 0..200),
        ) {
            let mut newer = Vec::new();
            prost::encoding::uint64::encode(tag, &number, &mut newer);
            prost::encoding::fixed32::encode(tag, &7, &mut newer);
            prost::encoding::fixed64::encode(tag, &7, &mut newer);
            prost::encoding::bytes::encode(tag, &bytes, &mut newer);
            check(&[newer.clone(), message.encode_to_vec(), newer].concat(), true);
        }

        #[test]
        fn damaged_requests_are_never_decoded_differently_from_prost(
            message in wire_request(), damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4), cut: prop::sample::Index,
        ) {
            let mut bytes = message.encode_to_vec();
            for (at, byte) in damage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            check(&bytes, false);
            check(&bytes[..cut.index(bytes.len() + 1)], false);
        }

        #[test]
        fn two_messages_in_a_row_are_read_as_prost_merges_them(one in wire_request(), other in wire_request()) {
            let (one, other) = (one.encode_to_vec(), other.encode_to_vec());
            check(&[one, other].concat(), true);
        }

        #[test]
        fn arbitrary_bytes_are_never_read_otherwise_than_prost_reads_them(bytes in vec(any::<u8>(), 0..64)) {
            check(&bytes, false);
        }
    }

    #[test]
    fn a_message_field_in_two_parts_is_left_to_the_router() {
        let own = RateLimitOverride { requests_per_unit: 1, unit: 1 };
        let entries = vec![WireEntry { key: "k".into(), value: Vec::new() }];
        let half = |of: RateLimitDescriptor| of.encode_to_vec();
        for twice in [
            RateLimitDescriptor { limit: Some(own), ..RateLimitDescriptor::default() },
            RateLimitDescriptor { hits_addend: Some(1), ..RateLimitDescriptor::default() },
        ] {
            let whole = RateLimitDescriptor { entries: entries.clone(), ..RateLimitDescriptor::default() };
            let once = [half(whole), half(twice.clone())].concat();
            assert!(descriptor(&once[..], 0, &LIMITS).is_ok());
            assert_eq!(descriptor(&[once, half(twice)].concat()[..], 0, &LIMITS), Err(Unsupported));
        }
    }

    #[test]
    fn reading_four_descriptors_takes_no_memory() {
        let entry = |key: &str| WireEntry { key: key.into(), value: "value".into() };
        let descriptor =
            RateLimitDescriptor { entries: ["a", "b", "c"].map(entry).into(), ..Default::default() };
        let message =
            RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor; 4], hits_addend: 1 };
        let (bytes, limits) = (message.encode_to_vec(), RequestLimits::default());
        let allocated = allocation_counter::measure(|| assert!(request(&bytes, &limits).is_some()));
        assert_eq!(allocated.count_total, 0);
    }
}
