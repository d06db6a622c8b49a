//! `grpc-timeout`: how long the caller waits for the response.

use http::HeaderMap;
use std::time::Duration;

/// The value of `grpc-timeout` is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("grpc-timeout is malformed; send one to eight digits and a unit (H, M, S, m, u or n), such as 20m")]
pub(in crate::api) struct MalformedTimeout;

/// The timeout of a call. Without the header it is unlimited.
pub(in crate::api) fn timeout(metadata: &HeaderMap) -> Result<Duration, MalformedTimeout> {
    let Some(value) = metadata.get("grpc-timeout") else { return Ok(Duration::MAX) };
    parse(value.as_bytes()).ok_or(MalformedTimeout)
}

/// One to eight digits, and a unit.
pub(in crate::api) fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if !matches!(digits.len(), 1..=8) || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = digits.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0'));
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        assert_eq!(parse(b"20m"), Some(Duration::from_millis(20)));
        assert_eq!(parse(b"99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(parse(b"1M"), parse(b"60S"));
        assert_eq!(parse(b"1500u"), parse(b"1500000n"));
        for malformed in ["", "m", "20", "-1m", "+1m", "1.5S", "100000000S", "5s", "5\u{e9}"] {
            assert_eq!(parse(malformed.as_bytes()), None, "{malformed}");
        }
    }

    #[test]
    fn a_call_without_a_timeout_is_unlimited_and_a_malformed_timeout_is_an_error() {
        let mut metadata = HeaderMap::new();
        assert_eq!(timeout(&metadata), Ok(Duration::MAX));
        metadata.insert("grpc-timeout", "soon".parse().unwrap());
        assert_eq!(timeout(&metadata), Err(MalformedTimeout));
        metadata.insert("grpc-timeout", "250m".parse().unwrap());
        assert_eq!(timeout(&metadata), Ok(Duration::from_millis(250)));
    }
}
