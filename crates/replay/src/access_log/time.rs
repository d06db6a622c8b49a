//! Times of access logs, in the forms that servers write.

use jiff::{civil::DateTime, fmt::strtime, tz::Offset};
use tidegate_core::limit::Timestamp;

/// The forms, for the error about a time that cannot be read.
pub(crate) const FORMS: &str = "RFC 3339, also with a space before the time or the offset, or with UTC (without a zone, a time is UTC); \
                                01/Mar/2026:12:00:00 +0000; or seconds, milliseconds, microseconds or nanoseconds since 1970";

/// A time in any of the [`FORMS`].
pub(crate) fn log_time(text: &str) -> Option<Timestamp> {
    let text = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let mut rest = Rest(text.as_bytes());
    since_1970(text).or_else(|| rest.iso_8601()).or_else(|| Rest(text.as_bytes()).common_log())
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

/// The part of a time that is not read yet.
struct Rest<'t>(&'t [u8]);

impl Rest<'_> {
    /// `2026-03-01T12:00:00.250Z`, or with a space, slashes, a comma before the fraction, ` UTC`, an offset or no zone.
    fn iso_8601(&mut self) -> Option<Timestamp> {
        let year = self.number(4)?;
        let separator = self.one_of(b"-/")?;
        let month = self.number(2)?;
        self.one_of(&[separator])?;
        let day = self.number(2)?;
        self.one_of(b"Tt _")?;
        self.time_of_day(year, month, day)
    }

    /// `01/Mar/2026:12:00:00 +0000`.
    fn common_log(&mut self) -> Option<Timestamp> {
        const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
        let day = self.number(2)?;
        self.one_of(b"/-")?;
        let (name, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        let month = MONTHS.as_chunks::<3>().0.iter().position(|month| month.eq_ignore_ascii_case(name))?;
        self.one_of(b"/-")?;
        let year = self.number(4)?;
        self.one_of(b": ")?;
        self.time_of_day(year, month as i64 + 1, day)
    }

    fn time_of_day(&mut self, year: i64, month: i64, day: i64) -> Option<Timestamp> {
        let hour = self.number(2)?;
        self.one_of(b":")?;
        let minute = self.number(2)?;
        self.one_of(b":")?;
        // A leap second counts as the second before it.
        let second = self.number(2)?.min(59);
        let nanos = if self.one_of(b".,").is_some() { self.fraction()? } else { 0 };
        let offset = self.offset()?;
        let date = [month, day, hour, minute, second].map(|number| number as i8);
        let [month, day, hour, minute, second] = date;
        let time = DateTime::new(year as i16, month, day, hour, minute, second, nanos).ok()?;
        timestamp(Offset::from_seconds(offset).ok()?.to_timestamp(time).ok()?)
    }

    /// Nanoseconds of the digits after a point.
    fn fraction(&mut self) -> Option<i32> {
        let digits = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (fraction, rest) = self.0.split_at(digits);
        self.0 = rest;
        let digits = fraction.iter().chain(std::iter::repeat(&b'0')).take(9);
        (!fraction.is_empty()).then(|| digits.fold(0, |nanos, digit| nanos * 10 + i32::from(digit - b'0')))
    }

    /// Seconds east of UTC, at the end of the text.
    fn offset(&mut self) -> Option<i32> {
        let zone = self.0.trim_ascii_start();
        if zone.is_empty() || [&b"Z"[..], b"UTC", b"GMT"].iter().any(|utc| zone.eq_ignore_ascii_case(utc)) {
            return Some(0);
        }
        self.0 = zone;
        let sign = if self.one_of(b"+-")? == b'-' { -1 } else { 1 };
        let hours = self.number(2)?;
        let _ = self.one_of(b":");
        let minutes = if self.0.is_empty() { 0 } else { self.number(2)? };
        let seconds = i32::try_from(hours * 3_600 + minutes * 60).ok()?;
        (self.0.is_empty() && minutes < 60).then_some(sign * seconds)
    }

    /// A number of exactly `digits` digits.
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        let is_number = number.iter().all(u8::is_ascii_digit);
        is_number.then(|| number.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0')))
    }

    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        bytes.contains(first).then(|| {
            self.0 = rest;
            *first
        })
    }
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
