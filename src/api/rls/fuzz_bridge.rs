//! Fuzz bridge: one message, decoded by the fast path and by prost.

use super::{decode, fast_path};
use crate::api::pb::service;
use prost::Message as _;
use tidegate_core::limit::RequestLimits;

/// The request of a message as the fast path decodes it; none where it falls back to prost.
pub fn request_by_fast_path(message: &[u8]) -> Option<String> {
    fast_path::request(message, &RequestLimits::default()).map(|request| format!("{request:?}"))
}

/// The request of a message as prost decodes it; none where it is refused.
pub fn request_by_prost(message: &[u8]) -> Option<String> {
    let message = service::RateLimitRequest::decode(message).ok()?;
    let limits = RequestLimits::default();
    let texts = decode::EntryTexts::of(&message, &limits);
    let request = decode::request(&message, &texts, &limits).ok()?;
    Some(format!("{request:?}"))
}
