//! `on_deny` of the rules: a denial in their own words, or a request that is let through with a mark.

use crate::api::pb::{
    core::HeaderValue,
    service::{RateLimitResponse, rate_limit_response::Code},
};
use crate::limit::{Denial, Header};

/// Tells the denial as the rules want it.
pub(super) fn tell(denial: &Denial<'_>, message: &mut RateLimitResponse) {
    match denial {
        Denial::Told(None) => {}
        Denial::Told(Some(reply)) => {
            message.raw_body = reply.body.as_bytes().to_vec();
            message.response_headers_to_add.extend(reply.headers.iter().map(to_wire));
        }
        Denial::Marked(headers) => {
            message.set_overall_code(Code::Ok);
            message.request_headers_to_add.extend(headers.iter().copied().map(to_wire));
        }
    }
}

fn to_wire(Header { name, value }: &Header) -> HeaderValue {
    // Envoy reads `value` alone. The header's value is ASCII, so that nothing is lost.
    let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
    HeaderValue { key: name.as_str().to_owned(), value, raw_value: Vec::new() }
}
