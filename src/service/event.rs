//! A sent decision, as its readers receive it.

use crate::{
    clock::Clock,
    limit::{Decision, Request, Timestamp},
};
use std::time::Duration;

/// The W3C trace context of a call.
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
    /// Parses the value of a `traceparent` header. None if it is not valid: it is then ignored, as W3C requires.
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
        let context = Self {
            trace_id: bytes_of_hex(trace_id)?,
            span_id: bytes_of_hex(span_id)?,
            is_sampled: flags & 1 == 1,
        };
        (context.trace_id != [0; 16] && context.span_id != [0; 8]).then_some(context)
    }
}

/// The bytes that lower-case hexadecimal digits stand for.
fn bytes_of_hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if digits.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

/// The call that a request arrived in.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CallOrigin<'c> {
    /// The other end of the connection, for operators; empty if it is unknown.
    pub peer: &'c str,
    /// The trace context that the caller sent.
    pub trace: Option<TraceContext>,
}

/// A sent decision.
pub struct Event<'e, 't, 'r> {
    /// The request.
    pub request: &'e Request<'t>,
    /// The decision.
    pub decision: &'e Decision<'r>,
    /// The call.
    pub origin: CallOrigin<'e>,
    /// The time at which the request was received.
    pub received: Timestamp,
    pub(super) clock: &'e dyn Clock,
}

impl Event<'_, '_, '_> {
    /// The time since the request was received. Reads the clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.now().since(self.received)
    }
}

/// Reads sent decisions, on the thread that sends them. It must not block, and should not allocate.
pub trait DecisionReader: Send + Sync + 'static {
    /// Reads a decision.
    fn read(&self, event: &Event<'_, '_, '_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_as_w3c_requires() {
        let context = TraceContext::from_traceparent(VALID.as_bytes()).expect("valid");
        assert_eq!((context.trace_id[..2].to_vec(), context.span_id[7]), (vec![0x0a, 0xf7], 0x31));
        assert!(context.is_sampled);
        let unsampled = TraceContext::from_traceparent(VALID.replace("-01", "-00").as_bytes());
        assert!(!unsampled.expect("valid").is_sampled);
        let later = TraceContext::from_traceparent(format!("cc{}-more", &VALID[2..]).as_bytes());
        assert_eq!(later, Some(context), "a later version may append fields");
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
}
