//! Metrics, and the trace context that a server receives.

use crate::servers::serve;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use opentelemetry::{
    Context, global,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};
use tidegate_client::{Reason, Tidegate};
use tokio::net::TcpListener;

const HUNDRED: &str =
    "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}";

/// Numbers of updates by name and labels.
#[derive(Clone, Default)]
struct Recorded(Arc<Mutex<BTreeMap<String, u64>>>);

struct Updates(Recorded, String);

impl Updates {
    fn add(&self, count: u64) {
        *self.0.0.lock().expect("no panic").entry(self.1.clone()).or_default() += count;
    }
}

impl metrics::CounterFn for Updates {
    fn increment(&self, count: u64) {
        self.add(count);
    }

    fn absolute(&self, _: u64) {}
}

impl metrics::HistogramFn for Updates {
    fn record(&self, _: f64) {
        self.add(1);
    }
}

impl Recorded {
    fn updates(&self, key: &Key) -> Arc<Updates> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(Updates(self.clone(), format!("{} {}", key.name(), labels.join(","))))
    }
}

impl Recorder for Recorded {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.updates(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.updates(key))
    }
}

#[tokio::test]
async fn decisions_are_counted_by_reason() {
    let recorder = Recorded::default();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let server = serve(HUNDRED, &[]);
    let client = Tidegate::builder(&server.address).domain("d").timeout(Duration::from_secs(5));
    let client = client.metrics().build().expect("a client");
    for _ in 0..2 {
        client.limit([("user", "a")]).await.expect("a decision");
    }
    let expected = [
        ("tidegate_client_decisions_total allowed=true,reason=decided,error=".to_owned(), 2),
        ("tidegate_client_seconds reason=decided".to_owned(), 2),
    ];
    assert_eq!(*recorder.0.lock().expect("no panic"), BTreeMap::from(expected));
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
