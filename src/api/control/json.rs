//! The control API as JSON over HTTP: the JSON mapping of protobuf.

use super::{
    caller::{ControlApi, Recheck},
    error::Error,
    for_each_method,
};
use crate::api::pb::{self, control as messages};
use bytes::Bytes;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, FieldDescriptor, MessageDescriptor};
use serde::Serialize as _;
use std::sync::LazyLock;
use tidegate_operations::control::{Caller, Role};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::Code;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(pb::CONTROL_DESCRIPTORS).expect("the descriptors were compiled with this crate")
});

/// Calls the unary method of that name, for which the caller was admitted; returns the JSON text of its response.
pub(in crate::api) async fn call(
    api: &ControlApi,
    caller: &Caller,
    method: &str,
    body: &Bytes,
) -> Result<Vec<u8>, Error> {
    macro_rules! dispatch {
        ($($name:ident $handler:ident $request:ident $response:ident $role:ident;)*) => {
            match method {
                $(stringify!($name) => {
                    let request = decode::<messages::$request>(stringify!($request), body)?;
                    let text = (Role::$role == Role::Operate).then(|| to_json(stringify!($request), &request));
                    let (of_call, of) = (api.clone(), caller.clone());
                    let call = async move { of_call.$handler(&of, request).await };
                    let response = api.perform(caller, stringify!($name), text, call).await?;
                    Ok(to_json(stringify!($response), &response))
                })*
                _ => Err(Error::not_found(format!("there is no method {method:?}"))),
            }
        };
    }
    for_each_method!(dispatch)
}

/// The decisions from now on, each the JSON text of a response of `Tail` and a line feed, for a caller who was admitted.
pub(in crate::api) fn tail(
    api: &ControlApi,
    recheck: Recheck,
    body: &[u8],
) -> Result<impl Stream<Item = Vec<u8>> + Send + use<>, Error> {
    let responses = api.tail(recheck, decode("TailRequest", body)?)?;
    Ok(ReceiverStream::new(responses).map(|response| {
        let mut line = to_json("TailResponse", &response);
        line.push(b'\n');
        line
    }))
}

fn descriptor(message: &str) -> MessageDescriptor {
    let found = POOL.get_message_by_name(&format!("tidegate.v1.{message}"));
    found.expect("the descriptors were compiled with this crate")
}

/// The message of that name in the body; an empty body is an empty message.
pub(super) fn decode<M: Message + Default>(name: &str, body: &[u8]) -> Result<M, Error> {
    let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
    let malformed = |error: &dyn std::fmt::Display| {
        Error::new(
            Code::InvalidArgument,
            format!("the body is not a {name} in the JSON mapping of protobuf: {error}"),
        )
    };
    let mut json = serde_json::Deserializer::from_slice(body);
    let message =
        DynamicMessage::deserialize(descriptor(name), &mut json).map_err(|error| malformed(&error))?;
    json.end().map_err(|error| malformed(&error))?;
    message.transcode_to().map_err(|error| malformed(&error))
}

/// The JSON text of a message of that name, in which lists of the message itself are there also when they are empty: for programs that read the
/// output of commands.
pub(crate) fn to_json_with_lists(name: &str, message: &impl Message) -> Vec<u8> {
    let mut text = to_json(name, message);
    let present: serde_json::Value = serde_json::from_slice(&text).expect("it was just written");
    for list in descriptor(name).fields().filter(FieldDescriptor::is_list) {
        if present.get(list.json_name()).is_none() {
            text.pop();
            let separator = if text.len() > 1 { "," } else { "" };
            text.extend_from_slice(format!("{separator}\"{}\":[]}}", list.json_name()).as_bytes());
        }
    }
    text
}

/// The JSON text of a message of that name.
pub(crate) fn to_json(name: &str, message: &impl Message) -> Vec<u8> {
    let mut dynamic = DynamicMessage::new(descriptor(name));
    dynamic.transcode_from(message).expect("the descriptor is that of the message");
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::new(&mut text);
    dynamic.serialize(&mut serializer).expect("texts and numbers are JSON, and memory takes all bytes");
    text
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
        let empty = to_json_with_lists("ListBlocksResponse", &messages::ListBlocksResponse::default());
        assert_eq!(String::from_utf8(empty).unwrap(), r#"{"blocks":[]}"#);
        let keys = messages::TopKeysResponse { total: 2, ..Default::default() };
        let keys = to_json_with_lists("TopKeysResponse", &keys);
        assert_eq!(String::from_utf8(keys).unwrap(), r#"{"total":"2","keys":[]}"#);
    }

    #[test]
    fn bodies_are_read_in_both_spellings_and_errors_have_a_place() {
        let read = |body: &str| decode::<messages::ListRulesRequest>("ListRulesRequest", body.as_bytes());
        for body in [r#"{"pageSize":7}"#, r#"{"page_size":"7"}"#] {
            assert_eq!(read(body).unwrap().page_size, 7, "{body}");
        }
        assert_eq!(read("").unwrap(), messages::ListRulesRequest::default());
        for body in ["[]", "{}{}", r#"{"pageSize":-1}"#, r#"{"no":1}"#, "{\"domain\":\"\u{0}\"}"] {
            assert_eq!(read(body).unwrap_err().code(), Code::InvalidArgument, "{body}");
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
        let text = String::from_utf8(to_json("StatusResponse", &status)).unwrap();
        assert_eq!(
            text,
            r#"{"started":"2023-11-14T22:13:20Z","decisions":{"admitted":"1152921504606846976"}}"#
        );
    }
}
