//! Headers of trace contexts: a context that was read and written in either form is read as the same context.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_service::{Propagators, TraceContext};

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fuzz_target!(|value: &[u8]| {
    for context in [TraceContext::from_traceparent(value), TraceContext::from_b3(value)].into_iter().flatten()
    {
        let TraceContext { trace_id, span_id, is_sampled } = context;
        let (trace_id, span_id, sampled) = (hex(&trace_id), hex(&span_id), u8::from(is_sampled));
        let traceparent = format!("00-{trace_id}-{span_id}-{sampled:02x}");
        assert_eq!(TraceContext::from_traceparent(traceparent.as_bytes()), Some(context));
        let b3 = format!("{trace_id}-{span_id}-{sampled}");
        assert_eq!(TraceContext::from_b3(b3.as_bytes()), Some(context));
    }
    // Each header has a part of the value.
    let all: Propagators = "b3multi,b3,tracecontext".parse().expect("known names");
    let parts: Vec<&[u8]> = value.split(|byte| *byte == b'\n').collect();
    let headers: Vec<&str> = Propagators::all_headers().collect();
    let header = |name: &str| parts.get(headers.iter().position(|known| *known == name)?).copied();
    if let Some(context) = all.context(header) {
        assert!(context.trace_id != [0; 16] && context.span_id != [0; 8]);
    }
});
