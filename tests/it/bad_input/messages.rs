//! Well-formed gRPC with a message that is invalid, or at the bounds of a request.

use super::{MEGABYTE, Target, good, request};
use crate::support::{
    Server, descriptor,
    http2::{SHOULD_RATE_LIMIT, grpc, plain},
    rules_file,
};
use prost::Message;
use tidegate::api::pb::{
    common::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::{RateLimitRequest, rate_limit_response::Code as Verdict},
};
use tonic::Code;

fn with_limit(requests_per_unit: u32, unit: i32) -> RateLimitDescriptor {
    RateLimitDescriptor { limit: Some(RateLimitOverride { requests_per_unit, unit }), ..good() }
}

#[tokio::test]
async fn a_malformed_request_is_refused_with_a_remedy() {
    let mut server = Target::start(&[]).await;
    let nameless = RateLimitRequest { domain: String::new(), ..request(vec![good()]) };
    let long = "x".repeat(9000);
    let refused = [
        (nameless, "domain is empty; name the domain of a loaded rule set"),
        (RateLimitRequest::default(), "domain is empty; name the domain of a loaded rule set"),
        (request(vec![]), "descriptors is empty; send at least one descriptor"),
        (
            request(vec![descriptor(&[("api_key", "alice"), ("", "v")])]),
            "descriptors[0].entries[1].key is empty; every entry needs a key",
        ),
        (request(vec![good(); 10_000]), "descriptors has 10000 items; at most 100 are accepted"),
        (
            request(vec![descriptor(&[("k", "v"); 1000])]),
            "descriptors[0].entries has 1000 items; at most 32 are accepted",
        ),
        (
            RateLimitRequest { domain: long.clone(), ..request(vec![good()]) },
            "domain is 9000 bytes long; at most 8192 are accepted",
        ),
    ];
    for (message, sentence) in refused {
        server.refuses(message, Code::InvalidArgument, sentence).await;
    }
    for number in [0, 7, 99, -1, i32::MAX, i32::MIN] {
        let sentence = format!(
            "descriptors[1].limit.unit is {number}; \
             send 1 (SECOND), 2 (MINUTE), 3 (HOUR), 4 (DAY), 5 (MONTH) or 6 (YEAR)"
        );
        let message = request(vec![good(), with_limit(1, number)]);
        server.refuses(message, Code::InvalidArgument, &sentence).await;
    }
    let answer = server.client.hit("demo", &[("api_key", "alice")]).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 4, "what was refused has charged nothing");
}

#[tokio::test]
async fn the_bounds_of_a_request_are_settings() {
    let megabyte = || request(vec![descriptor(&[("api_key", &"x".repeat(MEGABYTE))])]);
    let mut server = Target::start(&[]).await;
    let size = megabyte().encoded_len();
    let sentence =
        format!("Error, decoded message length too large: found {size} bytes, the limit is: 1048576 bytes");
    server.refuses(megabyte(), Code::OutOfRange, &sentence).await;

    let mut server = Target::start(&["--max-message-bytes", "2097152", "--max-descriptors", "10000"]).await;
    let many = (0..10_000).map(|n| descriptor(&[("api_key", &n.to_string())])).collect();
    assert_eq!(server.client.should_rate_limit("demo", many).await.unwrap().statuses.len(), 10_000);

    let args = ["--max-message-bytes", "2097152", "--max-text-bytes", "4", "--max-entries", "1"];
    let mut server = Target::start(&args).await;
    assert_eq!(
        server.client.0.should_rate_limit(megabyte()).await.unwrap().get_ref().overall_code(),
        Verdict::Ok
    );
    let sentence = "descriptors[0].entries has 2 items; at most 1 are accepted";
    server.refuses(request(vec![descriptor(&[("a", ""), ("b", "")])]), Code::InvalidArgument, sentence).await;
}

#[tokio::test]
async fn numbers_at_their_extremes_are_decided() {
    let rules = rules_file(
        "domain: demo\ndescriptors:\n  - key: all\n    rate_limit: { unit: year, requests_per_unit: 4294967295 }\n  \
         - key: none\n    rate_limit: { unit: second, requests_per_unit: 0 }\n",
    );
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    for key in ["all", "none"] {
        for of_request in [0, 1, u32::MAX] {
            for hits_addend in [None, Some(0), Some(1), Some(u64::from(u32::MAX)), Some(u64::MAX)] {
                for is_negative_hits in [false, true] {
                    // Each case has its own value, so nothing has been counted before.
                    let value = format!("{of_request} {hits_addend:?} {is_negative_hits}");
                    let requested =
                        RateLimitDescriptor { hits_addend, is_negative_hits, ..descriptor(&[(key, &value)]) };
                    let message = RateLimitRequest { hits_addend: of_request, ..request(vec![requested]) };
                    let answer = client.0.should_rate_limit(message).await.unwrap().into_inner();
                    let hits = hits_addend.unwrap_or(u64::from(of_request.max(1)));
                    let fits = match (key, is_negative_hits && hits > 0) {
                        (_, true) => true,
                        ("all", false) => hits <= u64::from(u32::MAX),
                        (_, false) => false,
                    };
                    let verdict = if fits { Verdict::Ok } else { Verdict::OverLimit };
                    assert_eq!(answer.overall_code(), verdict, "{key} {value}");
                    assert_eq!(answer.statuses[0].code(), verdict, "{key} {value}");
                }
            }
        }
    }
    for requests_per_unit in [0, 1, u32::MAX] {
        for unit in 1..=6 {
            let requested = RateLimitDescriptor {
                entries: vec![Entry {
                    key: "own".into(),
                    value: format!("{requests_per_unit} {unit}").into(),
                }],
                ..with_limit(requests_per_unit, unit)
            };
            let answer = client.should_rate_limit("demo", vec![requested]).await.unwrap();
            assert_eq!(answer.overall_code() == Verdict::Ok, requests_per_unit > 0);
            assert_eq!(answer.statuses[0].limit_remaining, requests_per_unit.saturating_sub(1));
        }
    }
}

#[tokio::test]
async fn invalid_protobuf_is_refused() {
    let mut server = Target::start(&[]).await;
    let not_protobuf: &[(&[u8], &str)] = &[
        (b"\x0a\x05demo", "buffer underflow"),
        (b"\x0a\x02\xff\xfe", "RateLimitRequest.domain"),
        (b"\x08\x01", "invalid wire type"),
        (b"\x00\x01", "invalid tag"),
        (b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "invalid varint"),
        (&[0x7b; 100_000], "recursion limit"),
    ];
    for (bytes, words) in not_protobuf {
        server.refuses_raw(grpc(SHOULD_RATE_LIMIT), plain(bytes), Code::Internal, words).await;
    }
    // Cut short at any byte, the message is either invalid protobuf or a shorter request.
    let whole =
        request(vec![with_limit(3, 2), descriptor(&[("api_key", "bob"), ("plan", "")])]).encode_to_vec();
    for cut in 0..whole.len() {
        let answer = server.raw.send(grpc(SHOULD_RATE_LIMIT), plain(&whole[..cut])).await.unwrap();
        let code = answer.grpc.map(|status| status.code());
        assert!(
            matches!(code, Some(Code::Ok | Code::InvalidArgument | Code::Internal)),
            "{code:?} for the first {cut} bytes"
        );
    }
    // Fields that this version does not know are skipped: a newer Envoy is understood.
    let newer = [request(vec![good()]).encode_to_vec(), b"\xfa\x3e\x03new\x90\x7f\x01".to_vec()].concat();
    let answer = server.raw.send(grpc(SHOULD_RATE_LIMIT), plain(&newer)).await.unwrap();
    assert_eq!(answer.grpc.map(|status| status.code()), Some(Code::Ok));
}
