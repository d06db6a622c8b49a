//! `POST /json`: `ShouldRateLimit` in the JSON mapping of protobuf, as the reference server has it.
//!
//! The response has the status 200 for OK and 429 for OVER_LIMIT, and the headers for the client that the message lists.

use super::json_texts::{self, Strings};
use crate::api::{
    pb::{self, service::RateLimitRequest},
    refusals::refuse,
    rls::{CallError, CallResponse, Purpose, WINDOWS_HEADER, call},
};
use axum::{
    body::Bytes,
    http::{
        HeaderMap, HeaderName, HeaderValue, StatusCode,
        header::{CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    },
    response::{IntoResponse, Response},
};
use pb::service::rate_limit_response::Code;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::{sync::LazyLock, time::Duration};
use tidegate_service::{RateLimitService, Refusal};

/// Headers that describe a body. A rule's are left out: the response has another body than the rule declares for denials.
const OF_BODY: [HeaderName; 5] =
    [CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING];

/// The descriptors of the messages.
struct Descriptors {
    request: MessageDescriptor,
    response: MessageDescriptor,
}

static DESCRIPTORS: LazyLock<Descriptors> = LazyLock::new(|| {
    let pool =
        DescriptorPool::decode(pb::DESCRIPTORS).expect("the descriptors were compiled with this crate");
    let message = |name| {
        let found = pool.get_message_by_name(&format!("envoy.service.ratelimit.v3.{name}"));
        found.expect("the descriptors were compiled with this crate")
    };
    Descriptors { request: message("RateLimitRequest"), response: message("RateLimitResponse") }
});

/// Decides the request in `body`. Where a rule queues it, waits for at most `wait_max`.
pub(super) async fn should_rate_limit(
    service: &RateLimitService,
    headers: &HeaderMap,
    peer: &str,
    wait_max: Duration,
    body: &Bytes,
) -> Response {
    let request = match decode(body) {
        Ok(request) => request,
        Err(error) => {
            refuse(service, Refusal::UndecodableMessage, peer, &error);
            return refusal(StatusCode::BAD_REQUEST, &error);
        }
    };
    service.meters().count_json_call();
    match call(service, headers, peer, Purpose::Limit, wait_max, &request).await {
        Ok(response) => encode(response),
        Err(error @ CallError::NotReady(_)) => refusal(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
        Err(error) => refusal(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}

/// The message, or why the text is none.
fn decode(body: &[u8]) -> Result<RateLimitRequest, String> {
    let malformed = |error: serde_json::Error| {
        format!("the body is not a RateLimitRequest in the JSON mapping of protobuf: {error}")
    };
    let read = |body: &[u8]| {
        let mut json = serde_json::Deserializer::from_slice(body);
        let message = DynamicMessage::deserialize(DESCRIPTORS.request.clone(), &mut json)?;
        json.end().map(|()| message)
    };
    let (message, strings) = json_texts::read(body, read).map_err(malformed)?;
    let mut message: RateLimitRequest = message.transcode_to().map_err(|error| error.to_string())?;
    if let Strings::AsTexts = strings {
        let domain = String::from_utf8(strings.bytes(&message.domain));
        message.domain = domain.map_err(|error| format!("domain is not UTF-8: {error}"))?;
        for entry in message.descriptors.iter_mut().flat_map(|descriptor| &mut descriptor.entries) {
            for text in [&mut entry.key, &mut entry.value] {
                *text = strings.bytes(&String::from_utf8_lossy(text));
            }
        }
    }
    Ok(message)
}

/// The message of a body, encoded as protobuf, and its text in JSON; none if the body is refused, or the message has no JSON.
#[cfg(feature = "fuzzing")]
pub(super) fn reencoded(body: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    use prost::Message as _;
    let message = decode(body).ok()?;
    let mut dynamic = DynamicMessage::new(DESCRIPTORS.request.clone());
    // Keys and values of other bytes than UTF-8 have no JSON.
    dynamic.transcode_from(&message).ok()?;
    Some((message.encode_to_vec(), serde_json::to_vec(&dynamic).expect("texts and numbers are JSON")))
}

fn encode(CallResponse { message, windows, on_reset, hold: _ }: CallResponse) -> Response {
    let status = match message.overall_code() {
        Code::Ok => StatusCode::OK,
        Code::OverLimit => StatusCode::TOO_MANY_REQUESTS,
        Code::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let mut dynamic = DynamicMessage::new(DESCRIPTORS.response.clone());
    let text = match dynamic.transcode_from(&message).map(|()| serde_json::to_vec(&dynamic)) {
        Ok(Ok(text)) => text,
        Ok(Err(error)) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        Err(error) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    };
    let mut response = (status, [(CONTENT_TYPE, "application/json")], text).into_response();
    for header in &message.response_headers_to_add {
        // The names and values were built as headers of HTTP.
        let (Ok(name), Ok(value)) = (header.key.parse::<HeaderName>(), header.value.parse::<HeaderValue>())
        else {
            continue;
        };
        if !OF_BODY.contains(&name) {
            response.headers_mut().append(name, value);
        }
    }
    if let Some(windows) = windows {
        response.headers_mut().insert(WINDOWS_HEADER, windows);
    }
    // The connection finds it there.
    if let Some(on_reset) = on_reset {
        response.extensions_mut().insert(on_reset);
    }
    response
}

fn refusal(status: StatusCode, reason: &str) -> Response {
    (status, format!("{reason}\n")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pb::service::RateLimitResponse;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    };
    use tidegate_core::{
        clock::ManualClock,
        limit::{RequestLimits, Timestamp},
    };
    use tidegate_http2::OnReset;

    #[test]
    fn both_spellings_of_fields_and_numbers_as_texts_are_decoded() {
        let camel = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"hitsAddend":"3"}],"hitsAddend":2}"#;
        let snake = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}],"hits_addend":3}],"hits_addend":2}"#;
        let request = decode(camel.as_bytes()).unwrap();
        assert_eq!(request, decode(snake.as_bytes()).unwrap());
        assert_eq!((request.hits_addend, request.descriptors[0].hits_addend), (2, Some(3)));
        let unit = r#"{"descriptors":[{"limit":{"requestsPerUnit":1,"unit":"HOUR"}}]}"#;
        assert_eq!(decode(unit.as_bytes()).unwrap().descriptors[0].limit.as_ref().unwrap().unit, 3);
    }

    #[test]
    fn malformed_texts_are_refused_with_their_place() {
        for (text, reason) in [
            ("", "EOF while parsing"),
            ("[]", "invalid type: sequence"),
            (r#"{"domain":1}"#, "invalid type: integer"),
            (r#"{"domian":"d"}"#, "domian"),
            (r#"{"hitsAddend":4294967296}"#, "line 1 column"),
            (r#"{"descriptors":[{"limit":{"unit":"FORTNIGHT"}}]}"#, "FORTNIGHT"),
            ("{} {}", "trailing characters"),
            ("{\"domain\":\"\u{0}\"}", "control character"),
        ] {
            let error = decode(text.as_bytes()).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
        let deep = "[".repeat(100_000);
        assert!(decode(format!("{{\"descriptors\":{deep}").as_bytes()).is_err());
        let error = decode(b"{\"domain\":\"\xff\"}").unwrap_err();
        assert!(error.starts_with("domain is not UTF-8"), "{error}");
    }

    #[test]
    fn keys_and_values_of_any_bytes_are_decoded() {
        let body = b"{\"domain\":\"d\",\"descriptors\":[{\"entries\":[{\"key\":\"k\",\"value\":\"a\xff\\\\xff\"}]}]}";
        let request = decode(body).unwrap();
        assert_eq!(request.domain, "d");
        assert_eq!(request.descriptors[0].entries[0].value, b"a\xff\\xff");
    }

    #[tokio::test]
    async fn a_request_is_unavailable_while_counters_are_restored() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(0)));
        let service = RateLimitService::restoring(clock, RequestLimits::default());
        service.meters().start();
        let body = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k"}]}]}"#;
        let headers = HeaderMap::new();
        let response =
            should_rate_limit(&service, &headers, "", Duration::MAX, &Bytes::from_static(body)).await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(service.meters().refusals.sum(Refusal::NotReady), 1);
    }

    /// The hook was dropped, and slots of a caller that had gone were held until `max_hold`.
    #[test]
    fn the_response_to_an_admission_with_slots_has_the_hook_that_ends_them() {
        let has_run = Arc::<AtomicBool>::default();
        let of_hook = Arc::clone(&has_run);
        let on_reset = Some(OnReset::new(move || of_hook.store(true, Relaxed)));
        let message = RateLimitResponse { overall_code: Code::Ok.into(), ..RateLimitResponse::default() };
        let response = encode(CallResponse { message, windows: None, on_reset, hold: None });
        response.extensions().get::<OnReset>().expect("a hook").run();
        assert!(has_run.load(Relaxed));
    }
}
