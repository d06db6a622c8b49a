//! How long a caller waits for its answer: `grpc-timeout`, as the protocol has it.

use http::HeaderMap;
use std::time::Duration;

/// What the caller says; for ever if it says nothing, or nothing that can be read.
pub(in crate::api) fn patience(metadata: &HeaderMap) -> Duration {
    let told = metadata.get("grpc-timeout").and_then(|value| value.to_str().ok());
    told.and_then(timeout).unwrap_or(Duration::MAX)
}

/// Up to eight digits, and a unit.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_up_to_eight_digits_and_a_unit() {
        assert_eq!(timeout("20m"), Some(Duration::from_millis(20)));
        assert_eq!(timeout("99999999H"), Some(Duration::from_secs(99_999_999 * 3_600)));
        assert_eq!(timeout("1M"), timeout("60S"));
        assert_eq!(timeout("1500u"), timeout("1500000n"));
        for wrong in ["", "m", "20", "-1m", "+1m", "1.5S", "100000000S", "5s", "5é"] {
            assert_eq!(timeout(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_caller_that_says_nothing_waits_for_ever() {
        let mut metadata = HeaderMap::new();
        assert_eq!(patience(&metadata), Duration::MAX);
        metadata.insert("grpc-timeout", "soon".parse().unwrap());
        assert_eq!(patience(&metadata), Duration::MAX);
        metadata.insert("grpc-timeout", "250m".parse().unwrap());
        assert_eq!(patience(&metadata), Duration::from_millis(250));
    }
}
