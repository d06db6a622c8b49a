//! The keys and values of a request may be any bytes of any length, since clients of a proxy choose them: each is a text of its own, and no
//! request is refused because of its bytes.

use crate::{
    admin::start,
    control::{Controlled, descriptors},
    support::{Server, eventually, http1},
};
use http::Request;
use serde_json::json;
use std::net::Ipv4Addr;
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    kuadrant_v1,
    service::{
        RateLimitRequest, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::{Request as Call, transport::Channel};

const RULES: &str = r"
domain: shop
descriptors:
  - { key: address, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: header, rate_limit: { unit: year, requests_per_unit: 4 } }
  - { key: header, value: 'of \xff bytes', rate_limit: { unit: year, requests_per_unit: 1 } }
  - { key: header, value: /login*, rate_limit: { unit: year, requests_per_unit: 2 } }
";

/// Every kind of value that differs from its text, or that a server might refuse for another reason.
pub fn odd_values() -> Vec<Vec<u8>> {
    let long = |byte: u8, length: usize| vec![byte; length];
    vec![
        b"\xff".to_vec(),
        b"\\xff".to_vec(),
        b"\\\\xff".to_vec(),
        b"a\xc3".to_vec(),
        b"\xed\xa0\x80".to_vec(),
        b"\0".to_vec(),
        b"\x01\x7f\r\n\t".to_vec(),
        b"".to_vec(),
        "é…sha256:".into(),
        long(b'a', 8_192),
        long(b'a', 8_193),
        [long(b'a', 60_000), b"b".to_vec()].concat(),
        [long(b'a', 60_000), b"\xff".to_vec()].concat(),
        long(0xff, 3_000),
        long(b'\\', 60_000),
    ]
}

fn descriptor(key: &[u8], value: &[u8]) -> RateLimitDescriptor {
    let entries = vec![Entry { key: key.into(), value: value.into() }];
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "shop".into(), descriptors, hits_addend: 0 }
}

/// A request of this address, with an entry that a client has chosen.
fn with_odd(address: &str, key: &[u8], value: &[u8]) -> RateLimitRequest {
    request(vec![descriptor(b"address", address.as_bytes()), descriptor(key, value)])
}

/// The codes of this many equal requests.
async fn codes(
    client: &mut RateLimitServiceClient<Channel>,
    message: &RateLimitRequest,
    count: u32,
) -> Vec<Code> {
    let mut codes = Vec::new();
    for _ in 0..count {
        let response = client.should_rate_limit(message.clone()).await.expect("it is decided");
        codes.push(response.get_ref().overall_code());
    }
    codes
}

const LIMITED: [Code; 4] = [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit];

#[tokio::test]
async fn an_odd_entry_leaves_the_others_limited() {
    let limitador = "[{namespace: shop, max_value: 3, seconds: 31536000, conditions: [], variables: ['descriptors[0][\"address\"]']}]";
    for (rules, args) in [(RULES, &[][..]), (RULES, &["--compat", "reference"]), (limitador, &[])] {
        let (server, _) = start(rules, args);
        let mut client = RateLimitServiceClient::new(server.channel().await);
        for (index, value) in odd_values().iter().enumerate() {
            for (kind, key) in [&b"header"[..], b"no rule", value].into_iter().enumerate() {
                // In the strict form a key is never empty, since the configuration decides it.
                let key = if key.is_empty() { b"k" } else { key };
                let message = with_odd(&format!("{kind} {index}"), key, value);
                assert_eq!(codes(&mut client, &message, 4).await, LIMITED, "{kind} {index} {args:?}");
            }
        }
    }
}

#[tokio::test]
async fn kuadrants_service_decides_odd_entries() {
    let (server, _) = start(RULES, &[]);
    let mut client =
        kuadrant_v1::rate_limit_service_client::RateLimitServiceClient::new(server.channel().await);
    for (index, value) in odd_values().iter().enumerate() {
        let message = with_odd(&index.to_string(), b"header", value);
        let mut codes = Vec::new();
        for _ in 0..4 {
            let checked = client.check_rate_limit(message.clone()).await.expect("it is decided");
            codes.push(checked.get_ref().overall_code());
            client.report(message.clone()).await.expect("it is counted");
        }
        assert_eq!(codes, LIMITED, "{index}");
    }
}

/// JSON with these bytes instead of the text `VALUE`, unchanged except for the escapes that JSON demands.
fn with_value(body: &serde_json::Value, value: &[u8]) -> Vec<u8> {
    let mut string = Vec::new();
    for byte in value {
        match byte {
            b'\\' | b'"' => string.extend([b'\\', *byte]),
            0..0x20 => string.extend(format!("\\u{byte:04x}").into_bytes()),
            _ => string.push(*byte),
        }
    }
    let body = body.to_string();
    let (before, after) = body.split_once("VALUE").expect("the caller wrote it");
    [before.as_bytes(), &string, after.as_bytes()].concat()
}

/// The body of `POST /json`.
fn in_json(address: &str, value: &[u8]) -> Vec<u8> {
    let body = json!({ "domain": "shop", "descriptors": [
        { "entries": [{ "key": "address", "value": address }] },
        { "entries": [{ "key": "header", "value": "VALUE" }] },
    ] });
    with_value(&body, value)
}

async fn post(port: u16, path: &str, body: Vec<u8>) -> u16 {
    let request = Request::post(path).body(body).expect("a well-formed request");
    http1::send(Ipv4Addr::LOCALHOST, port, request).await.expect("a response").status().as_u16()
}

#[tokio::test]
async fn json_decides_odd_entries_on_the_counters_of_grpc() {
    let (server, port) = start(RULES, &[]);
    let mut client = RateLimitServiceClient::new(server.channel().await);
    let post = async |body| post(port, "/json", body).await;
    for (index, value) in odd_values().iter().enumerate() {
        let address = index.to_string();
        let mut statuses = vec![];
        for _ in 0..2 {
            statuses.push(post(in_json(&address, value)).await);
            statuses.push(match codes(&mut client, &with_odd(&address, b"header", value), 1).await[..] {
                [Code::Ok] => 200,
                _ => 429,
            });
        }
        assert_eq!(statuses, [200, 200, 200, 429], "{index}");
        // The value has a single counter too: it has three of four hits.
        let of_value = request(vec![descriptor(b"header", value)]);
        assert_eq!(codes(&mut client, &of_value, 2).await, [Code::Ok, Code::OverLimit], "{index}");
    }
    let half = br#"{"domain":"shop","descriptors":[{"entries":[{"key":"address","value":"\ud800"}]}]}"#;
    let mut statuses = vec![];
    for _ in 0..4 {
        statuses.push(post(half.to_vec()).await);
    }
    assert_eq!(statuses, [200, 200, 200, 429], "half of a surrogate pair");
}

#[tokio::test]
async fn limitadors_http_api_decides_odd_values() {
    let limit = |namespace: &str, max: u32, name: &str| {
        format!(
            "- {{namespace: {namespace}, max_value: {max}, seconds: 31536000, conditions: [], variables: ['descriptors[0].{name}']}}\n"
        )
    };
    let rules = limit("shop", 3, "address") + &limit("values", 1, "header");
    let (_server, port) = start(&rules, &["--limitador-api", "namespace"]);
    let body = |namespace: &str, address: &str, value: &[u8]| {
        let values = json!({ "address": address, "header": "VALUE" });
        with_value(&json!({ "namespace": namespace, "values": values, "delta": 1 }), value)
    };
    for (index, value) in odd_values().iter().enumerate() {
        let mut statuses = vec![];
        for namespace in ["shop", "shop", "shop", "shop", "values", "values"] {
            statuses.push(post(port, "/check_and_report", body(namespace, &index.to_string(), value)).await);
        }
        assert_eq!(statuses, [200, 200, 200, 429, 200, 429], "{index}");
        assert_eq!(post(port, "/check", body("values", "", value)).await, 429, "{index}");
    }
}

#[tokio::test]
async fn values_that_differ_have_counters_of_their_own() {
    let (server, _) = start(RULES, &[]);
    let mut client = RateLimitServiceClient::new(server.channel().await);
    for value in odd_values() {
        let of_value = request(vec![descriptor(b"header", &value)]);
        let expected = [Code::Ok, Code::Ok, Code::Ok, Code::Ok, Code::OverLimit];
        assert_eq!(codes(&mut client, &of_value, 5).await, expected, "{:?}", &value[..value.len().min(9)]);
    }
}

#[tokio::test]
async fn rules_match_the_text_of_odd_bytes_and_the_first_part_of_long_ones() {
    let (server, _) = start(RULES, &[]);
    let mut client = RateLimitServiceClient::new(server.channel().await);
    let mut admitted = async |value: &[u8]| {
        let codes = codes(&mut client, &request(vec![descriptor(b"header", value)]), 5).await;
        codes.iter().filter(|code| **code == Code::Ok).count()
    };
    assert_eq!(admitted(b"of \xff bytes").await, 1);
    assert_eq!(admitted(b"of \\xff bytes").await, 4, "a client that writes the escape itself");
    assert_eq!(admitted(b"/login\xff").await, 2);
    let long = |end: &str| [b"/login?", &[b'a'; 20_000][..], end.as_bytes()].concat();
    assert_eq!([admitted(&long("1")).await, admitted(&long("2")).await], [2, 2]);
}

/// Operators use the text that logs and tools show.
#[tokio::test]
async fn operators_name_values_by_their_texts() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = RateLimitServiceClient::new(shop.server.channel().await);
    for (value, shown) in [
        (b"a\xff".to_vec(), r"a\xff".to_owned()),
        (br"a\xff".to_vec(), r"a\\xff".to_owned()),
        (vec![b'a'; 9_000], format!("{}…sha256:{}", "a".repeat(8_192), LONG_HASH)),
    ] {
        codes(&mut client, &request(vec![descriptor(b"header", &value)]), 9).await;
        let peek = json!({ "domain": "shop", "descriptors": descriptors(&[("header", &shown)]) });
        let peeked = shop.operate("Peek", peek.clone()).await;
        assert_eq!(peeked["code"], "OVER_LIMIT", "{shown:.20}");
        shop.operate("Reset", peek).await;
        let again = codes(&mut client, &request(vec![descriptor(b"header", &value)]), 1).await;
        assert_eq!(again, [Code::Ok], "{shown:.20}");
    }
}

/// A value that a client has chosen is shown, and can be typed, wherever the keys with most hits are.
#[tokio::test]
async fn keys_with_most_hits_have_the_texts_of_their_bytes() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = RateLimitServiceClient::new(shop.server.channel().await);
    for value in [&b"a\xff"[..], b"\x1b[2J\r\n", b"\xed\xa0\x80"] {
        codes(&mut client, &request(vec![descriptor(b"header", value)]), 5).await;
    }
    let top = eventually("the keys", async || {
        let (_, top) = shop.call(&shop.read, "TopKeys", &json!({})).await;
        if top["keys"].as_array().is_some_and(|keys| keys.len() == 3) { Ok(top) } else { Err(top) }
    })
    .await;
    let values = top["keys"].as_array().into_iter().flatten();
    let mut values: Vec<&str> =
        values.filter_map(|key| key["descriptor"]["entries"][0]["value"].as_str()).collect();
    values.sort_unstable();
    assert_eq!(values, ["\u{1b}[2J\r\n", r"\xed\xa0\x80", r"a\xff"]);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["ctl", "top", "--addr", shop.server.address(), "--token", &shop.read]);
    let shown =
        tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    assert!(shown.contains(r"header=a\xff") && shown.contains(r"header=\xed\xa0\x80"), "{shown}");
    assert!(shown.contains("header=\u{fffd}[2J\u{fffd}\u{fffd} "), "{shown:?}");
}

/// SHA-256 of 9,000 times `a`.
const LONG_HASH: &str = "0598aa54768194ade580b9806ac98ace43a0310aeceae95762f62491625eee52";

/// Other data that a client can send beside texts.
#[tokio::test]
async fn malformed_metadata_of_traces_refuses_nothing() {
    let server = Server::with_rules(crate::support::rules_file(RULES).path(), &[]);
    let mut client = RateLimitServiceClient::new(server.channel().await);
    for (index, value) in ["", "00", "00-zz-zz-01", &"0".repeat(4_000)].into_iter().enumerate() {
        let mut codes = vec![];
        for _ in 0..4 {
            let mut call = Call::new(with_odd(&index.to_string(), b"header", &[0xff, index as u8]));
            call.metadata_mut().insert("traceparent", value.parse().expect("ASCII"));
            codes.push(client.should_rate_limit(call).await.expect("decided").get_ref().overall_code());
        }
        assert_eq!(codes, LIMITED, "{value}");
    }
}
