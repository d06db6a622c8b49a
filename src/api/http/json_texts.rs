//! Strings in JSON that are no text: a client of the caller may have chosen their bytes.
//!
//! Some programs copy their strings to JSON unchanged and so send bytes that are not UTF-8 or, with UTF-16 strings, halves of surrogate
//! pairs. JSON readers refuse the whole body. So each string is replaced by its text ([`client_text`]), from which [`Strings::bytes`]
//! restores the bytes; half a pair becomes three bytes, as in WTF-8.

use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};
use std::fmt;
use tidegate_core::limit::{client_bytes, client_text};

/// The way in which the strings of a body were read.
#[derive(Clone, Copy)]
pub(super) enum Strings {
    AsTheyAre,
    AsTexts,
}

impl Strings {
    /// The bytes that the caller has written.
    pub(super) fn bytes(self, text: &str) -> Vec<u8> {
        match self {
            Self::AsTheyAre => text.as_bytes().to_vec(),
            Self::AsTexts => client_bytes(text).into_owned(),
        }
    }
}

/// Reads a body as it is or, if that fails, with its strings replaced by their texts.
pub(super) fn read<T, E>(body: &[u8], read: impl Fn(&[u8]) -> Result<T, E>) -> Result<(T, Strings), E> {
    read(body).map(|value| (value, Strings::AsTheyAre)).or_else(|error| match with_texts(body) {
        Some(body) => Ok((read(&body)?, Strings::AsTexts)),
        None => Err(error),
    })
}

/// Replaces each string of the body by its text; none if all strings are readable, or a string is no JSON.
fn with_texts(body: &[u8]) -> Option<Vec<u8>> {
    let (mut written, mut rest, mut is_needed) = (Vec::with_capacity(body.len()), body, false);
    while let Some(start) = rest.iter().position(|byte| *byte == b'"') {
        let (before, string) = rest.split_at(start);
        let (string, after) = string.split_at(string_length(string)?);
        let Bytes(bytes) = serde_json::from_slice(string).ok()?;
        is_needed |= str::from_utf8(&bytes).is_err();
        written.extend_from_slice(before);
        serde_json::to_writer(&mut written, &client_text(&bytes, usize::MAX)).ok()?;
        rest = after;
    }
    written.extend_from_slice(rest);
    is_needed.then_some(written)
}

/// Length of the string at the start, with its quotation marks; none if it does not end.
fn string_length(text: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        match text.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The bytes of a string.
struct Bytes(Vec<u8>);

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_bytes(BytesVisitor)
    }
}

struct BytesVisitor;

impl Visitor<'_> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_bytes_are_read_as_written() {
        let strings = |body: &[u8]| {
            let (values, strings) = read(body, |body| serde_json::from_slice::<Vec<String>>(body)).unwrap();
            values.iter().map(|text| strings.bytes(text)).collect::<Vec<_>>()
        };
        assert_eq!(strings(br#"["a\\xff", "b"]"#), [&b"a\\xff"[..], b"b"]);
        assert_eq!(
            strings(b"[\"a\xff\", \"\\\\xff\", \"\\\"\\u00e9\"]"),
            [&b"a\xff"[..], b"\\xff", "\"é".as_bytes()]
        );
        assert_eq!(strings(br#"["\ud800", "\ud83d\ude00"]"#), [&b"\xed\xa0\x80"[..], "😀".as_bytes()]);
    }

    #[test]
    fn what_is_no_json_is_refused_as_before() {
        let read = |body: &[u8]| read(body, |body| serde_json::from_slice::<Vec<String>>(body)).map(|_| ());
        for body in [&b"[\"\xff\""[..], b"[\"\xff", b"[\"\\", b"[\"\xff\\q\"]", b"[\xff]", b"\xff\"\""] {
            assert!(read(body).is_err(), "{body:?}");
        }
    }
}
