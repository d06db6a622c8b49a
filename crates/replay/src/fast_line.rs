//! Lines of the decision log exactly as this version of the server writes them, read without a JSON parser.
//!
//! Other lines (another order of fields, an escape in a text, a redacted value, a limit of the request) are left to the parser. For the
//! lines that are read here, the parser has the same result.

use super::{
    LoggedDecision, LoggedStatus, Place,
    words::{end_of_text, leading_digits, leading_number},
};
use jiff::{civil::DateTime, tz::Offset};
use smallvec::SmallVec;
use std::{num::NonZeroU64, time::Duration};
use tidegate_core::limit::{Code, Descriptor, Entry, Hits, Reset, Timestamp};

/// Bytes of a time before its nanoseconds: `2026-03-01T12:00:00.`.
const SECOND_BYTES: usize = 20;
/// Digits of the number of a process.
const RUN_BYTES: usize = 16;

/// Parts of the last line that most lines repeat.
pub(super) struct Repeated {
    /// The time to the second: its text, and nanoseconds since 1970.
    second: ([u8; SECOND_BYTES], u64),
    /// The process: its digits, and its number.
    run: ([u8; RUN_BYTES], u64),
}

impl Default for Repeated {
    fn default() -> Self {
        Self { second: (*b"1970-01-01T00:00:00.", 0), run: ([b'0'; RUN_BYTES], 0) }
    }
}

/// Reads the decision of a line into an empty decision. None if the line does not have the expected form.
///
/// The decision is not returned, because it is large and would be moved several times for each line.
#[inline]
pub(super) fn parse<'l>(
    line: &'l [u8],
    repeated: &mut Repeated,
    decision: &mut LoggedDecision<'l>,
) -> Option<()> {
    let mut cursor = Cursor { rest: line };
    cursor.skip(b"{\"v\":2,\"time\":\"").or_else(|| cursor.skip(b"{\"v\":1,\"time\":\""))?;
    decision.time = cursor.time(&mut repeated.second)?;
    match cursor.skip(b"\",\"run\":\"") {
        Some(()) => decision.place = Some(cursor.place(&mut repeated.run)?),
        None => cursor.skip(b"\"")?,
    }
    cursor.skip(b",\"domain\":\"")?;
    decision.request.set_domain(cursor.text().filter(|domain| !domain.is_empty())?);
    cursor.skip(b",\"code\":\"")?;
    decision.code = cursor.code()?;
    cursor.skip(b",\"sample\":")?;
    if cursor.skip(b"1.0,").is_none() {
        decision.sample = cursor.until_comma()?.parse().ok()?;
    }
    cursor.skip(b"\"latency_ns\":")?;
    cursor.skip_number()?;
    // Skips the peer and the trace.
    if cursor.skip(b",\"peer\":\"").is_some() {
        cursor.skip_text()?;
    }
    if cursor.skip(b",\"trace_id\":\"").is_some() {
        cursor.skip_text()?;
    }
    if cursor.skip(b",\"span_id\":\"").is_some() {
        cursor.skip_text()?;
    }
    if cursor.skip(b",\"ticket\":\"").is_some() {
        decision.ticket = Some(cursor.text()?);
    }
    cursor.skip(b",\"descriptors\":[")?;
    loop {
        cursor.descriptor(decision)?;
        if cursor.skip(b",").is_none() {
            break;
        }
    }
    cursor.skip(b"]}")?;
    // Complete: the domain is not empty, and there is a descriptor. The size is not checked, as the server has accepted it.
    matches!(cursor.rest, b"" | b"\n").then_some(())
}

/// The rest of a line. Texts that are skipped may have any bytes, as for the parser.
struct Cursor<'l> {
    rest: &'l [u8],
}

impl<'l> Cursor<'l> {
    #[inline(always)]
    fn skip(&mut self, text: &[u8]) -> Option<()> {
        self.rest = self.rest.strip_prefix(text)?;
        Some(())
    }

    /// Reads up to a comma, and skips the comma.
    fn until_comma(&mut self) -> Option<&'l str> {
        let comma = self.rest.iter().position(|byte| *byte == b',')?;
        let text = std::str::from_utf8(&self.rest[..comma]).ok()?;
        self.rest = &self.rest[comma + 1..];
        Some(text)
    }

    /// Reads a text without escapes, and the quote at its end.
    #[inline(always)]
    fn text(&mut self) -> Option<&'l str> {
        std::str::from_utf8(self.skip_text()?).ok()
    }

    #[inline(always)]
    fn skip_text(&mut self) -> Option<&'l [u8]> {
        let (text, rest) = self.rest.split_at_checked(end_of_text(self.rest)?)?;
        self.rest = rest.strip_prefix(b"\"")?;
        Some(text)
    }

    #[inline(always)]
    fn code(&mut self) -> Option<Code> {
        match self.skip(b"OK\"") {
            Some(()) => Some(Code::Ok),
            None => self.skip(b"OVER_LIMIT\"").map(|()| Code::OverLimit),
        }
    }

    /// Reads a number without sign, fraction or leading zeros.
    #[inline(always)]
    fn number(&mut self) -> Option<u64> {
        // Many numbers have one digit.
        if let [digit @ b'0'..=b'9', next, ..] = self.rest
            && !next.is_ascii_digit()
        {
            self.rest = &self.rest[1..];
            return Some(u64::from(digit - b'0'));
        }
        self.long_number()
    }

    fn long_number(&mut self) -> Option<u64> {
        let (number, end) = leading_number(self.rest)?;
        if end == 0 || end > 1 && self.rest[0] == b'0' {
            return None;
        }
        self.rest = &self.rest[end..];
        Some(number)
    }

    /// Skips a number that the parser would read. Leaves the longest numbers to the parser.
    #[inline(always)]
    fn skip_number(&mut self) -> Option<()> {
        let digits = leading_digits(self.rest);
        if !(1..20).contains(&digits) || digits > 1 && self.rest[0] == b'0' {
            return None;
        }
        self.rest = &self.rest[digits..];
        Some(())
    }

    /// Reads a place after the name of its first field.
    #[inline]
    fn place(&mut self, known: &mut ([u8; RUN_BYTES], u64)) -> Option<Place> {
        let digits: &[u8; RUN_BYTES] = self.rest.first_chunk()?;
        if *digits != known.0 {
            *known = (*digits, run(digits)?);
        }
        self.rest = &self.rest[RUN_BYTES..];
        self.skip(b"\",\"seq\":")?;
        let number = self.number()?;
        self.skip(b",\"generation\":")?;
        Some(Place { run: known.1, number, generation: self.number()? })
    }

    /// Reads `2026-03-01T12:00:00.000000001Z`.
    #[inline]
    fn time(&mut self, known: &mut ([u8; SECOND_BYTES], u64)) -> Option<Timestamp> {
        let bytes: &[u8; 30] = self.rest.first_chunk()?;
        let (second, nanos) = bytes.split_first_chunk::<SECOND_BYTES>()?;
        if *second != known.0 {
            *known = (*second, nanos_of_second(second)?);
        }
        let (nanos, digits) = leading_number(nanos)?;
        if digits != 9 || bytes[29] != b'Z' {
            return None;
        }
        self.rest = &self.rest[bytes.len()..];
        Some(Timestamp::from_nanos(known.1 + nanos))
    }

    #[inline(always)]
    fn descriptor(&mut self, decision: &mut LoggedDecision<'l>) -> Option<()> {
        self.skip(b"{\"entries\":[")?;
        let mut descriptor = Descriptor { entries: SmallVec::new(), limit: None, hits: Hits::ONE };
        loop {
            self.skip(b"{\"key\":\"")?;
            let key = self.text()?;
            self.skip(b",\"value\":\"")?;
            descriptor.entries.push(Entry { key, value: self.text()? });
            self.skip(b"}")?;
            if self.skip(b",").is_none() {
                break;
            }
        }
        self.skip(b"],\"hits\":")?;
        let hits = NonZeroU64::new(self.number()?);
        let gives_back = self.skip(b",\"give_back\":true").is_some();
        descriptor.hits = match (hits, gives_back) {
            (None, _) => Hits::Peek,
            (Some(hits), false) => Hits::Take(hits),
            (Some(hits), true) => Hits::GiveBack(hits),
        };
        decision.request.push(descriptor);
        self.skip(b",\"code\":\"")?;
        let code = self.code()?;
        let rule = self.rule()?;
        self.skip(b",\"remaining\":")?;
        let remaining = u32::try_from(self.number()?).ok()?;
        self.skip(b",\"reset_ns\":")?;
        let reset = match self.skip(b"null") {
            Some(()) => Reset::Never,
            None => Reset::After(Duration::from_nanos(self.number()?)),
        };
        self.skip(b"}")?;
        let reset = rule.is_some().then_some(reset);
        decision.statuses.push(Some(LoggedStatus { code, remaining, reset, rule }));
        Some(())
    }

    /// Reads the path of a limit's rule. None if there is no limit.
    #[inline(always)]
    fn rule(&mut self) -> Option<Option<&'l str>> {
        self.skip(b",\"limit\":")?;
        if self.skip(b"null").is_some() {
            return Some(None);
        }
        self.skip(b"{")?;
        if self.skip(b"\"name\":\"").is_some() {
            self.skip_text()?;
            self.skip(b",")?;
        }
        let mut rule = "";
        if self.skip(b"\"rule\":\"").is_some() {
            rule = self.text()?;
            self.skip(b",")?;
        }
        self.skip(b"\"requests\":")?;
        self.skip_number()?;
        self.skip(b",\"window_ns\":")?;
        self.skip_number()?;
        self.skip(b"}")?;
        Some(Some(rule))
    }
}

/// Nanoseconds since 1970 of `2026-03-01T12:00:00.`.
fn nanos_of_second(bytes: &[u8; SECOND_BYTES]) -> Option<u64> {
    const FORM: &[u8; SECOND_BYTES] = b"0000-00-00T00:00:00.";
    let has_form = bytes
        .iter()
        .zip(FORM)
        .all(|(byte, form)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form });
    // The time may be a leap second: left to the parser.
    if !has_form || bytes[17] > b'5' {
        return None;
    }
    let time: DateTime = str::from_utf8(&bytes[..SECOND_BYTES - 1]).ok()?.parse().ok()?;
    let seconds = Offset::UTC.to_timestamp(time).ok()?.as_second();
    u64::try_from(seconds).ok().filter(|_| time.year() < 2500).map(|seconds| seconds * 1_000_000_000)
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

#[cfg(test)]
mod tests {
    use super::{
        super::{Event, Step, line},
        *,
    };

    const LINE: &str = r#"{"v":2,"time":"2026-03-01T12:00:00.000000001Z","run":"00ff00000000000a","seq":18446744073709551615,"generation":3,"domain":"edge","code":"OVER_LIMIT","sample":0.25,"latency_ns":1840,"peer":"10.0.0.7","trace_id":"0af7651916cd43dd8448eb211c80319c","span_id":"b7ad6b7169203331","descriptors":[{"entries":[{"key":"user","value":"é"},{"key":"path","value":""}],"hits":2,"code":"OVER_LIMIT","limit":{"name":"short","rule":"user","requests":10,"window_ns":60000000000},"remaining":0,"reset_ns":1500},{"entries":[{"key":"a","value":"b"}],"hits":1,"give_back":true,"code":"OK","limit":null,"remaining":0,"reset_ns":null}]}"#;

    fn event(line: &[u8], repeated: &mut Repeated) -> Option<Event> {
        let mut decision = LoggedDecision::default();
        parse(line, repeated, &mut decision).map(|()| decision.to_event())
    }

    #[test]
    fn a_line_of_the_server_is_read_as_by_the_parser() {
        let place = ",\"run\":\"00ff00000000000a\",\"seq\":18446744073709551615,\"generation\":3";
        let first_version = LINE.replace("\"v\":2", "\"v\":1").replace(place, "");
        let without_peer = LINE.replace(",\"peer\":\"10.0.0.7\"", "");
        let with_ticket = LINE.replace(",\"descriptors\"", ",\"ticket\":\"slot-1\",\"descriptors\"");
        for text in [LINE.to_owned(), format!("{LINE}\n"), without_peer, with_ticket, first_version] {
            let Ok(line::LineContent::Step(Step::Decision(parsed))) = line::parse_json(text.as_bytes())
            else {
                panic!("{text}")
            };
            let repeated = &mut Repeated::default();
            // In the second iteration, a part repeats the line before.
            for _ in 0..2 {
                assert_eq!(event(text.as_bytes(), repeated).as_ref(), Some(&parsed));
            }
        }
    }

    #[test]
    fn a_line_in_another_form_is_left_to_the_parser() {
        let repeated = &mut Repeated::default();
        assert!(event(LINE.as_bytes(), repeated).is_some());
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
            ("\"latency_ns\":1840", "\"latency_ns\":01840"),
            ("\"latency_ns\":1840", "\"latency_ns\":18446744073709551616"),
            ("\"requests\":10", "\"requests\":"),
            ("\"hits\":2", "\"hits\":2,\"own_limit\":{\"requests\":5,\"unit\":\"hour\"}"),
            ("\"domain\":\"edge\"", "\"domain\":\"\""),
            ("2026-03-01", "2026-02-29"),
            ("12:00:00", "12:00:60"),
            ("]}", "]} x"),
            ("]}", "],\"new\":1}"),
            (",\"descriptors\"", ",\"ticket_hash\":\"ab\",\"descriptors\""),
        ] {
            assert!(LINE.contains(part));
            assert_eq!(event(LINE.replace(part, other).as_bytes(), repeated), None, "{other}");
        }
        assert_eq!(event(b"\xff\xfe", repeated), None);
        for end in (0..LINE.len()).filter(|&end| LINE.is_char_boundary(end)) {
            assert_eq!(event(&LINE.as_bytes()[..end], repeated), None, "{end} bytes of the line");
        }
    }

    #[test]
    fn times_are_those_of_the_parser() {
        for day in ["1970-01-01", "1999-12-31", "2000-02-29", "2024-02-29", "2026-02-28", "2100-03-01"] {
            let text = format!("{day}T23:59:59.999999999Z");
            let known = &mut Repeated::default().second;
            assert_eq!((Cursor { rest: text.as_bytes() }).time(known), line::time(&text), "{text}");
        }
    }
}
