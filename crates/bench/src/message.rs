//! `RateLimitRequest`, encoded field by field: a run encodes the parts that are equal for all keys once.

use crate::ticket::ReceivedTicket;
use prost::encoding::{encode_varint, encoded_len_varint};
use tidegate_http2::grpc::PREFIX_BYTES;

/// Tag of a length-delimited field with this number.
const fn delimited(number: u64) -> u64 {
    number << 3 | 2
}

/// Tag of a variable-length integer field with this number.
const fn varint(number: u64) -> u64 {
    number << 3
}

/// Tags of the fields of `RateLimitRequest`, `RateLimitDescriptor` and its `Entry`.
pub(crate) const DOMAIN: u64 = delimited(1);
pub(crate) const DESCRIPTORS: u64 = delimited(2);
pub(crate) const HITS_ADDEND: u64 = varint(3);
pub(crate) const ENTRIES: u64 = delimited(1);
const HITS_OF_DESCRIPTOR: u64 = delimited(3);
const IS_NEGATIVE_HITS: u64 = varint(4);
pub(crate) const KEY: u64 = delimited(1);
pub(crate) const VALUE: u64 = delimited(2);
/// Tag of the only field of `google.protobuf.UInt64Value`.
const WRAPPED: u64 = varint(1);

/// Appends a variable-length integer.
pub(crate) fn number(tag: u64, number: u64, out: &mut Vec<u8>) {
    encode_varint(tag, out);
    encode_varint(number, out);
}

/// Appends a length-delimited field.
pub(crate) fn bytes(tag: u64, bytes: &[u8], out: &mut Vec<u8>) {
    number(tag, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// A field with a text.
pub(crate) fn string(tag: u64, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(tag, text.as_bytes(), &mut out);
    out
}

/// The encoded length of a length-delimited field with `length` bytes of content.
pub(crate) fn encoded_len(tag: u64, length: usize) -> usize {
    encoded_len_varint(tag) + encoded_len_varint(length as u64) + length
}

/// Writes the gRPC prefix of a message into the room at its start.
pub(crate) fn write_prefix(message: &mut [u8]) {
    let length = u32::try_from(message.len() - PREFIX_BYTES).unwrap_or(u32::MAX);
    message[1..PREFIX_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// The request that ends what a ticket holds, with its gRPC prefix.
pub(crate) fn end(ticket: &ReceivedTicket, domain: &str, cost: Option<u64>) -> Vec<u8> {
    let (hits, is_negative) = ticket.hits_of_end(cost);
    let entry = [string(KEY, ReceivedTicket::END_KEY), string(VALUE, &ticket.slot)].concat();
    let (mut descriptor, mut wrapped) = (Vec::new(), Vec::new());
    bytes(ENTRIES, &entry, &mut descriptor);
    number(WRAPPED, hits, &mut wrapped);
    bytes(HITS_OF_DESCRIPTOR, &wrapped, &mut descriptor);
    number(IS_NEGATIVE_HITS, u64::from(is_negative), &mut descriptor);
    let mut message = vec![0; PREFIX_BYTES];
    bytes(DOMAIN, domain.as_bytes(), &mut message);
    bytes(DESCRIPTORS, &descriptor, &mut message);
    write_prefix(&mut message);
    message
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use prost::Message as _;

    /// A request as prost decodes it.
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Request {
        #[prost(string, tag = "1")]
        pub(crate) domain: String,
        #[prost(message, repeated, tag = "2")]
        pub(crate) descriptors: Vec<Descriptor>,
        #[prost(uint32, tag = "3")]
        pub(crate) hits_addend: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Descriptor {
        #[prost(message, repeated, tag = "1")]
        pub(crate) entries: Vec<Entry>,
        #[prost(message, optional, tag = "3")]
        pub(crate) hits_addend: Option<u64>,
        #[prost(bool, tag = "4")]
        pub(crate) is_negative_hits: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Entry {
        #[prost(string, tag = "1")]
        pub(crate) key: String,
        #[prost(string, tag = "2")]
        pub(crate) value: String,
    }

    /// Decodes a request with its gRPC prefix.
    pub(crate) fn decode(message: &[u8]) -> Request {
        let (prefix, message) = message.split_first_chunk::<PREFIX_BYTES>().expect("a prefix");
        let [compressed, length @ ..] = *prefix;
        assert_eq!((compressed, u32::from_be_bytes(length) as usize), (0, message.len()));
        Request::decode(message).expect("a RateLimitRequest")
    }

    #[test]
    fn an_end_names_its_ticket_and_the_cost() {
        let ticket = ReceivedTicket { slot: "slot-1".to_owned(), cost: 40 };
        for (cost, hits, is_negative_hits) in
            [(None, 40, false), (Some(700), 700, false), (Some(0), 40, true)]
        {
            let request = decode(&end(&ticket, "edge", cost));
            let entry = Entry { key: "slot".to_owned(), value: "slot-1".to_owned() };
            let descriptor = Descriptor { entries: vec![entry], hits_addend: Some(hits), is_negative_hits };
            let expected =
                Request { domain: "edge".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
            assert_eq!(request, expected);
        }
    }
}
