//! The trace context of a call, the formats in which callers send it, and which of these are read.

use std::fmt;

/// The trace context of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// Never zero.
    pub trace_id: [u8; 16],
    /// The span that the call belongs to. Never zero.
    pub span_id: [u8; 8],
    /// Whether the caller records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    fn new(trace_id: [u8; 16], span_id: [u8; 8], is_sampled: bool) -> Option<Self> {
        (trace_id != [0; 16] && span_id != [0; 8]).then_some(Self { trace_id, span_id, is_sampled })
    }

    /// Parses the value of a `traceparent` header. None if it is not valid; it is then ignored, as W3C requires.
    pub fn from_traceparent(value: &[u8]) -> Option<Self> {
        let [version @ .., b'-'] = value.get(..3)? else { return None };
        let version: [u8; 1] = bytes_of_hex(version)?;
        let (trace_id, span_id, flags) = (value.get(3..35)?, value.get(36..52)?, value.get(53..55)?);
        // Later versions may append fields, after a hyphen.
        let has_valid_end = match value.get(55) {
            None => true,
            Some(separator) => version != [0] && *separator == b'-',
        };
        if version == [0xff] || value[35] != b'-' || value[52] != b'-' || !has_valid_end {
            return None;
        }
        let [flags] = bytes_of_hex(flags)?;
        Self::new(bytes_of_hex(trace_id)?, bytes_of_hex(span_id)?, flags & 1 == 1)
    }

    /// Parses the value of a `b3` header: trace id, span id and, if the caller has decided, the sampling state, which the parent's id may
    /// follow. None if it is not valid, or has only a sampling state.
    pub fn from_b3(value: &[u8]) -> Option<Self> {
        let mut parts = value.split(|byte| *byte == b'-');
        let (trace_id, span_id) = (parts.next()?, parts.next()?);
        let is_sampled = match parts.next() {
            None | Some(b"0") => false,
            Some(b"1" | b"d") => true,
            Some(_) => return None,
        };
        let has_valid_end = parts.next().is_none_or(|parent| bytes_of_hex::<8>(parent).is_some());
        if !has_valid_end || parts.next().is_some() {
            return None;
        }
        Self::new(b3_trace_id(trace_id)?, bytes_of_hex(span_id)?, is_sampled)
    }

    /// Parses the values of the headers `x-b3-traceid`, `x-b3-spanid`, `x-b3-sampled` and `x-b3-flags`.
    fn from_b3_multi<'h>(header: impl Fn(&str) -> Option<&'h [u8]>) -> Option<Self> {
        let (trace_id, span_id) = (header(B3_TRACE_ID)?, header(B3_SPAN_ID)?);
        // Debug implies that the trace is recorded.
        let is_debug = header(B3_FLAGS) == Some(b"1");
        let is_sampled = is_debug || matches!(header(B3_SAMPLED), Some(b"1" | b"true"));
        Self::new(b3_trace_id(trace_id)?, bytes_of_hex(span_id)?, is_sampled)
    }
}

/// A trace id of 128 bits, or of 64 bits, which are the lower ones.
fn b3_trace_id(digits: &[u8]) -> Option<[u8; 16]> {
    if digits.len() == 32 {
        return bytes_of_hex(digits);
    }
    let mut id = [0; 16];
    id[8..].copy_from_slice(&bytes_of_hex::<8>(digits)?);
    Some(id)
}

/// The bytes of lower-case hexadecimal digits.
fn bytes_of_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    if digits.len() != 2 * N {
        return None;
    }
    // The loop has no branches, so that the compiler can process several digits at once.
    let (mut bytes, mut is_valid) = ([0; N], true);
    let mut value = |digit: u8| {
        let (number, letter) = (digit.wrapping_sub(b'0'), digit.wrapping_sub(b'a'));
        is_valid &= (number < 10) | (letter < 6);
        if number < 10 { number } else { letter.wrapping_add(10) }
    };
    for (byte, &[high, low]) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
        *byte = value(high) << 4 | value(low) & 0xf;
    }
    is_valid.then_some(bytes)
}

const TRACEPARENT: &str = "traceparent";
const B3: &str = "b3";
const B3_TRACE_ID: &str = "x-b3-traceid";
const B3_SPAN_ID: &str = "x-b3-spanid";
const B3_SAMPLED: &str = "x-b3-sampled";
const B3_FLAGS: &str = "x-b3-flags";

/// A format in which callers send a trace context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Format {
    TraceContext,
    B3,
    B3Multi,
}

impl Format {
    const ALL: [Self; 3] = [Self::TraceContext, Self::B3, Self::B3Multi];

    fn headers(self) -> &'static [&'static str] {
        match self {
            Self::TraceContext => &[TRACEPARENT],
            Self::B3 => &[B3],
            Self::B3Multi => &[B3_TRACE_ID, B3_SPAN_ID, B3_SAMPLED, B3_FLAGS],
        }
    }
}

/// The formats that are read. If a call has several, the last valid one applies.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Propagators([Option<Format>; Format::ALL.len()]);

/// An unknown name of a format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a known format; write a list of tracecontext, b3 and b3multi, or none")]
pub struct UnknownPropagator(String);

impl Default for Propagators {
    /// W3C Trace Context.
    fn default() -> Self {
        Self([Some(Format::TraceContext), None, None])
    }
}

impl fmt::Debug for Propagators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().flatten()).finish()
    }
}

impl std::str::FromStr for Propagators {
    type Err = UnknownPropagator;

    /// Parses the list of names in `OTEL_PROPAGATORS`. `baggage` is accepted, but contains no trace context.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut formats: Vec<Format> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let format = match name {
                "tracecontext" => Format::TraceContext,
                "b3" => Format::B3,
                "b3multi" => Format::B3Multi,
                "baggage" | "none" | "" => continue,
                _ => return Err(UnknownPropagator(name.to_owned())),
            };
            if !formats.contains(&format) {
                formats.push(format);
            }
        }
        let mut propagators = Self([None; Format::ALL.len()]);
        for (place, format) in propagators.0.iter_mut().zip(formats) {
            *place = Some(format);
        }
        Ok(propagators)
    }
}

impl Propagators {
    /// The headers of all formats.
    pub fn all_headers() -> impl Iterator<Item = &'static str> {
        Format::ALL.into_iter().flat_map(|format| format.headers().iter().copied())
    }

    /// Whether a format that is read includes this header.
    #[inline]
    pub fn read(&self, header: &[u8]) -> bool {
        let has = |format: &Format| format.headers().iter().any(|name| name.as_bytes() == header);
        self.0.iter().flatten().any(has)
    }

    /// The context of a call with these headers.
    pub fn context<'h>(&self, header: impl Fn(&str) -> Option<&'h [u8]>) -> Option<TraceContext> {
        let parse = |format: &Format| match format {
            Format::TraceContext => TraceContext::from_traceparent(header(TRACEPARENT)?),
            Format::B3 => TraceContext::from_b3(header(B3)?),
            Format::B3Multi => TraceContext::from_b3_multi(&header),
        };
        self.0.iter().flatten().rev().find_map(parse)
    }

    /// The context of a call in which one header has this value and no other header has changed. None if the context depends on other
    /// headers.
    #[inline]
    pub fn context_of(&self, header: &[u8], value: &[u8]) -> Option<Option<TraceContext>> {
        match (self.0, header) {
            ([Some(Format::TraceContext), None, None], b"traceparent") => {
                Some(TraceContext::from_traceparent(value))
            }
            ([Some(Format::B3), None, None], b"b3") => Some(TraceContext::from_b3(value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";
    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn context(is_sampled: bool) -> TraceContext {
        let (trace_id, span_id) = (bytes_of_hex(TRACE.as_bytes()), bytes_of_hex(SPAN.as_bytes()));
        TraceContext { trace_id: trace_id.expect("hex"), span_id: span_id.expect("hex"), is_sampled }
    }

    #[test]
    fn hexadecimal_digits_are_lower_case_and_complete() {
        assert_eq!(bytes_of_hex::<5>(b"09af5e90fa"), Some([0x09, 0xaf, 0x5e, 0x90, 0xfa]));
        for byte in 0..=255_u8 {
            let is_digit = byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            assert_eq!(bytes_of_hex::<1>(&[byte, b'0']).is_some(), is_digit, "{byte:#x}");
            assert_eq!(bytes_of_hex::<1>(&[b'0', byte]).is_some(), is_digit, "{byte:#x}");
        }
        assert_eq!(bytes_of_hex::<2>(b"000"), None);
    }

    #[test]
    fn a_traceparent_is_read_as_w3c_requires() {
        assert_eq!(TraceContext::from_traceparent(VALID.as_bytes()), Some(context(true)));
        let unsampled = TraceContext::from_traceparent(VALID.replace("-01", "-00").as_bytes());
        assert_eq!(unsampled, Some(context(false)));
        let later = TraceContext::from_traceparent(format!("cc{}-more", &VALID[2..]).as_bytes());
        assert_eq!(later, Some(context(true)), "a later version may append fields");
    }

    #[test]
    fn an_invalid_traceparent_is_ignored() {
        let zero_trace = format!("00-{}-b7ad6b7169203331-01", "0".repeat(32));
        let zero_span = format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16));
        let invalid = [
            String::new(),
            VALID[..54].into(),
            format!("{VALID}-"),
            format!("ff{}", &VALID[2..]),
            format!("cc{}x", &VALID[2..]),
            VALID.to_uppercase(),
            VALID.replace('-', "_"),
            zero_trace,
            zero_span,
        ];
        for value in invalid {
            assert_eq!(TraceContext::from_traceparent(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn a_b3_header_has_ids_and_a_sampling_state() {
        for (state, is_sampled) in
            [("-1", true), ("-d", true), ("-0", false), ("", false), ("-1-05e3ac9a4f6e3b90", true)]
        {
            let value = format!("{TRACE}-{SPAN}{state}");
            assert_eq!(TraceContext::from_b3(value.as_bytes()), Some(context(is_sampled)), "{value}");
        }
        let short = TraceContext::from_b3(format!("{}-{SPAN}-1", &TRACE[16..]).as_bytes()).expect("valid");
        assert_eq!((&short.trace_id[..8], &short.trace_id[8..]), (&[0; 8][..], &context(true).trace_id[8..]));
        for value in ["0", "1", "", TRACE, &format!("{TRACE}-{SPAN}-x"), &format!("{TRACE}-{SPAN}-1-x")] {
            assert_eq!(TraceContext::from_b3(value.as_bytes()), None, "{value}");
        }
    }

    fn read(propagators: &str, headers: &[(&str, &str)]) -> Option<TraceContext> {
        let propagators: Propagators = propagators.parse().expect("known formats");
        let header =
            |name: &str| headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_bytes());
        assert!(
            headers.iter().all(|(name, _)| propagators.read(name.as_bytes()))
                || propagators.context(header).is_none()
        );
        propagators.context(header)
    }

    #[test]
    fn the_b3_headers_are_read_together() {
        let ids = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN)];
        let with = |state: &'static [(&'static str, &'static str)]| read("b3multi", &[&ids, state].concat());
        assert_eq!(with(&[]), Some(context(false)));
        assert_eq!(with(&[("x-b3-sampled", "1")]), Some(context(true)));
        assert_eq!(with(&[("x-b3-sampled", "true")]), Some(context(true)));
        assert_eq!(with(&[("x-b3-sampled", "0")]), Some(context(false)));
        assert_eq!(with(&[("x-b3-flags", "1")]), Some(context(true)));
        assert_eq!(read("b3multi", &ids[..1]), None);
    }

    #[test]
    fn only_the_listed_formats_are_read_and_the_last_valid_one_applies() {
        let b3 = ("b3", "00000000000000000000000000000001-0000000000000002-0");
        let other = TraceContext::from_b3(b3.1.as_bytes());
        assert_eq!(read("tracecontext,baggage", &[("traceparent", VALID)]), Some(context(true)));
        assert_eq!(read("b3", &[("traceparent", VALID)]), None);
        assert_eq!(read("none", &[("traceparent", VALID)]), None);
        assert_eq!(read("tracecontext, b3", &[("traceparent", VALID), b3]), other);
        assert_eq!(read("b3,tracecontext", &[("traceparent", VALID), b3]), Some(context(true)));
        assert_eq!(read("tracecontext,b3", &[("traceparent", VALID), ("b3", "0")]), Some(context(true)));
        assert!(
            "tracecontext,jaeger"
                .parse::<Propagators>()
                .is_err_and(|error| error.to_string().contains("jaeger"))
        );
    }

    #[test]
    fn a_value_that_changes_alone_is_parsed_alone_where_it_depends_on_no_other() {
        let of = |propagators: &str, header: &str, value: &str| {
            let propagators: Propagators = propagators.parse().expect("known formats");
            propagators.context_of(header.as_bytes(), value.as_bytes())
        };
        assert_eq!(of("tracecontext", "traceparent", VALID), Some(Some(context(true))));
        assert_eq!(of("tracecontext", "traceparent", "x"), Some(None));
        assert_eq!(of("b3", "b3", &format!("{TRACE}-{SPAN}-0")), Some(Some(context(false))));
        assert_eq!(of("b3multi", "x-b3-traceid", TRACE), None);
        assert_eq!(of("tracecontext,b3", "traceparent", VALID), None);
    }
}
