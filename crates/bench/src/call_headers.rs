//! The headers of the load generator's calls: those of a default Envoy.

use std::time::Duration;
use tidegate_http2::client::RequestEncoder;

const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Headers of calls to the server `authority`, with a `grpc-timeout` if `timeout` is given.
pub(crate) fn call_headers(authority: &str, timeout: Option<Duration>) -> RequestEncoder {
    let timeout_ms = timeout.map(|timeout| timeout.as_millis().to_string());
    let grpc_timeout = timeout_ms.as_ref().map(|ms| format!("{ms}m"));
    let mut fields = vec![
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("x-envoy-internal", "true"),
        ("x-forwarded-for", "127.0.0.1"),
    ];
    fields.extend(grpc_timeout.as_deref().map(|timeout| ("grpc-timeout", timeout)));
    fields.extend(timeout_ms.as_deref().map(|ms| ("x-envoy-expected-rq-timeout-ms", ms)));
    RequestEncoder::new(PATH, &fields)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http2::{FieldNames, hpack::Decoder};

    fn fields(timeout: Option<Duration>) -> Vec<(String, String)> {
        let mut encoder = call_headers("limits.example:8081", timeout);
        let mut decoder = Decoder::new(FieldNames::none());
        decoder.decode(encoder.next_block(), usize::MAX).expect("a valid block");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        decoder.fields().all().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn a_timeout_is_sent_only_if_given() {
        let with = fields(Some(Duration::from_millis(20)));
        for (name, value) in [(":authority", "limits.example:8081"), (":path", PATH), ("grpc-timeout", "20m")]
        {
            assert!(with.contains(&(name.to_owned(), value.to_owned())), "{name}: {value}");
        }
        let without = fields(None);
        assert!(!without.iter().any(|(name, _)| name.ends_with("timeout") || name.ends_with("-ms")));
    }
}
