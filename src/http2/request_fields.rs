//! Checks the fields of a request (RFC 9113, sections 8.2 and 8.3).

use super::{Fields, steps};

/// The pseudo-headers of requests. All but the last are required, and not empty.
const PSEUDO_HEADERS: [&[u8]; 4] = [b":method", b":scheme", b":path", b":authority"];
const REQUIRED: usize = 3;

/// Whether this is the name of a regular field: a token without capital letters.
pub(super) fn is_field_name(name: &[u8]) -> bool {
    let is_valid =
        |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_valid)
}

/// Whether this is a field value: no control character but tab, no space or tab at either end (RFC 9113, section 8.2.1).
pub(super) fn is_field_value(value: &[u8]) -> bool {
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let has_control = match value.last_chunk::<8>() {
        // The last eight bytes overlap the whole eights before them.
        Some(last) => value.as_chunks::<8>().0.iter().chain([last]).any(|eight| may_have_control(*eight)),
        None => true,
    };
    let is_control = |byte: &u8| *byte < b' ' && *byte != b'\t' || *byte == 0x7f;
    !(is_blank(value.first()) || is_blank(value.last()) || has_control && value.iter().any(is_control))
}

/// Whether one of the bytes is below a space or DEL; perhaps also if one is above.
fn may_have_control(eight: [u8; 8]) -> bool {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    let bytes = u64::from_ne_bytes(eight);
    // Borrows and carries reach a byte only from one that has been found, or from one above 0x7f.
    let below_space = bytes.wrapping_sub(ONES * 0x20);
    let del_or_above = bytes.wrapping_add(ONES);
    (below_space | del_or_above | bytes) & HIGH != 0
}

/// The number in a content-length: digits only (RFC 9110, section 8.6).
fn content_length(value: &[u8]) -> Option<u64> {
    str::from_utf8(value).ok().filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok()
}

/// Checks the fields of a request; its content-length, if it has one.
pub(super) fn check_fields(fields: &Fields) -> Option<Option<u64>> {
    let mut seen = [false; PSEUDO_HEADERS.len()];
    let (mut length, mut pseudo_ended) = (None, false);
    for (name, value) in fields.iter() {
        steps::add(steps::of_bytes(name.len() + value.len()));
        if !is_field_value(value) {
            return None;
        }
        if name.starts_with(b":") {
            let which = PSEUDO_HEADERS.iter().position(|pseudo| *pseudo == name)?;
            let is_empty = which < REQUIRED && value.is_empty();
            if pseudo_ended || is_empty || std::mem::replace(&mut seen[which], true) {
                return None;
            }
            continue;
        }
        pseudo_ended = true;
        if !is_field_name(name) {
            return None;
        }
        match name {
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return None;
            }
            b"te" if value != b"trailers" => return None,
            b"content-length" => {
                let new = content_length(value)?;
                if length.replace(new).is_some_and(|old| old != new) {
                    return None;
                }
            }
            _ => {}
        }
    }
    let is_complete = seen[..REQUIRED].iter().all(|seen| *seen);
    is_complete.then_some(length)
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
