//! Parts of a response beyond its verdict and statuses: headers, body and metadata, as lines or as JSON.

use crate::api::{
    pb::{core::HeaderValue, service::RateLimitResponse},
    protobuf_struct::to_object,
};
use serde_json::{Map, Value};

/// One line per part.
pub(in crate::cli) fn lines(response: &RateLimitResponse) -> Vec<String> {
    let header =
        |direction: &str, header: &HeaderValue| format!("{direction} {}: {}", header.key, header.value);
    let to_request = response.request_headers_to_add.iter().map(|added| header("request header", added));
    let to_client = response.response_headers_to_add.iter().map(|added| header("response header", added));
    let body = body(response).map(|body| format!("body {}", body.trim_end()));
    let metadata = response
        .dynamic_metadata
        .as_ref()
        .map(|fields| format!("metadata {}", Value::Object(to_object(fields))));
    to_request.chain(to_client).chain(body).chain(metadata).collect()
}

/// The parts that are present, as keys of a JSON object.
pub(in crate::cli) fn to_json(response: &RateLimitResponse) -> Map<String, Value> {
    let headers = |headers: &[HeaderValue]| {
        let pairs = headers.iter().map(|header| (header.key.clone(), header.value.clone().into()));
        (!headers.is_empty()).then(|| Value::Object(pairs.collect()))
    };
    let parts = [
        ("request_headers", headers(&response.request_headers_to_add)),
        ("response_headers", headers(&response.response_headers_to_add)),
        ("body", body(response).map(Value::from)),
        ("metadata", response.dynamic_metadata.as_ref().map(to_object).map(Value::Object)),
    ];
    parts.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

fn body(response: &RateLimitResponse) -> Option<String> {
    (!response.raw_body.is_empty()).then(|| String::from_utf8_lossy(&response.raw_body).into_owned())
}
