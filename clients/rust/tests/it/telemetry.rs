//! Metrics, and the trace context that a server receives.

use crate::servers::serve;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use opentelemetry::{
    Context, global,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::time::Duration;
use tidegate_client::{Reason, Tidegate};
use tokio::net::TcpListener;

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

#[tokio::test]
async fn decisions_are_counted_by_reason() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = serve(HUNDRED, &[]);
    let client = Tidegate::builder(&server.address).domain("d").timeout(Duration::from_secs(5));
    let client = client.metrics().build().expect("a client");
    for _ in 0..2 {
        client.limit([("user", "a")]).await.expect("a decision");
    }
    let mut found: Vec<String> = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<_> =
            key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Histogram(times) => format!("{} times", times.len()),
            DebugValue::Gauge(_) => "gauge".to_owned(),
        };
        found.push(format!("{} {}: {value}", key.key().name(), labels.join(",")));
    }
    found.sort();
    let expected = [
        "tidegate_client_decisions_total allowed=true,reason=decided,error=: 2",
        "tidegate_client_seconds reason=decided: 2 times",
    ];
    assert_eq!(found, expected);
}

/// Admits one call, and returns the headers of its request.
async fn admit_one(listener: TcpListener) -> HeaderMap {
    let (stream, _) = listener.accept().await.expect("a connection");
    let mut connection = h2::server::handshake(stream).await.expect("HTTP/2");
    let (request, mut respond) = connection.accept().await.expect("a request").expect("a request");
    tokio::spawn(async move { while connection.accept().await.is_some() {} });
    let response = Response::builder().header("content-type", "application/grpc").body(());
    let mut body = respond.send_response(response.expect("a response"), false).expect("it is sent");
    body.send_data(Bytes::from_static(&[0, 0, 0, 0, 2, 0x08, 0x01]), false).expect("it is sent");
    let status = (HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"));
    body.send_trailers(HeaderMap::from_iter([status])).expect("it is sent");
    request.headers().clone()
}

#[tokio::test]
async fn the_trace_context_is_passed_on() {
    global::set_text_map_propagator(TraceContextPropagator::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let received = tokio::spawn(admit_one(listener));
    let client = Tidegate::builder(address).domain("d").timeout(Duration::from_secs(5)).trace_context();
    let client = client.build().expect("a client");
    let span = SpanContext::new(
        TraceId::from(1_u128),
        SpanId::from(2_u64),
        TraceFlags::SAMPLED,
        false,
        TraceState::default(),
    );
    let _guard = Context::new().with_remote_span_context(span).attach();
    let decision = client.limit([("user", "a")]).await.expect("a decision");
    assert_eq!((decision.reason, decision.allowed), (Reason::Decided, true));
    let headers = received.await.expect("headers");
    assert_eq!(headers["traceparent"], "00-00000000000000000000000000000001-0000000000000002-01");
}
