//! The control API as JSON over HTTP: the JSON mapping of protobuf.

use super::{
    caller::{Admitted, Recheck},
    error::Error,
    for_each_method,
    method::Named,
};
use crate::api::pb::{self, control as messages};
use bytes::Bytes;
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, ReflectMessage as _, Value,
};
use serde::Serialize as _;
use std::{fmt, sync::LazyLock};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::Code;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(pb::CONTROL_DESCRIPTORS).expect("the descriptors were compiled with this crate")
});

/// Calls the unary method of that name; returns the JSON text of its response.
pub(in crate::api) async fn call(admitted: &Admitted, method: &str, body: &Bytes) -> Result<Vec<u8>, Error> {
    macro_rules! dispatch {
        ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
            match method {
                $(stringify!($name) => {
                    let response = admitted.perform(decode::<messages::$request>(body)?).await?;
                    Ok(to_json(&response))
                })*
                _ => Err(Error::not_found(format!("there is no method {method:?}"))),
            }
        };
    }
    for_each_method!(dispatch)
}

/// The decisions from now on, each the JSON text of a response of `Tail` and a line feed, for a caller who was admitted.
pub(in crate::api) fn tail(
    admitted: &Admitted,
    recheck: Recheck,
    body: &[u8],
) -> Result<impl Stream<Item = Vec<u8>> + Send + use<>, Error> {
    let responses = admitted.tail(recheck, decode(body)?)?;
    Ok(ReceiverStream::new(responses).map(|response| {
        let mut line = to_json(&response);
        line.push(b'\n');
        line
    }))
}

fn descriptor<M: Named>() -> MessageDescriptor {
    let found = POOL.get_message_by_name(&format!("tidegate.v1.{}", M::NAME));
    found.expect("the descriptors were compiled with this crate")
}

/// The message in the body; an empty body is an empty message.
pub(super) fn decode<M: Named + Default>(body: &[u8]) -> Result<M, Error> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let malformed = |error: &dyn fmt::Display| {
        let text = format!("the body is not a {} in the JSON mapping of protobuf: {error}", M::NAME);
        match serde_json::from_slice(body).ok().and_then(|body| malformed_field(&descriptor::<M>(), &body)) {
            Some(field) => Error::invalid(field, text),
            None => Error::new(Code::InvalidArgument, text),
        }
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let message =
        DynamicMessage::deserialize(descriptor::<M>(), &mut json).map_err(|error| malformed(&error))?;
    json.end().map_err(|error| malformed(&error))?;
    message.transcode_to().map_err(|error| malformed(&error))
}

/// Path of the first field with a malformed value in a JSON object; none if the object is wrong in another way.
fn malformed_field(of: &MessageDescriptor, object: &serde_json::Value) -> Option<String> {
    object.as_object()?.iter().find_map(|(key, value)| {
        let field = of.get_field_by_json_name(key).or_else(|| of.get_field_by_name(key))?;
        let is_malformed = |value: &serde_json::Value| {
            let alone = serde_json::json!({ key: value });
            DynamicMessage::deserialize(of.clone(), alone).is_err()
        };
        if !is_malformed(value) {
            return None;
        }
        let (mut path, mut value) = (field.name().to_owned(), value);
        if let (true, Some(items)) = (field.is_list(), value.as_array()) {
            let at = items.iter().position(|item| is_malformed(&serde_json::json!([item])))?;
            (path, value) = (format!("{path}[{at}]"), &items[at]);
        }
        match field.kind() {
            Kind::Message(of) => malformed_field(&of, value).map(|field| format!("{path}.{field}")),
            _ => None,
        }
        .or(Some(path))
    })
}

/// A time that the JSON mapping of protobuf cannot express.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {range}")]
pub(crate) struct OutOfRange {
    /// The path of its field.
    field: String,
    /// The values that the field accepts.
    range: &'static str,
}

impl From<OutOfRange> for Error {
    fn from(OutOfRange { field, range }: OutOfRange) -> Self {
        Self::invalid(field, range)
    }
}

/// The years 1 to 9999.
const TIMESTAMP_SECONDS: std::ops::RangeInclusive<i64> = -62_135_596_800..=253_402_300_799;

/// The first time in a message that the JSON mapping cannot express.
fn out_of_range(message: &DynamicMessage) -> Option<OutOfRange> {
    let at = |field: String, value: &Value| {
        let of = value.as_message()?;
        let [seconds, nanos] = ["seconds", "nanos"].map(|name| of.get_field_by_name(name));
        let range = match (of.descriptor().full_name(), seconds.as_deref(), nanos.as_deref()) {
            ("google.protobuf.Duration", Some(Value::I64(seconds)), Some(Value::I32(nanos))) => {
                let is_in_range = seconds.unsigned_abs() <= crate::api::time::DURATION_SECONDS_MAX
                    && nanos.unsigned_abs() < 1_000_000_000
                    && seconds.signum() * i64::from(nanos.signum()) >= 0;
                (!is_in_range)
                    .then_some("is not a time of at most 315576000000 s, with nanos below 1000000000")
            }
            ("google.protobuf.Timestamp", Some(Value::I64(seconds)), Some(Value::I32(nanos))) => {
                let is_in_range = TIMESTAMP_SECONDS.contains(seconds) && (0..1_000_000_000).contains(nanos);
                (!is_in_range).then_some("is not in the years 1 to 9999, with nanos from 0 to 999999999")
            }
            _ => {
                let inner = out_of_range(of)?;
                return Some(OutOfRange { field: format!("{field}.{}", inner.field), ..inner });
            }
        };
        range.map(|range| OutOfRange { field, range })
    };
    message.fields().find_map(|(field, value)| match value.as_list() {
        Some(items) => (0..)
            .zip(items)
            .find_map(|(index, item): (usize, _)| at(format!("{}[{index}]", field.name()), item)),
        None => at(field.name().to_owned(), value),
    })
}

/// Returns the JSON text of a message for programs that read the output of commands: lists of the message itself are present even when
/// empty.
pub(crate) fn to_json_with_lists<M: Named>(message: &M) -> Result<Vec<u8>, OutOfRange> {
    let mut text = try_json(message)?;
    let present: serde_json::Value = serde_json::from_slice(&text).expect("it was just written");
    for list in descriptor::<M>().fields().filter(FieldDescriptor::is_list) {
        if present.get(list.json_name()).is_none() {
            text.pop();
            let separator = if text.len() > 1 { "," } else { "" };
            text.extend_from_slice(format!("{separator}\"{}\":[]}}", list.json_name()).as_bytes());
        }
    }
    Ok(text)
}

/// The JSON text of a message that this server made: its times are in range.
pub(in crate::api) fn to_json(message: &impl Named) -> Vec<u8> {
    try_json(message).expect("the conversions of this server make times within the JSON mapping")
}

/// The JSON text of a message that another program made.
pub(crate) fn try_json<M: Named>(message: &M) -> Result<Vec<u8>, OutOfRange> {
    let mut dynamic = DynamicMessage::new(descriptor::<M>());
    dynamic.transcode_from(message).expect("the descriptor is that of the message");
    if let Some(error) = out_of_range(&dynamic) {
        return Err(error);
    }
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut text);
    dynamic
        .serialize(&mut serializer)
        .expect("times are in range, the rest is JSON, and memory takes all bytes");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_of_the_service_has_a_handler_and_a_role() {
        let service = POOL.get_service_by_name("tidegate.v1.Control").expect("declared");
        let without: Vec<String> = service
            .methods()
            .filter(|method| super::super::role_of(method.name()).is_none())
            .map(|method| method.name().to_owned())
            .collect();
        assert_eq!(without, [""; 0]);
    }

    #[test]
    fn empty_lists_are_there_where_programs_read_the_output_of_commands() {
        let empty = to_json_with_lists(&messages::ListBlocksResponse::default());
        assert_eq!(String::from_utf8(empty.unwrap()).unwrap(), r#"{"blocks":[]}"#);
        let keys = messages::TopKeysResponse { total: 2, ..Default::default() };
        let keys = to_json_with_lists(&keys);
        assert_eq!(String::from_utf8(keys.unwrap()).unwrap(), r#"{"total":"2","keys":[]}"#);
    }

    #[test]
    fn bodies_are_read_in_both_spellings_and_errors_have_a_place() {
        let read = |body: &str| decode::<messages::ListRulesRequest>(body.as_bytes());
        for body in [r#"{"pageSize":7}"#, r#"{"page_size":"7"}"#] {
            assert_eq!(read(body).unwrap().page_size, 7, "{body}");
        }
        assert_eq!(read("").unwrap(), messages::ListRulesRequest::default());
        for body in ["[]", "{}{}", r#"{"pageSize":-1}"#, r#"{"no":1}"#, "{\"domain\":\"\u{0}\"}"] {
            assert_eq!(read(body).unwrap_err().code_name(), "INVALID_ARGUMENT", "{body}");
        }
    }

    #[test]
    fn times_are_texts_and_large_numbers_too() {
        let counts = messages::Counts { admitted: 1 << 60, denied: 0, shadow_denied: 0 };
        let started = prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 };
        let status = messages::StatusResponse {
            decisions: Some(counts),
            started: Some(started),
            ..messages::StatusResponse::default()
        };
        let text = String::from_utf8(to_json(&status)).unwrap();
        assert_eq!(
            text,
            r#"{"started":"2023-11-14T22:13:20Z","decisions":{"admitted":"1152921504606846976"}}"#
        );
    }
}
