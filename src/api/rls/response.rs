//! `RateLimitResponse` with additions: body, headers and metadata.

use super::encode::{self, Precision};
use crate::{
    api::pb::{core::HeaderValue, service::RateLimitResponse},
    limit::{Decision, Request},
    service::{Additions, RateLimitService},
};
use http::HeaderName;
use prost_types::{ListValue, Struct, value::Kind};
use serde_json::{Map, Value};

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

fn header((name, value): (HeaderName, String)) -> HeaderValue {
    // Envoy reads `value` alone.
    HeaderValue { key: name.as_str().to_owned(), value, raw_value: Vec::new() }
}

fn to_struct(object: Map<String, Value>) -> Struct {
    Struct { fields: object.into_iter().map(|(key, value)| (key, to_value(value))).collect() }
}

fn to_value(value: Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(boolean) => Kind::BoolValue(boolean),
        // The JSON mapping of protobuf has doubles only.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(to_value).collect() })
        }
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    prost_types::Value { kind: Some(kind) }
}
