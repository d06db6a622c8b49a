//! Values before a server escaped them for its log: nginx writes `"` as `\x22`, Apache as `\"`.

use std::borrow::Cow;
use tidegate_core::limit::client_text;

/// The text of the value in an entry of a descriptor.
pub(super) fn text(value: &[u8], escapes: bool) -> Cow<'_, str> {
    if escapes && memchr::memchr(b'\\', value).is_some() {
        return Cow::Owned(client_text(&unescaped(value), usize::MAX).into_owned());
    }
    client_text(value, usize::MAX)
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::with_capacity(value.len()), value);
    while let Some((first, after)) = rest.split_first() {
        let (byte, taken) = match (first, after) {
            (b'\\', [b'x', high, low, ..]) => match (digit(*high), digit(*low)) {
                (Some(high), Some(low)) => (high << 4 | low, 4),
                _ => (b'\\', 1),
            },
            (b'\\', [escaped, ..]) => match escaped {
                b'"' | b'\\' => (*escaped, 2),
                b'b' => (0x08, 2),
                b'n' => (b'\n', 2),
                b'r' => (b'\r', 2),
                b't' => (b'\t', 2),
                b'v' => (0x0b, 2),
                _ => (b'\\', 1),
            },
            _ => (*first, 1),
        };
        bytes.push(byte);
        rest = &rest[taken..];
    }
    bytes
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_nginx_and_apache_are_undone_and_those_of_envoy_are_text() {
        assert_eq!(text(br#"a\x22b\"c\\d\xC3\xA9\t\q\x4"#, true), "a\"b\"c\\dé\t\\q\\x4");
        assert_eq!(text(br"a\x22b", false), r"a\x22b");
        assert_eq!(text(b"a\xffb\xc3", true), r"a\xffb\xc3");
        assert_eq!(text(br"a\xffb", true), r"a\xffb");
        // With Envoy, the client has sent these four characters.
        assert_eq!(text(br"a\xffb", false), r"a\\xffb");
    }
}
