//! Bodies and headers that are not valid gRPC.

use super::{MEGABYTE, Target, good, gzip, request, untyped};
use crate::support::{
    descriptor,
    http2::{Answer, SHOULD_RATE_LIMIT, framed, grpc, plain},
};
use http::Request;
use prost::Message;
use tonic::Code;

#[tokio::test]
async fn a_body_that_is_not_framed_as_grpc_is_refused() {
    let mut server = Target::start(&[]).await;
    let whole = request(vec![good()]).encode_to_vec();
    let length = u32::try_from(whole.len()).unwrap();
    let badly_framed = [
        (vec![], Code::Internal, "Missing request message"),
        (vec![0, 0], Code::Internal, "Unexpected EOF"),
        (framed(0, length + 1, &whole), Code::Internal, "Unexpected EOF"),
        (
            framed(0, u32::MAX, &whole),
            Code::OutOfRange,
            "found 4294967295 bytes, the limit is: 1048576 bytes",
        ),
        (framed(0, length - 1, &whole), Code::Unimplemented, "more bytes follow the first"),
        (framed(1, length, &whole), Code::Internal, "no grpc-encoding was specified"),
        (framed(2, length, &whole), Code::Internal, "invalid compression flag: 2"),
    ];
    for (body, code, words) in badly_framed {
        server.refuses_raw(grpc(SHOULD_RATE_LIMIT), body, code, words).await;
    }
}

/// 1.2 kB of gzip cost as much CPU time as a mebibyte: 430 times as much per byte as an honest call.
#[tokio::test]
async fn a_kilobyte_of_gzip_costs_no_mebibyte() {
    const METHODS: [&str; 5] = [
        SHOULD_RATE_LIMIT,
        "/kuadrant.service.ratelimit.v1.RateLimitService/CheckRateLimit",
        "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas",
        "/grpc.health.v1.Health/Check",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    ];
    // Made before connections are opened: a connection without a request is closed after a while.
    let request = request(vec![descriptor(&[("api_key", &"x".repeat(MEGABYTE - 64))])]).encode_to_vec();
    let bomb = gzip(&request);
    assert!(bomb.len() < 1_200, "{} bytes", bomb.len());
    let bomb = framed(1, bomb.len().try_into().unwrap(), &bomb);
    let mut server = Target::start(&["--http-listen", "127.0.0.1:0"]).await;
    for encoding in ["gzip", "deflate", "br", "zstd", "snappy"] {
        for method in METHODS {
            let head = || grpc(method).header("grpc-encoding", encoding);
            let words = format!("grpc-encoding: {encoding}: compressed messages are not accepted");
            server.refuses_raw(head(), bomb.clone(), Code::Unimplemented, &words).await;
            let answer = server.raw.send(head(), bomb.clone()).await.unwrap();
            assert_eq!(answer.headers["grpc-accept-encoding"], "identity");
        }
    }
    let refused = "tidegate_requests_refused_total{reason=\"undecodable_message\"}";
    assert_eq!(server.server.metric(refused).await, 50);
}

#[tokio::test]
async fn requests_that_are_not_grpc_get_an_explanation() {
    let mut server = Target::start(&[]).await;
    let other = [
        "application/json",
        "application/grpc-web",
        "application/grpc+json",
        "application/grpcx",
        "text/plain",
        "",
    ];
    for content_type in other {
        let answer =
            server.raw.send(untyped().header("content-type", content_type), b"{}".to_vec()).await.unwrap();
        assert_refused_as_not_grpc(&answer);
        server.serves().await;
    }
    let answer = server.raw.send(untyped(), vec![0; MEGABYTE]).await.unwrap();
    assert_refused_as_not_grpc(&answer);
    let whole = plain(&request(vec![good()]).encode_to_vec());
    for content_type in
        ["application/grpc+proto", "application/grpc;charset=utf-8", "application/grpc+proto; a=b"]
    {
        let answer =
            server.raw.send(untyped().header("content-type", content_type), whole.clone()).await.unwrap();
        assert_eq!(answer.grpc.map(|status| status.code()), Some(Code::Ok), "{content_type}");
    }
}

fn assert_refused_as_not_grpc(answer: &Answer) {
    assert_eq!((answer.http.as_u16(), answer.grpc.is_none()), (415, true));
    let sentence = String::from_utf8_lossy(&answer.body);
    assert!(sentence.contains("send content-type application/grpc"), "{sentence}");
}

#[tokio::test]
async fn a_method_that_is_not_there_is_unimplemented() {
    let mut server = Target::start(&[]).await;
    let known_services = [
        "/envoy.service.ratelimit.v3.RateLimitService/Forget",
        "/envoy.service.ratelimit.v3.RateLimitService/",
        "/grpc.health.v1.Health/Heal",
    ];
    let unknown_services =
        ["/envoy.service.ratelimit.v2.RateLimitService/ShouldRateLimit", "/", "/metrics", "/%00"];
    for path in known_services.into_iter().chain(unknown_services) {
        let body = plain(&request(vec![good()]).encode_to_vec());
        server.refuses_raw(grpc(path), body, Code::Unimplemented, "unknown method").await;
    }
}

#[tokio::test]
async fn metadata_that_is_wrong_or_too_long_is_refused() {
    let mut server = Target::start(&[]).await;
    let body = plain(&request(vec![good()]).encode_to_vec());
    let head = grpc(SHOULD_RATE_LIMIT).header("tidegate-precision", "roughly");
    server.refuses_raw(head, body.clone(), Code::InvalidArgument, "send one of them, or leave it out").await;
    // Unknown names are no reason to refuse.
    let head = grpc(SHOULD_RATE_LIMIT).header("grpc-timeout", "5S").header("x-unknown", "\u{e9}");
    assert_eq!(
        server.raw.send(head, body.clone()).await.unwrap().grpc.map(|status| status.code()),
        Some(Code::Ok)
    );

    let head = grpc(SHOULD_RATE_LIMIT).header("x-long", "x".repeat(17 * 1024));
    assert_eq!(server.raw.send(head, body).await.unwrap().http, 431);
    server.serves().await;
}

#[tokio::test]
async fn a_malformed_grpc_timeout_is_refused() {
    let mut server = Target::start(&[]).await;
    let body = plain(&request(vec![good()]).encode_to_vec());
    for timeout in ["soon", "", "20", "-1m", "123456789m", "1.5S"] {
        let head = grpc(SHOULD_RATE_LIMIT).header("grpc-timeout", timeout);
        server.refuses_raw(head, body.clone(), Code::InvalidArgument, "grpc-timeout is malformed").await;
    }
}

#[tokio::test]
async fn two_messages_in_a_unary_call_are_refused_and_charge_nothing() {
    let mut server = Target::start(&[]).await;
    let one = plain(&request(vec![good()]).encode_to_vec());
    let two = [&one[..], &one].concat();
    for _ in 0..9 {
        let words = "more bytes follow the first";
        server.refuses_raw(grpc(SHOULD_RATE_LIMIT), two.clone(), Code::Unimplemented, words).await;
        server
            .refuses_raw(
                grpc("/grpc.health.v1.Health/Check"),
                [[0; 5]; 2].concat(),
                Code::Unimplemented,
                words,
            )
            .await;
    }
    let response = server.client.0.should_rate_limit(request(vec![good()])).await.expect("a response");
    assert_eq!(response.get_ref().statuses[0].limit_remaining, 4);
}

#[tokio::test]
async fn a_grpc_call_by_get_is_refused_with_405() {
    let mut server = Target::start(&[]).await;
    let get =
        Request::get(format!("http://test{SHOULD_RATE_LIMIT}")).header("content-type", "application/grpc");
    let refusal = server.raw.send(get, plain(&request(vec![good()]).encode_to_vec())).await.unwrap();
    assert_eq!((refusal.http.as_u16(), refusal.headers["allow"].as_bytes()), (405, &b"POST"[..]));
    server.serves().await;
}
