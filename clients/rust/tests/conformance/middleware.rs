//! Cases of middleware: the layer under axum, by requests as bytes.

use crate::{client, list, misbehaving, number, serve, text};
use axum::{Router, extract::Request, routing::get};
use serde_json::Value;
use std::{collections::HashMap, num::NonZeroUsize};
use tidegate_client::{Key, Missing, OnFailure, RateLimitLayer};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// The application: the values of the mark that it reads.
async fn seen(request: Request) -> String {
    let marks = request.headers().get_all("x-rate-limited").iter();
    marks.map(|mark| mark.to_str().expect("ASCII")).collect::<Vec<_>>().join(",")
}

fn key(case: &Value) -> Key {
    let entry = text(&case["entry"]);
    if let Some(value) = case["constant"].as_str() {
        return Key::constant(entry, value);
    }
    let missing = match text(&case["missing"]) {
        "reject" => Missing::Reject,
        "allow" => Missing::Allow,
        _ => Missing::Shared,
    };
    match case["client_address"].as_str() {
        Some("forwarded") => return Key::forwarded_address(entry, NonZeroUsize::MIN, missing),
        Some(_) => return Key::client_address(entry, 1, |_| None, missing),
        None => {}
    }
    // The names of a program are constants.
    Key::header(entry, text(&case["header"]).to_owned().leak(), missing)
}

pub async fn check(case: &Value) {
    let (_server, address) = match case["fault"].as_str() {
        Some(fault) => misbehaving(fault),
        None => {
            let server = serve(text(&case["rules"]), &[]);
            let address = server.address.clone();
            (Some(server), address)
        }
    };
    let policy = if case["on_failure"] == "open" { OnFailure::Open } else { OnFailure::Closed };
    let client = client(&address).on_failure(policy).build().expect("a client");
    let mut descriptors =
        list(&case["descriptors"]).iter().map(|keys| list(keys).iter().map(key).collect::<Vec<_>>());
    let layer = RateLimitLayer::new(client, descriptors.next().expect("a descriptor"));
    let layer = descriptors.fold(layer, RateLimitLayer::and);
    let application = Router::new().route("/", get(seen)).layer(layer);
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move { axum::serve(listener, application).await });
    for (index, request) in list(&case["requests"]).iter().enumerate() {
        for _ in 0..number(&request["times"]) {
            let response = exchange(&address, list(&request["headers"])).await;
            compare(&response, &request["expect"], &format!("request {index}: {response:?}"));
        }
    }
}

#[derive(Debug)]
struct Response {
    status: u64,
    /// Values by name, in lower case.
    headers: HashMap<String, String>,
    body: String,
}

/// Sends a request; each character of a header is one byte.
async fn exchange(address: &str, headers: &[Value]) -> Response {
    let mut request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n".to_vec();
    for header in headers {
        let line = format!("{}: {}\r\n", text(&header[0]), text(&header[1]));
        request.extend(line.chars().map(|letter| u8::try_from(letter).expect("a byte")));
    }
    request.extend(b"\r\n");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream.write_all(&request).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    Response {
        status: status.expect("a status"),
        headers: headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect(),
        body: body.to_owned(),
    }
}

fn compare(response: &Response, expected: &Value, context: &str) {
    let names = |key: &str| expected.get(key).map_or(&[][..], list).iter().map(text);
    assert_eq!(response.status, number(&expected["status"]), "{context}");
    for (name, value) in expected["headers"].as_object().into_iter().flatten() {
        assert_eq!(response.headers.get(name).map(String::as_str), value.as_str(), "{context}");
    }
    for name in names("headers_present") {
        assert!(response.headers.contains_key(name), "{name}: {context}");
    }
    for name in names("headers_absent") {
        assert!(!response.headers.contains_key(name), "{name}: {context}");
    }
    if let Some(body) = expected.get("body") {
        assert_eq!(response.body, text(body), "{context}");
    }
    if expected.get("seen").is_some() {
        let seen: Vec<_> = response.body.split(',').filter(|value| !value.is_empty()).collect();
        assert_eq!(seen, names("seen").collect::<Vec<_>>(), "{context}");
    }
}
