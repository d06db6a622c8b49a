//! What an answer says besides its verdict and its statuses, for people and for programs.

use crate::api::pb::{core::HeaderValue, service::RateLimitResponse};
use prost_types::{Struct, value::Kind};
use serde_json::{Map, Value};

/// One line for each thing said.
pub(super) fn lines(answer: &RateLimitResponse) -> Vec<String> {
    let header = |towards: &str, header: &HeaderValue| format!("{towards} {}: {}", header.key, header.value);
    let request = answer.request_headers_to_add.iter().map(|added| header("request header", added));
    let response = answer.response_headers_to_add.iter().map(|added| header("response header", added));
    let body = body(answer).map(|body| format!("body {}", body.trim_end()));
    let metadata = answer.dynamic_metadata.as_ref().map(|told| format!("metadata {}", object(told)));
    request.chain(response).chain(body).chain(metadata).collect()
}

/// The keys that are to go with the answer's others; only those of what is said.
pub(super) fn to_json(answer: &RateLimitResponse) -> Map<String, Value> {
    let headers = |headers: &[HeaderValue]| {
        let pairs = headers.iter().map(|header| (header.key.clone(), header.value.clone().into()));
        (!headers.is_empty()).then(|| Value::Object(pairs.collect()))
    };
    let said = [
        ("request_headers", headers(&answer.request_headers_to_add)),
        ("response_headers", headers(&answer.response_headers_to_add)),
        ("body", body(answer).map(Value::from)),
        ("metadata", answer.dynamic_metadata.as_ref().map(object)),
    ];
    said.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn body(answer: &RateLimitResponse) -> Option<String> {
    (!answer.raw_body.is_empty()).then(|| String::from_utf8_lossy(&answer.raw_body).into_owned())
}

fn object(told: &Struct) -> Value {
    Value::Object(told.fields.iter().map(|(key, field)| (key.clone(), value(field))).collect())
}

fn value(told: &prost_types::Value) -> Value {
    match &told.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(boolean)) => (*boolean).into(),
        Some(Kind::StructValue(told)) => object(told),
        Some(Kind::ListValue(list)) => list.values.iter().map(value).collect(),
    }
}
