//! Lines of the decision log exactly as this version of the server writes them, read without a JSON parser.
//!
//! A line with anything else (another order of fields, an escape in a text, a redacted value, a limit of the request) is left to
//! the parser, which has the same result for the lines that are read here.

use super::{Event, EventDescriptor, Place, RecordedStatus};
use crate::limit::{Code, Hits, Reset, Timestamp};
use smol_str::SmolStr;
use std::{num::NonZeroU64, time::Duration};

/// The decision of a line, if it has the expected form.
pub(super) fn parse(line: &[u8]) -> Option<Event> {
    let mut cursor = Cursor { rest: std::str::from_utf8(line).ok()? };
    cursor.skip("{\"v\":2,\"time\":\"").or_else(|| cursor.skip("{\"v\":1,\"time\":\""))?;
    let time = cursor.time()?;
    cursor.skip("\"")?;
    let place = if cursor.skip(",\"run\":\"").is_some() { Some(cursor.place()?) } else { None };
    cursor.skip(",\"domain\":\"")?;
    let domain = cursor.text().filter(|domain| !domain.is_empty())?.into();
    cursor.skip(",\"code\":\"")?;
    let code = cursor.code()?;
    cursor.skip(",\"sample\":")?;
    let sample = match cursor.skip("1.0,") {
        Some(()) => 1.0,
        None => cursor.until(',')?.parse().ok()?,
    };
    cursor.skip("\"latency_ns\":")?;
    cursor.number()?;
    // The peer and the trace, which are not read.
    for name in [",\"peer\":\"", ",\"trace_id\":\"", ",\"span_id\":\""] {
        if cursor.skip(name).is_some() {
            cursor.text()?;
        }
    }
    cursor.skip(",\"descriptors\":[")?;
    let mut descriptors = Vec::with_capacity(2);
    loop {
        descriptors.push(cursor.descriptor()?);
        if cursor.skip(",").is_none() {
            break;
        }
    }
    cursor.skip("]}")?;
    if !matches!(cursor.rest, "" | "\n") {
        return None;
    }
    // Complete: the domain is not empty, and there is a descriptor. The server has accepted any size.
    Some(Event { time, place, is_report: false, domain, descriptors, code, sample, is_hashed: false })
}

/// The part of a line that is not read yet.
struct Cursor<'l> {
    rest: &'l str,
}

impl<'l> Cursor<'l> {
    #[inline(always)]
    fn skip(&mut self, text: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Reads up to this ASCII character, and skips it.
    fn until(&mut self, end: char) -> Option<&'l str> {
        let (text, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(text)
    }

    /// Reads a text without escapes, and the quote at its end.
    #[inline]
    fn text(&mut self) -> Option<&'l str> {
        let end = end_of_text(self.rest.as_bytes())?;
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest.strip_prefix('"')?;
        Some(text)
    }

    fn code(&mut self) -> Option<Code> {
        match self.text()? {
            "OK" => Some(Code::Ok),
            "OVER_LIMIT" => Some(Code::OverLimit),
            _ => None,
        }
    }

    /// Reads a number without sign, fraction or leading zeros.
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let bytes = self.rest.as_bytes();
        let (mut number, mut end) = (0_u64, 0);
        while bytes.get(end)?.is_ascii_digit() {
            number = number.checked_mul(10)?.checked_add(u64::from(bytes[end] - b'0'))?;
            end += 1;
        }
        if end == 0 || end > 1 && bytes[0] == b'0' {
            return None;
        }
        self.rest = &self.rest[end..];
        Some(number)
    }

    /// Reads a place after the name of its first field.
    fn place(&mut self) -> Option<Place> {
        let run = run(self.text()?.as_bytes().try_into().ok()?)?;
        self.skip(",\"seq\":")?;
        let number = self.number()?;
        self.skip(",\"generation\":")?;
        Some(Place { run, number, generation: self.number()? })
    }

    /// Reads `2026-03-01T12:00:00.000000001Z`.
    fn time(&mut self) -> Option<Timestamp> {
        const FORM: &[u8; 30] = b"0000-00-00T00:00:00.000000000Z";
        let bytes: &[u8; 30] = self.rest.as_bytes().first_chunk()?;
        // All bytes, without an early end: then the compiler compares them at once.
        let has_form = bytes.iter().zip(FORM).fold(true, |has_form, (byte, form)| {
            has_form & (((*form == b'0') & byte.is_ascii_digit()) | (byte == form))
        });
        if !has_form {
            return None;
        }
        let digits =
            |from: usize, to: usize| bytes[from..to].iter().fold(0, |sum, d| 10 * sum + u64::from(d - b'0'));
        let (year, month, day) = (digits(0, 4), digits(5, 7), digits(8, 10));
        let (hour, minute, second) = (digits(11, 13), digits(14, 16), digits(17, 19));
        // Not every month has 31 days, and a time of day may be a leap second: the parser knows.
        if !(1970..2500).contains(&year)
            || !(1..=12).contains(&month)
            || !(1..=28).contains(&day) && !jiff_date(year, month, day)
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        self.rest = &self.rest[bytes.len()..];
        let seconds = days_since_epoch(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second;
        Some(Timestamp::from_nanos(seconds * 1_000_000_000 + digits(20, 29)))
    }

    fn descriptor(&mut self) -> Option<EventDescriptor> {
        self.skip("{\"entries\":[")?;
        let mut entries: Vec<(SmolStr, SmolStr)> = Vec::with_capacity(2);
        loop {
            self.skip("{\"key\":\"")?;
            let key = self.text()?;
            self.skip(",\"value\":\"")?;
            entries.push((key.into(), self.text()?.into()));
            self.skip("}")?;
            if self.skip(",").is_none() {
                break;
            }
        }
        self.skip("],\"hits\":")?;
        let hits = NonZeroU64::new(self.number()?);
        let gives_back = self.skip(",\"give_back\":true").is_some();
        let hits = match (hits, gives_back) {
            (None, _) => Hits::Peek,
            (Some(hits), false) => Hits::Take(hits),
            (Some(hits), true) => Hits::GiveBack(hits),
        };
        self.skip(",\"code\":\"")?;
        let code = self.code()?;
        let rule = self.rule()?;
        self.skip(",\"remaining\":")?;
        let remaining = u32::try_from(self.number()?).ok()?;
        self.skip(",\"reset_ns\":")?;
        let reset = match self.skip("null") {
            Some(()) => Reset::Never,
            None => Reset::After(Duration::from_nanos(self.number()?)),
        };
        self.skip("}")?;
        let reset = rule.is_some().then_some(reset);
        let recorded = Some(RecordedStatus { code, remaining, reset, rule });
        Some(EventDescriptor { entries, hits, own_limit: None, recorded })
    }

    /// Reads the path of the rule of a limit; none without a limit.
    fn rule(&mut self) -> Option<Option<SmolStr>> {
        self.skip(",\"limit\":")?;
        if self.skip("null").is_some() {
            return Some(None);
        }
        self.skip("{")?;
        if self.skip("\"name\":\"").is_some() {
            self.text()?;
            self.skip(",")?;
        }
        let mut rule = SmolStr::default();
        if self.skip("\"rule\":\"").is_some() {
            rule = self.text()?.into();
            self.skip(",")?;
        }
        self.skip("\"requests\":")?;
        self.number()?;
        self.skip(",\"window_ns\":")?;
        self.number()?;
        self.skip("}")?;
        Some(Some(rule))
    }
}

/// The position of the first quote, backslash or control character.
#[inline]
fn end_of_text(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        // Sets the highest bit of each byte that is less, and perhaps of some after the first of them.
        let less = |word: u64, bound: u64| word.wrapping_sub(bound * ONES) & !word & HIGH;
        let is = |byte: u8| less(word ^ (u64::from(byte) * ONES), 1);
        let found = is(b'"') | is(b'\\') | less(word, 0x20);
        if found != 0 {
            return Some(8 * index + found.trailing_zeros() as usize / 8);
        }
    }
    let in_rest = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20))?;
    Some(8 * words.len() + in_rest)
}

/// The number of a process.
fn run(digits: &[u8; 16]) -> Option<u64> {
    digits.iter().try_fold(0, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u64::from(digit))
    })
}

fn jiff_date(year: u64, month: u64, day: u64) -> bool {
    match (i16::try_from(year), i8::try_from(month), i8::try_from(day)) {
        (Ok(year), Ok(month), Ok(day)) => jiff::civil::Date::new(year, month, day).is_ok(),
        _ => false,
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, counted in years that begin in March.
fn days_since_epoch(year: u64, month: u64, day: u64) -> u64 {
    let year = if month < 3 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
    // Days from 0000-03-01 to 1970-01-01.
    days - 719_468
}

#[cfg(test)]
mod tests {
    use super::{super::line, *};

    const LINE: &str = r#"{"v":2,"time":"2026-03-01T12:00:00.000000001Z","run":"00ff00000000000a","seq":18446744073709551615,"generation":3,"domain":"edge","code":"OVER_LIMIT","sample":0.25,"latency_ns":1840,"peer":"10.0.0.7","trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331","descriptors":[{"entries":[{"key":"user","value":"é"},{"key":"path","value":""}],"hits":2,"code":"OVER_LIMIT","limit":{"name":"short","rule":"user","requests":10,"window_ns":60000000000},"remaining":0,"reset_ns":1500},{"entries":[{"key":"a","value":"b"}],"hits":1,"give_back":true,"code":"OK","limit":null,"remaining":0,"reset_ns":null}]}"#;

    #[test]
    fn a_line_of_the_server_is_read_as_by_the_parser() {
        let place = ",\"run\":\"00ff00000000000a\",\"seq\":18446744073709551615,\"generation\":3";
        let first_version = LINE.replace("\"v\":2", "\"v\":1").replace(place, "");
        let without_peer = LINE.replace(",\"peer\":\"10.0.0.7\"", "");
        for text in [LINE.to_owned(), format!("{LINE}\n"), without_peer, first_version] {
            let Ok(line::Line::Decision(parsed)) = line::parse_json(text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!(parse(text.as_bytes()), Some(parsed));
        }
    }

    #[test]
    fn a_line_in_another_form_is_left_to_the_parser() {
        for (part, other) in [
            ("\"v\":2", "\"v\":3"),
            ("00ff00000000000a", "00FF00000000000a"),
            ("00ff00000000000a", "0"),
            ("\"generation\":3", "\"generation\":3,\"more\":4"),
            (",\"code\":\"OVER_LIMIT\",\"sample\"", ",\"report\":true,\"code\":\"OVER_LIMIT\",\"sample\""),
            ("\"é\"", "\"\\u00e9\""),
            ("\"value\":\"é\"", "\"value_hash\":\"ab\""),
            (",\"value\":\"é\"", ""),
            ("\"hits\":2", "\"hits\":02"),
            ("\"hits\":2", "\"hits\":2,\"own_limit\":{\"requests\":5,\"unit\":\"hour\"}"),
            ("\"domain\":\"edge\"", "\"domain\":\"\""),
            ("2026-03-01", "2026-02-29"),
            ("12:00:00", "12:00:60"),
            ("]}", "]} x"),
            ("]}", "],\"new\":1}"),
        ] {
            assert!(LINE.contains(part));
            assert_eq!(parse(LINE.replace(part, other).as_bytes()), None, "{other}");
        }
        assert_eq!(parse(b"\xff\xfe"), None);
        for end in (0..LINE.len()).filter(|&end| LINE.is_char_boundary(end)) {
            assert_eq!(parse(&LINE.as_bytes()[..end]), None, "{end} bytes of the line");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_ends_where_the_first_byte_that_ends_one_is(text in "[ -~é\u{0}-\u{1f}]{0,40}") {
            let expected = text.bytes().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20));
            proptest::prop_assert_eq!(end_of_text(text.as_bytes()), expected);
        }
    }

    #[test]
    fn times_are_those_of_the_parser() {
        for day in ["1970-01-01", "1999-12-31", "2000-02-29", "2024-02-29", "2026-02-28", "2100-03-01"] {
            let text = format!("{day}T23:59:59.999999999Z");
            assert_eq!((Cursor { rest: &text }).time(), line::time(&text), "{text}");
        }
    }
}
