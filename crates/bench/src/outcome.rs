//! The outcome of a call, from the response on its stream.

use crate::ticket::ReceivedTicket;
use prost::Message as _;
use prost_types::Struct;
use std::fmt;
use tidegate_http2::{
    client::{Response, StreamEnd},
    error_name,
    grpc::{PREFIX_BYTES, status_name},
};

/// Longer than any rate limit response should be.
const ANSWER_MAX: usize = 1 << 20;

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Ok,
    /// Denied.
    OverLimit,
    /// Not decided.
    Failed(Failure),
}

/// A call without a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Failure {
    /// The call ended with this gRPC status, which is not OK.
    Status(u32),
    /// The server responded with this HTTP status and no gRPC status.
    Http(u16),
    /// The server reset the stream with this HTTP/2 error code.
    Reset(u32),
    /// The response has neither a gRPC status nor an HTTP error status.
    NoStatus,
    /// The status is OK, but the message has neither OK nor OVER_LIMIT.
    NoVerdict,
    /// The connection ended before the response.
    ConnectionLost,
    /// The run ended before the response.
    NoAnswer,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Status(code) => match status_name(code) {
                Some(name) => write!(f, "grpc-status {code} {name}"),
                None => write!(f, "grpc-status {code}"),
            },
            Self::Http(status) => write!(f, "HTTP status {status}"),
            Self::Reset(code) => write!(f, "stream reset: {}", error_name(code)),
            Self::NoStatus => f.write_str("no grpc-status"),
            Self::NoVerdict => f.write_str("no verdict in the answer"),
            Self::ConnectionLost => f.write_str("connection lost"),
            Self::NoAnswer => f.write_str("no answer"),
        }
    }
}

/// The message of a response. The decoder skips all other fields except the metadata, which stay encoded.
#[derive(Clone, PartialEq, prost::Message)]
struct ResponseMessage {
    #[prost(int32, tag = "1")]
    overall_code: i32,
    #[prost(bytes = "vec", tag = "6")]
    metadata: Vec<u8>,
}

/// The received part of the response to one call.
#[derive(Default)]
pub(crate) struct CallResponse {
    http_status: Option<u16>,
    grpc_status: Option<u32>,
    message: Option<ResponseMessage>,
    /// Received bytes of a message that spans several reads.
    partial: Vec<u8>,
    is_malformed: bool,
}

impl Response for CallResponse {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let number = || str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        match name {
            b":status" => self.http_status = number().and_then(|status| u16::try_from(status).ok()),
            // By the gRPC protocol, a status that is not a number is UNKNOWN, and never OK.
            b"grpc-status" => self.grpc_status = Some(number().unwrap_or(2)),
            _ => {}
        }
    }

    fn data(&mut self, piece: &[u8]) {
        if piece.is_empty() || self.is_malformed {
            return;
        }
        if self.partial.is_empty() && self.message.is_none() && is_whole(piece) {
            return self.message(piece);
        }
        self.partial.extend_from_slice(piece);
        self.is_malformed = self.message.is_some() || self.partial.len() > ANSWER_MAX;
        if !self.is_malformed && is_whole(&self.partial) {
            let message = std::mem::take(&mut self.partial);
            self.message(&message);
        }
    }
}

impl CallResponse {
    /// Reads a message with its prefix. Compressed messages are malformed, as the client sends no grpc-accept-encoding.
    fn message(&mut self, message: &[u8]) {
        match (message[0], ResponseMessage::decode(&message[PREFIX_BYTES..])) {
            (0, Ok(message)) => self.message = Some(message),
            _ => self.is_malformed = true,
        }
    }

    /// The ticket of an admitted request.
    pub(crate) fn ticket(&self) -> Option<ReceivedTicket> {
        let metadata = &self.message.as_ref()?.metadata;
        if metadata.is_empty() || self.outcome() != Outcome::Ok {
            return None;
        }
        ReceivedTicket::of(&Struct::decode(&metadata[..]).ok()?)
    }

    /// The outcome, once the stream has ended.
    fn outcome(&self) -> Outcome {
        match (self.grpc_status, self.http_status) {
            (Some(0), _) => match self.message.as_ref().map(|message| message.overall_code) {
                Some(1) if !self.is_malformed => Outcome::Ok,
                Some(2) if !self.is_malformed => Outcome::OverLimit,
                _ => Outcome::Failed(Failure::NoVerdict),
            },
            (Some(code), _) => Outcome::Failed(Failure::Status(code)),
            (None, Some(status)) if status != 200 => Outcome::Failed(Failure::Http(status)),
            (None, _) => Outcome::Failed(Failure::NoStatus),
        }
    }
}

impl From<StreamEnd<CallResponse>> for Outcome {
    fn from(end: StreamEnd<CallResponse>) -> Self {
        match end {
            StreamEnd::Complete(response) => response.outcome(),
            StreamEnd::Reset(code) => Self::Failed(Failure::Reset(code)),
            StreamEnd::Unprocessed => Self::Failed(Failure::ConnectionLost),
        }
    }
}

fn is_whole(message: &[u8]) -> bool {
    message.split_first_chunk::<PREFIX_BYTES>().is_some_and(|(&[_, l0, l1, l2, l3], rest)| {
        rest.len() == u32::from_be_bytes([l0, l1, l2, l3]) as usize
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A response of OK with the status of its only descriptor.
    const OK: &[u8] = b"\0\0\0\0\x06\x08\x01\x12\x02\x08\x01";
    const OVER: &[u8] = b"\0\0\0\0\x02\x08\x02";

    fn outcome(fields: &[(&str, &str)], body: &[&[u8]]) -> Outcome {
        let mut answer = CallResponse::default();
        for (name, value) in fields {
            answer.field(name.as_bytes(), value.as_bytes());
        }
        for piece in body {
            answer.data(piece);
        }
        answer.outcome()
    }

    #[test]
    fn only_a_zero_status_and_a_verdict_make_an_answer() {
        let fine = [(":status", "200"), ("grpc-status", "0")];
        assert_eq!(outcome(&fine, &[OK]), Outcome::Ok);
        assert_eq!(outcome(&fine, &[OVER]), Outcome::OverLimit);
        for body in [&[][..], &[&b"\0\0\0\0\0"[..]], &[OK, OK], &[&OK[..8]], &[b"\x01\0\0\0\x02\x08\x01"]] {
            assert_eq!(outcome(&fine, body), Outcome::Failed(Failure::NoVerdict), "{body:x?}");
        }
        for (status, code) in [("14", 14), ("00x", 2), ("", 2), ("99", 99)] {
            let fields = [(":status", "200"), ("grpc-status", status)];
            assert_eq!(outcome(&fields, &[OK]), Outcome::Failed(Failure::Status(code)), "{status:?}");
        }
        assert_eq!(outcome(&[(":status", "200")], &[OK]), Outcome::Failed(Failure::NoStatus));
        assert_eq!(outcome(&[(":status", "404")], &[]), Outcome::Failed(Failure::Http(404)));
    }

    #[test]
    fn a_message_in_pieces_is_the_same_message() {
        let fine = [(":status", "200"), ("grpc-status", "0")];
        for cut in 0..=OK.len() {
            assert_eq!(outcome(&fine, &[&OK[..cut], &OK[cut..]]), Outcome::Ok, "cut at {cut}");
        }
    }

    #[test]
    fn failures_are_shown_by_name() {
        assert_eq!(Failure::Status(14).to_string(), "grpc-status 14 UNAVAILABLE");
        assert_eq!(Failure::Status(77).to_string(), "grpc-status 77");
        assert_eq!(Failure::Reset(11).to_string(), "stream reset: ENHANCE_YOUR_CALM");
    }
}
