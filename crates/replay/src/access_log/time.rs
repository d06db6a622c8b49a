//! Times of access logs, in the forms that servers write.

use jiff::{civil::DateTime, fmt::strtime, tz::Offset};
use tidegate_core::limit::Timestamp;

/// The forms, for the error about a time that cannot be read.
pub(crate) const FORMS: &str = "RFC 3339, also with a space before the time or the offset, or with UTC (without a zone, a time is UTC); \
                                01/Mar/2026:12:00:00 +0000; or seconds, milliseconds, microseconds or nanoseconds since 1970";

/// A time in any of the [`FORMS`].
pub(crate) fn log_time(text: &str) -> Option<Timestamp> {
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    since_1970(text).or_else(|| timestamp(text.parse().ok()?)).or_else(|| zoned(text))
}

/// A time in a `strftime` format. Without a zone it is UTC.
pub(crate) fn formatted_time(format: &str, text: &str) -> Option<Timestamp> {
    let parsed = strtime::parse(format, text).ok()?;
    let time = parsed.to_timestamp().ok();
    let time = time.or_else(|| Offset::UTC.to_timestamp(parsed.to_datetime().ok()?).ok())?;
    timestamp(time)
}

fn timestamp(time: jiff::Timestamp) -> Option<Timestamp> {
    u64::try_from(time.as_nanosecond()).ok().map(Timestamp::from_nanos)
}

/// A number with or without a fraction. The number of whole digits determines the unit: until the year 5138, seconds have at most 11
/// digits. After March 1973, the other units have at least 12, 15 and 18.
fn since_1970(text: &str) -> Option<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let fraction_digits = match whole.len() {
        ..=11 => 9,
        12..=14 => 6,
        15..=17 => 3,
        _ => 0,
    };
    let mut nanos: u64 = whole.parse().ok()?;
    // Digits below a nanosecond are dropped.
    for digit in fraction.bytes().chain(std::iter::repeat(b'0')).take(fraction_digits) {
        nanos = nanos.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some(Timestamp::from_nanos(nanos))
}

/// A date and a time of the day, then ` UTC`, an offset or no zone.
fn zoned(text: &str) -> Option<Timestamp> {
    // No form is shorter before its fraction.
    const SECOND_BYTES: usize = 19;
    let after = text.get(SECOND_BYTES..)?;
    let fraction =
        after.find(|one: char| !one.is_ascii_digit() && !matches!(one, '.' | ',')).unwrap_or(after.len());
    let (local, zone) = text.split_at(SECOND_BYTES + fraction);
    let zone = zone.trim_ascii_start();
    let is_utc = ["", "Z", "UTC", "GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc));
    let local = iso_8601(local).or_else(|| common_log(local))?;
    timestamp(format!("{local}{}", if is_utc { "Z" } else { zone }).parse().ok()?)
}

/// `2026-03-01T12:00:00.250`, or with a space, slashes, or a comma before the fraction.
fn iso_8601(text: &str) -> Option<DateTime> {
    let separators = [text.as_bytes()[4], text.as_bytes()[7]];
    let is_date = separators == *b"--" || separators == *b"//";
    is_date.then(|| text.replace('/', "-").replace('_', "T").parse().ok())?
}

/// `01/Mar/2026:12:00:00`.
fn common_log(text: &str) -> Option<DateTime> {
    let text = text.replace('-', "/").replace(' ', ":").replace(',', ".");
    strtime::parse("%d/%b/%Y:%H:%M:%S%.f", text).ok()?.to_datetime().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-03-01T12:00:00.25Z.
    const NANOS: u64 = 1_772_366_400_250_000_000;

    #[test]
    fn a_time_is_the_same_in_every_form() {
        for text in [
            "2026-03-01T12:00:00.250Z",
            "2026-03-01T12:00:00,25Z",
            "2026-03-01 12:00:00.250000000Z",
            "2026-03-01 12:00:00.250 UTC",
            "2026-03-01 12:00:00.250",
            "2026/03/01 12:00:00.250",
            "2026-03-01 13:00:00.250 +0100",
            "2026-03-01T10:30:00.25-01:30",
            "2026-03-01T13:00:00.25+01",
            "[01/Mar/2026:12:00:00.250 +0000]",
            "01/Mar/2026:13:00:00.250 +0100",
            "1772366400.25",
            "1772366400.2500000009",
            "1772366400250",
            "1772366400250.0",
            "1772366400250000",
            "1772366400250000000",
        ] {
            assert_eq!(log_time(text), Some(Timestamp::from_nanos(NANOS)), "{text}");
        }
        assert_eq!(log_time("1"), Some(Timestamp::from_nanos(1_000_000_000)));
        assert_eq!(log_time("2016-12-31T23:59:60Z"), log_time("2016-12-31T23:59:59Z"));
    }

    #[test]
    fn other_texts_are_no_time() {
        for text in [
            "",
            "noon",
            "-1",
            "1.2.3",
            "1e9",
            "12:00:00",
            "2026-02-30T12:00:00Z",
            "2026-03-01T24:00:00Z",
            "2026-03/01T12:00:00Z",
            "2026-03-01T12:00:00.Z",
            "2026-03-01T12:00:00 CET",
            "2026-03-01T12:00:00+0160",
            "1969-12-31T23:59:59Z",
            "01/Mae/2026:12:00:00 +0000",
            "99999999999999999999",
        ] {
            assert_eq!(log_time(text), None, "{text}");
        }
    }

    #[test]
    fn a_format_of_strftime_is_read_by_that_format() {
        for (format, text) in [
            ("%d.%m.%Y %H:%M:%S.%3f", "01.03.2026 12:00:00.250"),
            ("%H:%M:%S.%f %z %d/%b/%y", "13:00:00.250 +0100 01/Mar/26"),
        ] {
            assert_eq!(formatted_time(format, text), Some(Timestamp::from_nanos(NANOS)), "{format}");
        }
        assert_eq!(formatted_time("%d.%m.%Y", "noon"), None);
    }

    proptest::proptest! {
        #[test]
        fn an_iso_time_is_read_as_another_program_reads_it(nanos: u64) {
            let time = jiff::Timestamp::from_nanosecond(i128::from(nanos)).expect("in range");
            let expected = Some(Timestamp::from_nanos(nanos));
            proptest::prop_assert_eq!(log_time(&time.to_string()), expected);
            proptest::prop_assert_eq!(log_time(&time.to_string().replace('T', " ").replace('Z', " UTC")), expected);
        }
    }
}
