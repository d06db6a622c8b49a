//! Classes of fields. A class is all that the check of a request (RFC 9113, sections 8.2 and 8.3) needs of a field, except its position.
//!
//! A class is computed once for each name and value received as a literal, and kept with the entry of the dynamic table. A field by index
//! then takes the same few instructions at any length.

use super::static_table::STATIC_TABLE;
use http::{HeaderName, Method, uri::PathAndQuery};
use std::sync::LazyLock;

/// A pseudo-header of requests. All but the last are required, and not empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pseudo {
    Method,
    Scheme,
    Path,
    Authority,
}

impl Pseudo {
    pub(crate) const ALL: [Self; 4] = [Self::Method, Self::Scheme, Self::Path, Self::Authority];

    pub(crate) fn name(self) -> &'static [u8] {
        match self {
            Self::Method => b":method",
            Self::Scheme => b":scheme",
            Self::Path => b":path",
            Self::Authority => b":authority",
        }
    }
}

/// The longest valid method. The longest registered one has 17 bytes.
const METHOD_MAX: usize = 32;

/// The names of the regular fields that a service reads. Its requests have no other fields.
pub struct FieldNames {
    names: Box<[HeaderName]>,
    /// Classes of the names in the static table.
    of_static: [NameClass; STATIC_TABLE.len()],
}

impl FieldNames {
    /// At most 64 names.
    pub fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let names: Box<[HeaderName]> = names.into_iter().map(HeaderName::from_static).collect();
        assert!(names.len() <= u64::BITS as usize, "a set of names is one word");
        let mut of_static = [NameClass::Invalid; STATIC_TABLE.len()];
        for (class, (name, _)) in of_static.iter_mut().zip(STATIC_TABLE) {
            *class = NameClass::of(name, &names);
        }
        Self { names, of_static }
    }

    /// No names, for fields that are read by position.
    pub fn none() -> &'static Self {
        static NONE: LazyLock<FieldNames> = LazyLock::new(|| FieldNames::new([]));
        &NONE
    }

    #[inline]
    pub(crate) fn class_of(&self, name: &[u8]) -> NameClass {
        NameClass::of(name, &self.names)
    }

    /// The class of the name at this position of the static table.
    #[inline]
    pub(crate) fn class_of_static(&self, position: usize) -> NameClass {
        self.of_static[position]
    }

    /// The name with this number.
    #[inline]
    pub(crate) fn name(&self, number: u8) -> &HeaderName {
        &self.names[usize::from(number)]
    }
}

/// The class of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameClass {
    /// Invalid in any request.
    Invalid,
    Pseudo(Pseudo),
    Te,
    ContentLength,
    /// The service reads it: its number in [`FieldNames`].
    Read(u8),
    Other,
}

impl NameClass {
    fn of(name: &[u8], read: &[HeaderName]) -> Self {
        match name {
            [b':', ..] => {
                let pseudo = Pseudo::ALL.into_iter().find(|pseudo| pseudo.name() == name);
                pseudo.map_or(Self::Invalid, Self::Pseudo)
            }
            b"te" => Self::Te,
            b"content-length" => Self::ContentLength,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                Self::Invalid
            }
            _ => match read.iter().position(|read| read.as_str().as_bytes() == name) {
                Some(number) => Self::Read(number as u8),
                None if is_field_name(name) => Self::Other,
                None => Self::Invalid,
            },
        }
    }
}

/// The class of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// Invalid in any request.
    Invalid,
    Pseudo(Pseudo),
    ContentLength(u64),
    /// The service reads it: the number of its name in [`FieldNames`].
    Read(u8),
    Other,
}

impl Class {
    pub(crate) fn of(name: NameClass, value: &[u8]) -> Self {
        let is_valid = is_field_value(value)
            && match name {
                NameClass::Pseudo(Pseudo::Method) => {
                    value.len() <= METHOD_MAX && Method::from_bytes(value).is_ok()
                }
                NameClass::Pseudo(Pseudo::Scheme) => !value.is_empty(),
                NameClass::Pseudo(Pseudo::Path) => is_path(value),
                NameClass::Te => value == b"trailers",
                NameClass::ContentLength => {
                    return content_length(value).map_or(Self::Invalid, Self::ContentLength);
                }
                _ => true,
            };
        if is_valid { Self::of_valid(name) } else { Self::Invalid }
    }

    /// The class of a field with a valid value that is not a content-length.
    #[inline]
    pub(crate) fn of_valid(name: NameClass) -> Self {
        match name {
            NameClass::Invalid | NameClass::ContentLength => Self::Invalid,
            NameClass::Pseudo(pseudo) => Self::Pseudo(pseudo),
            NameClass::Read(number) => Self::Read(number),
            NameClass::Te | NameClass::Other => Self::Other,
        }
    }
}

/// Whether this is an absolute path, perhaps with a query, or `*` (RFC 9113, section 8.3.1).
fn is_path(value: &[u8]) -> bool {
    (value.starts_with(b"/") || value == b"*") && PathAndQuery::try_from(value).is_ok()
}

/// Whether this is the name of a regular field: a token without capital letters.
fn is_field_name(name: &[u8]) -> bool {
    let is_valid =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

/// Whether this is a field value: no control character except tab, and no space or tab at either end (RFC 9113, section 8.2.1).
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_control = match value.last_chunk::<8>() {
        // The last eight bytes overlap the whole eights before them.
        Some(last) => value.as_chunks::<8>().0.iter().chain([last]).any(|eight| may_have_control(*eight)),
        None => true,
    };
    let is_control = |byte: &u8| *byte < b' ' && *byte != b'\t' || *byte == 0x7f;
    !(is_blank(value.first()) || is_blank(value.last()) || has_control && value.iter().any(is_control))
}

/// Whether one of the bytes is below a space, or DEL. May also be true if a byte is above DEL.
fn may_have_control(eight: [u8; 8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let bytes = u64::from_ne_bytes(eight);
    // A borrow or carry into a byte comes from a byte that is itself reported, or above 0x7f.
    let below_space = bytes.wrapping_sub(ONES * 0x20);
    let del_or_above = bytes.wrapping_add(ONES);
    (below_space | del_or_above | bytes) & HIGH != 0
}

/// The number in a content-length: digits only (RFC 9110, section 8.6).
fn content_length(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok().filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_found_at_every_position() {
        for (length, position, byte) in (1..20).flat_map(|length| {
            (0..length).flat_map(move |position| (0..=255_u8).map(move |byte| (length, position, byte)))
        }) {
            let mut value = vec![b'a'; length];
            value[position] = byte;
            let is_at_end = position == 0 || position == length - 1;
            let is_valid = match byte {
                b'\t' | b' ' => !is_at_end,
                ..b' ' | 0x7f => false,
                _ => true,
            };
            assert_eq!(is_field_value(&value), is_valid, "{byte:#x} at {position} of {length}");
        }
    }
}
