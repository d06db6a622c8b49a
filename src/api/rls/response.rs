//! `RateLimitResponse` with additions: body, headers and metadata.

use super::encode::{self, Precision};
use crate::api::{
    pb::{core::HeaderValue, service::RateLimitResponse},
    protobuf_struct::to_struct,
};
use smol_str::SmolStr;
use tidegate_core::limit::{Decision, Request};
use tidegate_service::{Additions, RateLimitService};

/// The complete response to a decision.
pub(in crate::api) fn response(
    service: &RateLimitService,
    request: &Request<'_>,
    decision: &Decision<'_>,
    precision: Precision,
) -> RateLimitResponse {
    let mut message = encode::response(decision, precision);
    if service.has_additions(decision) {
        add(service.additions(request, decision), &mut message);
    }
    message
}

fn add(additions: Additions<'_>, message: &mut RateLimitResponse) {
    message.set_overall_code(encode::code(additions.code));
    message.raw_body = additions.body.as_bytes().to_vec();
    message.response_headers_to_add = additions.response_headers.into_iter().map(header).collect();
    message.request_headers_to_add = additions.request_headers.into_iter().map(header).collect();
    message.dynamic_metadata = additions.dynamic_metadata.map(to_struct);
}

fn header((name, value): (SmolStr, String)) -> HeaderValue {
    // Envoy reads `value` alone.
    HeaderValue { key: name.into(), value, raw_value: Vec::new() }
}
