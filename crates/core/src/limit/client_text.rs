//! The texts of what clients send: keys and values are bytes on the wire, and texts in rules, counters, logs and tools.
//!
//! - Bytes that are UTF-8 are their own text.
//! - In other bytes, each byte that is not part of a character is written as `\xff`, and each backslash as `\\`. Bytes in which a client
//!   has written `\x80` to `\xff` itself are escaped too: their backslashes are doubled.
//! - A text of more bytes than the bound is its first part, `…sha256:`, and the SHA-256 of all bytes in hexadecimal.
//!
//! Invariant: bytes that differ have texts that differ (long texts unless SHA-256 collides). A text within the bound either has no escape
//! and is its bytes, or has an escape and is unescaped to them; a cut text exceeds the bound and ends with the hash.

use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// Stands between the first part of a long text and its hash.
const HASH_MARK: &str = "…sha256:";

/// Bytes by which a cut text may exceed its bound.
pub const CUT_BYTES: usize = HASH_MARK.len() + 64;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The text of these bytes: of at most `bytes_max` bytes, or its first part with a hash of the whole.
pub fn client_text(bytes: &[u8], bytes_max: usize) -> Cow<'_, str> {
    let plain = str::from_utf8(bytes).ok().filter(|text| text.len() <= bytes_max);
    match plain.filter(|text| !has_escape(text.as_bytes())) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(written(bytes, bytes_max)),
    }
}

/// The bytes of a text that [`client_text`] has made without a bound.
pub fn client_bytes(text: &str) -> Cow<'_, [u8]> {
    if !has_escape(text.as_bytes()) {
        return Cow::Borrowed(text.as_bytes());
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        rest = after;
        let byte = match after {
            [b'\\', after @ ..] if *first == b'\\' => {
                rest = after;
                b'\\'
            }
            [b'x', high, low, after @ ..] if *first == b'\\' && is_hex(*high) && is_hex(*low) => {
                rest = after;
                hex_digit(*high) << 4 | hex_digit(*low)
            }
            _ => *first,
        };
        bytes.push(byte);
    }
    Cow::Owned(bytes)
}

/// Whether a backslash is followed by `x80` to `xff`, in lower case.
pub fn has_escape(bytes: &[u8]) -> bool {
    bytes.windows(4).any(
        |window| matches!(window, [b'\\', b'x', high, low] if is_hex(*high) && *high >= b'8' && is_hex(*low)),
    )
}

/// The text of bytes that are not their own text within the bound.
#[cold]
fn written(bytes: &[u8], bytes_max: usize) -> String {
    let first = &bytes[..character_boundary(bytes, bytes_max)];
    let plain = str::from_utf8(first).ok().filter(|text| !has_escape(text.as_bytes()));
    let (mut text, is_whole) = match plain {
        Some(text) => (text.to_owned(), true),
        None => escaped(first, bytes_max),
    };
    if !is_whole || first.len() < bytes.len() {
        text.push_str(HASH_MARK);
        Sha256::digest(bytes).iter().for_each(|byte| push_hex(&mut text, *byte));
    }
    text
}

/// At most `bytes_max` bytes, which end with a character if they are cut.
fn character_boundary(bytes: &[u8], bytes_max: usize) -> usize {
    let is_within_character = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let end = bytes.len().min(bytes_max);
    // A character has at most four bytes. More that seem to be within one are no character.
    (end.saturating_sub(3)..=end).rev().find(|at| !is_within_character(at)).unwrap_or(end)
}

/// The escaped text, and whether it is within the bound; else its first part.
fn escaped(bytes: &[u8], bytes_max: usize) -> (String, bool) {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2).min(bytes_max));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            let length = if character == '\\' { 2 } else { character.len_utf8() };
            if text.len() + length > bytes_max {
                return (text, false);
            }
            if character == '\\' {
                text.push('\\');
            }
            text.push(character);
        }
        for byte in chunk.invalid() {
            if text.len() + 4 > bytes_max {
                return (text, false);
            }
            text.push_str("\\x");
            push_hex(&mut text, *byte);
        }
    }
    (text, true)
}

fn push_hex(text: &mut String, byte: u8) {
    text.push(HEX[usize::from(byte >> 4)].into());
    text.push(HEX[usize::from(byte & 15)].into());
}

/// Whether it is a digit as escapes have them.
fn is_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// The value of a digit.
fn hex_digit(byte: u8) -> u8 {
    if byte <= b'9' { byte - b'0' } else { byte - b'a' + 10 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const UNBOUNDED: usize = usize::MAX;

    /// Bytes of few kinds, so that escapes, characters and parts of them often meet.
    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b"\\"[..],
            b"x",
            b"\\xff",
            b"\\xfF",
            b"\\x7f",
            b"8",
            b"f",
            b"\xff",
            b"\xc3",
            "é".as_bytes(),
            "…sha256:".as_bytes(),
            b"\0",
        ]);
        vec(piece, 0..12).prop_map(|pieces| pieces.concat())
    }

    #[test]
    fn bytes_are_written_as_stated() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"", ""),
            (b"a\\b", "a\\b"),
            (b"C:\\xampp \\x7f \\xFF", "C:\\xampp \\x7f \\xFF"),
            (b"a\xff", "a\\xff"),
            (b"a\\b\xff", "a\\\\b\\xff"),
            (b"a\\xff", "a\\\\xff"),
            (b"\xe2\x82", "\\xe2\\x82"),
            ("é\0".as_bytes(), "é\0"),
        ] {
            assert_eq!(client_text(bytes, UNBOUNDED), text);
        }
    }

    #[test]
    fn a_long_text_is_its_first_part_and_the_hash_of_the_whole() {
        let hash = "9834876dcfb05cb167a5c24953eba58c4ac89b1adf57f28f2f9d09af107ee8f0";
        assert_eq!(client_text(b"aaa", 3), "aaa");
        assert_eq!(client_text(b"aaa", 2), format!("aa…sha256:{hash}"));
        assert!(client_text("aé".as_bytes(), 2).starts_with("a…sha256:"), "no part of a character");
        assert!(client_text(b"a\xff\xff", 8).starts_with("a\\xff…sha256:"), "no part of an escape");
        assert!(client_text(b"\\\\\xff", 3).starts_with("\\\\…sha256:"), "no part of an escape");
        assert!(client_text(&[0x80; 9], 5).starts_with("\\x80…sha256:"));
        assert!(
            client_text(b"aaa\xff", 3).starts_with("aaa…sha256:"),
            "what follows does not change the first part"
        );
        assert!(client_text(b"aaa", 0).starts_with("…sha256:"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4 * ProptestConfig::default().cases))]

        #[test]
        fn bytes_that_differ_have_texts_that_differ(
            one in bytes(), other in bytes(), bytes_max in prop_oneof![0..30_usize, Just(UNBOUNDED)],
        ) {
            let (one_text, other_text) = (client_text(&one, bytes_max), client_text(&other, bytes_max));
            prop_assert_eq!(one == other, one_text == other_text);
            // The most dangerous bytes are those of another text.
            let of_text = client_text(one_text.as_bytes(), bytes_max);
            prop_assert_eq!(one == one_text.as_bytes(), of_text == one_text);
        }

        #[test]
        fn a_text_without_a_bound_has_all_bytes(bytes in prop_oneof![bytes(), vec(any::<u8>(), 0..40)]) {
            let text = client_text(&bytes, UNBOUNDED).into_owned();
            prop_assert_eq!(&*client_bytes(&text), &bytes);
        }

        #[test]
        fn a_text_is_within_the_bound_or_ends_with_a_hash(bytes in bytes(), bytes_max in 0..30_usize) {
            let text = client_text(&bytes, bytes_max);
            let whole = client_text(&bytes, UNBOUNDED);
            if whole.len() <= bytes_max {
                prop_assert_eq!(text, whole);
            } else {
                let first = text.len() - CUT_BYTES;
                prop_assert!(first <= bytes_max && text[first..].starts_with(HASH_MARK));
            }
        }
    }
}
