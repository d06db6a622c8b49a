//! Doors for the fuzzers: one message, read both ways.

use super::{decode, lean, pb::service};
use crate::limit::RequestLimits;
use prost::Message as _;

/// The request of a message as the lean way reads it; none where it leaves the message to the other.
pub fn request_leanly(message: &[u8]) -> Option<String> {
    lean::request(message, &RequestLimits::default()).map(|request| format!("{request:?}"))
}

/// The request of a message as prost reads it; none where it is refused.
pub fn request_by_prost(message: &[u8]) -> Option<String> {
    let message = service::RateLimitRequest::decode(message).ok()?;
    let request = decode::request(&message, &RequestLimits::default()).ok()?;
    Some(format!("{request:?}"))
}
