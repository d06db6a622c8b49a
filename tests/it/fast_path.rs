//! The fast path and tonic's path respond alike: the same requests go to one port unchanged, and to a second port with its own counters in
//! a form that its router has to serve; the responses are compared byte by byte.

use crate::support::{
    descriptor,
    http2::{SHOULD_RATE_LIMIT, framed, grpc, plain},
    limiter,
};
use http::{HeaderMap, HeaderValue, request::Builder};
use proptest::prelude::*;
use prost::Message;
use std::{sync::Arc, time::Duration};
use tidegate::api::{
    GrpcPort, LongLivedBounds, RouteSettings,
    pb::{
        common::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        health::HealthCheckRequest,
        service::RateLimitRequest,
    },
    routes,
};
use tidegate_core::{
    clock::ManualClock,
    limit::{RequestLimits, Timestamp},
};
use tidegate_http2::{Http2Settings, Service};
use tidegate_service::{
    PlainHeaders, RateLimitService, ResponseHeaders, ResponseOptions, RetryAfter, StructuredHeaders,
};

const RULES: &str = "
domain: demo
descriptors:
  - key: api_key
    rate_limit: { name: per-key, unit: minute, requests_per_unit: 3 }
  - key: fixed
    rate_limit: { unit: day, requests_per_unit: 2, algorithm: fixed_window }
  - key: window
    rate_limit: { per: 90500ms, requests_per_unit: 2 }
  - key: free
    rate_limit: { unlimited: true }
  - key: marked
    rate_limit: { unit: day, requests_per_unit: 1, algorithm: fixed_window }
    on_deny: { mark: { header: x-rate-limited, value: yes } }
  - key: worded
    rate_limit: { unit: day, requests_per_unit: 1, algorithm: fixed_window }
    on_deny: { body: too fast, headers: { content-type: text/plain } }
";

const MESSAGE_BYTES_MAX: usize = 4096;

/// HTTP status, headers, body and trailers of a response.
type Response = (u16, HeaderMap, Vec<u8>, Option<HeaderMap>);

fn port(options: ResponseOptions) -> Arc<GrpcPort> {
    port_with(RULES, options)
}

fn port_with(rules: &str, options: ResponseOptions) -> Arc<GrpcPort> {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_123_456)));
    let limits =
        RequestLimits { descriptors_max: 3, entries_max: 3, text_bytes_max: 100, ..RequestLimits::default() };
    let service =
        RateLimitService::new(Arc::new(limiter(rules)), clock, limits).with_response_options(options);
    let routes = routes(
        service.clone(),
        None,
        None,
        RouteSettings { message_bytes_max: MESSAGE_BYTES_MAX, first_message_within: Duration::from_secs(30) },
    );
    Arc::new(GrpcPort::new(service, routes, MESSAGE_BYTES_MAX, LongLivedBounds::default()))
}

/// A piece of a request's body.
enum Piece {
    Data(Vec<u8>),
    Trailers(HeaderMap),
}

/// Sends a request over a new connection.
async fn send(port: &Arc<GrpcPort>, head: Builder, pieces: Vec<Piece>) -> Response {
    let (client, server) = tokio::io::duplex(1 << 20);
    let serving = tidegate_http2::serve(
        server,
        Arc::clone(port),
        Http2Settings::default(),
        Arc::default(),
        None,
        std::future::pending(),
    );
    let (mut requests, connection) = h2::client::handshake(client).await.expect("the server speaks HTTP/2");
    let asking = async {
        let head = head.body(()).expect("tests write well-formed heads");
        let (response, mut stream) = requests.send_request(head, pieces.is_empty()).expect("a good head");
        let mut left = pieces.len();
        for piece in pieces {
            left -= 1;
            // A request that is refused early accepts no more data.
            let _ = match piece {
                Piece::Data(data) => stream.send_data(data.into(), left == 0),
                Piece::Trailers(trailers) => stream.send_trailers(trailers),
            };
        }
        let (head, mut body) = response.await.expect("a response").into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            bytes.extend_from_slice(&data.expect("a body that ends well"));
        }
        let trailers = body.trailers().await.expect("a body that ends well");
        (head.status.as_u16(), head.headers, bytes, trailers)
    };
    tokio::select! {
        response = asking => response,
        ended = serving => panic!("the server ended the connection: {ended:?}"),
        ended = connection => panic!("the client ended the connection: {ended:?}"),
    }
}

/// Two ports in the same state; requests to one of them must be served by its router.
struct Pair {
    fast: Arc<GrpcPort>,
    routed: Arc<GrpcPort>,
}

impl Pair {
    async fn new() -> Self {
        Self::with_options(ResponseOptions::default()).await
    }

    async fn with_options(options: ResponseOptions) -> Self {
        Self { fast: port(options.clone()), routed: port(options) }
    }

    /// Asserts that both paths respond alike; returns the response.
    async fn agree(&self, head: impl Fn() -> Builder, body: &[u8]) -> Response {
        let fast = send(&self.fast, head(), vec![Piece::Data(body.to_vec())]).await;
        // The fast path leaves requests that name windows to the router, whose response then has an additional header.
        let named = head().header("tidegate-windows", "");
        let mut routed = send(&self.routed, named, vec![Piece::Data(body.to_vec())]).await;
        routed.1.remove("tidegate-windows");
        assert_eq!(fast, routed, "{body:?}");
        fast
    }
}

fn post() -> Builder {
    grpc(SHOULD_RATE_LIMIT)
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 0 }
}

fn alice() -> RateLimitDescriptor {
    descriptor(&[("api_key", "alice")])
}

/// The grpc-status of a response, of its trailers or of its headers.
fn status(response: &Response) -> &[u8] {
    let trailers = response.3.as_ref().and_then(|trailers| trailers.get("grpc-status"));
    trailers.or(response.1.get("grpc-status")).expect("a status").as_bytes()
}

#[tokio::test]
async fn decisions_are_alike_up_to_the_limit_and_beyond() {
    let plain = vec![PlainHeaders::DRAFT_06, PlainHeaders::X];
    let headers = ResponseHeaders {
        limitador: false,
        structured: Some(StructuredHeaders::Draft11),
        plain,
        retry_after: Some(RetryAfter::Seconds),
        jitter_seconds: 0,
        reference: None,
    };
    let more = ResponseOptions { dynamic_metadata: true, headers };
    for options in [ResponseOptions::default(), more] {
        decisions_are_alike(&Pair::with_options(options).await).await;
    }
}

async fn decisions_are_alike(pair: &Pair) {
    let with = |hits_addend| RateLimitDescriptor { hits_addend, ..alice() };
    let own = |unit| RateLimitDescriptor {
        limit: Some(RateLimitOverride { requests_per_unit: 1, unit }),
        ..descriptor(&[("api_key", "own"), ("path", "/")])
    };
    let bodies = [
        request(vec![alice()]),
        request(vec![alice(), descriptor(&[("free", "")]), descriptor(&[("unknown", "x")])]),
        request(vec![with(Some(0))]),
        request(vec![with(Some(9)), descriptor(&[("fixed", "")])]),
        RateLimitRequest { hits_addend: 2, ..request(vec![alice()]) },
        request(vec![RateLimitDescriptor { is_negative_hits: true, ..alice() }]),
        request(vec![own(1)]),
        request(vec![own(6)]),
        request(vec![descriptor(&[("fixed", "")])]),
        request(vec![descriptor(&[("window", "")])]),
        request(vec![descriptor(&[("marked", "")]), alice()]),
        request(vec![descriptor(&[("worded", "")])]),
        request(vec![descriptor(&[("marked", "")]), descriptor(&[("worded", "")])]),
        RateLimitRequest { domain: "elsewhere".into(), ..request(vec![alice()]) },
    ];
    for _ in 0..3 {
        for body in &bodies {
            for precision in [None, Some("exact"), Some("seconds")] {
                let head = || precision.iter().fold(post(), |head, p| head.header("tidegate-precision", *p));
                let response = pair.agree(head, &plain(&body.encode_to_vec())).await;
                assert_eq!((response.0, status(&response)), (200, &b"0"[..]));
            }
        }
    }
}

#[tokio::test]
async fn checks_of_the_health_are_alike() {
    let pair = Pair::new().await;
    let of_service = |name: &str| HealthCheckRequest { service: name.to_owned() }.encode_to_vec();
    for (message, expected) in [
        (vec![], &b"0"[..]),
        (of_service("envoy.service.ratelimit.v3.RateLimitService"), b"0"),
        (of_service("ratelimit"), b"0"),
        (of_service("unknown"), b"5"),
        (b"\x0a\x02\xff\xfe".to_vec(), b"13"),
    ] {
        let check = || grpc("/grpc.health.v1.Health/Check");
        let body = || vec![Piece::Data(plain(&message))];
        let fast = send(&pair.fast, check(), body()).await;
        // The router decides which of two values counts.
        let twice = check().header("authorization", "a").header("authorization", "b");
        let routed = send(&pair.routed, twice, body()).await;
        assert_eq!(fast, routed, "{message:?}");
        assert_eq!(status(&fast), expected, "{message:?}");
    }
}

#[tokio::test]
async fn refusals_are_alike() {
    let pair = Pair::new().await;
    let good = request(vec![alice()]).encode_to_vec();
    let length = u32::try_from(good.len()).unwrap();
    let bodies = [
        vec![],
        vec![0, 0],
        framed(0, length + 1, &good),
        framed(0, length - 1, &good),
        framed(0, u32::MAX, &good),
        framed(2, length, &good),
        [plain(&good), plain(&good)].concat(),
        [plain(&good), vec![7; 9]].concat(),
        plain(&[]),
        plain(&[0x7b; 1000]),
        plain(b"\x0a\x02\xff\xfe"),
        plain(b"\x08\x01"),
        plain(&request(vec![]).encode_to_vec()),
        plain(&request(vec![alice(); 4]).encode_to_vec()),
        plain(&request(vec![descriptor(&[("é", "")]), descriptor(&[("", "")])]).encode_to_vec()),
        plain(&request(vec![descriptor(&[("k", &"é".repeat(3000))])]).encode_to_vec()),
    ];
    for body in bodies {
        let response = pair.agree(post, &body).await;
        assert_ne!(status(&response), b"0", "{body:?}");
    }
    let roughly = || post().header("tidegate-precision", "roughly");
    assert_eq!(status(&pair.agree(roughly, &plain(&good)).await), b"3");
    let json = || {
        http::Request::post(format!("http://test{SHOULD_RATE_LIMIT}"))
            .header("content-type", "application/json")
    };
    assert_eq!(pair.agree(json, b"{}").await.0, 415);
    let response = pair.agree(|| grpc("/a.Service/Method"), &plain(&good)).await;
    assert_eq!(status(&response), b"12");
    let response = pair.agree(post, &plain(&request(vec![alice()]).encode_to_vec())).await;
    assert_eq!(status(&response), b"0");
}

/// Values of clients that are not UTF-8, that look like the text of such values, or that are longer than texts are.
#[tokio::test]
async fn odd_values_are_decided_alike() {
    let pair = Pair::new().await;
    let odd = |key: &[u8], value: &[u8]| {
        let entries = vec![Entry { key: key.into(), value: value.into() }];
        RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
    };
    let values =
        [&b"\xff"[..], b"\\xff", b"\\x7f", b"\xc3\xa9", &[b'a'; 101], &[b'a'; 100], &[0xff; 101], b"\0"];
    for value in values {
        let bodies =
            [vec![odd(b"api_key", value)], vec![alice(), odd(b"api_key", value)], vec![odd(value, b"\xff")]];
        for descriptors in bodies {
            for _ in 0..4 {
                let response = pair.agree(post, &plain(&request(descriptors.clone()).encode_to_vec())).await;
                assert_eq!((response.0, status(&response)), (200, &b"0"[..]), "{descriptors:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_body_may_arrive_in_any_pieces() {
    let body = plain(&request(vec![alice()]).encode_to_vec());
    let piece = |bytes: &[u8]| Piece::Data(bytes.to_vec());
    let mut trailers = HeaderMap::new();
    trailers.insert("tidegate-precision", HeaderValue::from_static("roughly"));
    let whole = || vec![piece(&body)];
    let expected = send(&port(ResponseOptions::default()), post(), whole()).await;
    assert_eq!(status(&expected), b"0");
    for cut in 0..=body.len() {
        let (one, other) = body.split_at(cut);
        for frames in [vec![piece(one), piece(other)], vec![piece(one), piece(b""), piece(other), piece(b"")]]
        {
            assert_eq!(
                send(&port(ResponseOptions::default()), post(), frames).await,
                expected,
                "cut at {cut}"
            );
        }
    }
    let bytes = body.chunks(1).map(piece).collect();
    assert_eq!(send(&port(ResponseOptions::default()), post(), bytes).await, expected);
    // Metadata may follow the message, and counts then.
    let followed = [whole(), vec![Piece::Trailers(trailers)]].into_iter().flatten().collect();
    assert_eq!(status(&send(&port(ResponseOptions::default()), post(), followed).await), b"3");
}

/// Requests that may be queued run as tasks, which cost a multiple of the fast path.
#[tokio::test]
async fn a_rule_with_queues_leaves_requests_to_other_rules_on_the_fast_path() {
    let queueing = format!(
        "{RULES}  - {{ key: webhook, rate_limit: {{ unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 2s }} }}"
    );
    let port = port_with(&queueing, ResponseOptions::default());
    let is_decoded = |descriptors: &[&str]| {
        let descriptors = descriptors.iter().map(|key| descriptor(&[(key, "x")])).collect();
        let body = plain(&request(descriptors).encode_to_vec());
        port.decode(
            <GrpcPort as Service>::FastPath::default(),
            &body,
            &mut <GrpcPort as Service>::Call::default(),
        )
    };
    assert!(is_decoded(&["api_key"]) && is_decoded(&["fixed", "unknown"]));
    assert!(!is_decoded(&["webhook"]) && !is_decoded(&["api_key", "webhook"]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn responses_to_damaged_bodies_are_alike(
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut: prop::sample::Index,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        runtime.block_on(async {
            let limit = Some(RateLimitOverride { requests_per_unit: 5, unit: 2 });
            let requested = RateLimitDescriptor { limit, hits_addend: Some(1), ..alice() };
            let mut body = plain(&request(vec![requested, descriptor(&[("fixed", "")])]).encode_to_vec());
            for (at, byte) in damage {
                // Byte 0 is the compression flag, in which the two requests differ.
                let at = 1 + at.index(body.len() - 1);
                body[at] = byte;
            }
            let pair = Pair::new().await;
            pair.agree(post, &body).await;
            pair.agree(post, &body[..cut.index(body.len())]).await;
        });
    }
}
