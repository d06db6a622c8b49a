//! Reads a message from its protobuf bytes.

use crate::protobuf::{Wire, fields, numbers};
use std::time::Duration;
use tidegate_envoy_config::{Kind, Message, Node, Problems, Value};

/// Reads a message. Envoy has validated it, so that any error ends the reading.
pub(crate) fn from_bytes(bytes: &[u8], message: &Message, path: String, problems: &Problems) -> Node {
    let mut node = Node::at(path);
    for field in fields(bytes) {
        let Ok((number, wire)) = field else {
            problems.add(&node.path, "is not a protobuf message");
            break;
        };
        let Some(field) = message.0.iter().find(|field| field.number == number) else {
            let what = format!(
                "field {number} is not known to this module, which is as old as Envoy 1.40; remove it"
            );
            problems.add(&node.path, what);
            continue;
        };
        let mut field_path = node.path_of(field.name);
        if field.is_repeated {
            field_path += &format!("[{}]", node.count(field.name));
        }
        if let Some(value) = value(wire, field.kind, field_path, problems) {
            node.set(field, value);
        }
    }
    node
}

fn value(wire: Wire<'_>, kind: Kind, path: String, problems: &Problems) -> Option<Value> {
    match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => match str::from_utf8(bytes) {
            Ok(text) => Some(Value::Text(text.to_owned())),
            Err(_) => {
                problems.add(&path, "is not UTF-8");
                None
            }
        },
        (Kind::Bool, Wire::Varint(number)) => Some(Value::Bool(number != 0)),
        (Kind::Unsigned, Wire::Varint(number)) => Some(Value::Unsigned(number)),
        (Kind::Signed, Wire::Varint(number)) => Some(Value::Signed(number.cast_signed())),
        (Kind::Enum(names), Wire::Varint(number)) => {
            let known = names.iter().find(|(own, _)| u64::from(*own) == number);
            if known.is_none() {
                problems.add(&path, format!("{number} is not a value that this module knows"));
            }
            known.map(|(number, _)| Value::Enum(*number))
        }
        (Kind::Message(message), Wire::Bytes(bytes)) => {
            Some(Value::Node(from_bytes(bytes, message, path, problems)))
        }
        (Kind::Wrapped(kind), Wire::Bytes(bytes)) => {
            // A wrapper has one field, 1, which is absent for the default.
            let mut wrapped = match kind {
                Kind::Bool => Some(Value::Bool(false)),
                _ => Some(Value::Unsigned(0)),
            };
            for field in fields(bytes) {
                let Ok((1, wire)) = field else {
                    problems.add(&path, "is not a wrapper message");
                    return None;
                };
                wrapped = value(wire, *kind, path.clone(), problems);
            }
            wrapped
        }
        (Kind::Duration, Wire::Bytes(bytes)) => {
            let read = duration(bytes).map(Value::Duration);
            if read.is_none() {
                problems.add(&path, "is not a duration from 0");
            }
            read
        }
        (Kind::Opaque, _) => Some(Value::Opaque),
        _ => {
            problems.add(&path, "has another type than this module knows");
            None
        }
    }
}

/// A `google.protobuf.Duration`, unless it is negative or malformed.
fn duration(bytes: &[u8]) -> Option<Duration> {
    let [seconds, nanos] = numbers(bytes).ok()?;
    let nanos = u32::try_from(nanos).ok().filter(|nanos| *nanos < 1_000_000_000)?;
    i64::try_from(seconds).is_ok().then(|| Duration::new(seconds, nanos))
}
