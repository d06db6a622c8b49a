//! Reads a message from its protobuf bytes.

use super::{
    node::{Node, Problems, Value},
    schema::{Kind, Message},
};

/// Reads a message. Envoy has validated it, so that whatever is wrong ends the reading.
pub(crate) fn from_bytes(mut bytes: &[u8], message: &Message, path: String, problems: &Problems) -> Node {
    let mut node = Node::at(path);
    while !bytes.is_empty() {
        let Some((number, wire)) = next(&mut bytes) else {
            problems.add(&node.path, "is not a protobuf message");
            break;
        };
        let Some(field) = message.fields.iter().find(|field| field.number == number) else {
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

/// A value as the wire has it.
enum Wire<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    /// Of a type that no field here has.
    Fixed,
}

/// The next field; none if the bytes are not well-formed.
fn next<'b>(bytes: &mut &'b [u8]) -> Option<(u32, Wire<'b>)> {
    let tag = varint(bytes)?;
    let number = u32::try_from(tag >> 3).ok()?;
    let wire = match tag & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => bytes.split_off(..8).map(|_| Wire::Fixed)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Wire::Bytes(bytes.split_off(..length)?)
        }
        5 => bytes.split_off(..4).map(|_| Wire::Fixed)?,
        _ => return None,
    };
    Some((number, wire))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
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
        (Kind::Wrapped(kind), Wire::Bytes(mut bytes)) => {
            // A wrapper has one field, 1, which is absent for the default.
            let mut wrapped = match kind {
                Kind::Bool => Some(Value::Bool(false)),
                _ => Some(Value::Unsigned(0)),
            };
            while !bytes.is_empty() {
                let Some((1, wire)) = next(&mut bytes) else {
                    problems.add(&path, "is not a wrapper message");
                    return None;
                };
                wrapped = value(wire, *kind, path.clone(), problems);
            }
            wrapped
        }
        (Kind::Opaque, _) => Some(Value::Opaque),
        _ => {
            problems.add(&path, "has another type than this module knows");
            None
        }
    }
}
