//! Limits of requests in flight: the module holds the slot of a request until Envoy ends the stream.

use crate::{
    client::{Connection, Request},
    config::{Filter, bootstrap, listener, route, service},
    process::{Binary, Envoy, eventually},
};
use serde_json::json;
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    thread,
};

/// Reads a request up to the end of its head.
fn read_head(stream: &mut UnixStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
}

pub fn slots(binary: &Binary) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("upstream");
    let upstream = UnixListener::bind(&path).unwrap();
    let entry = |header: &str, key: &str| json!({"actions": [{"request_headers": {"header_name": header, "descriptor_key": key}}]});
    let settings = json!({
        "domain": "edge",
        "rate_limit_service": service(),
        "rate_limits": [entry("x-api-key", "k"), entry("x-short", "short"), entry("x-long", "long")],
        "tidegate": {"rules": {"domain": "edge", "descriptors": [
            {"key": "k", "rate_limit": {"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "1h"}},
            {"key": "long", "rate_limit": {"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "900ms"}},
            {"key": "short", "rate_limit": {"algorithm": "concurrency", "requests_in_flight": 1, "max_hold": "1ms"}},
        ]}},
    });
    let listeners = vec![listener("edge", Filter::ModuleByJson, &settings, vec![route("/", None)])];
    let mut config = bootstrap(listeners, None);
    let address = &mut config["static_resources"]["clusters"][0]["load_assignment"]["endpoints"][0];
    address["lb_endpoints"][0]["endpoint"]["address"]["pipe"]["path"] = path.to_str().unwrap().into();
    let envoy = Envoy::start(binary, &config, &[]);
    let edge = envoy.listener("edge");
    let request = Request::get("/").header("x-api-key", "alice");
    let send = || Connection::open(&edge).unwrap().send(&request).unwrap().status;

    // The upstream has the request: it is in flight until the upstream responds.
    let held = thread::scope(|scope| {
        let first = scope.spawn(send);
        let (mut stream, _) = upstream.accept().unwrap();
        read_head(&mut stream);
        let denied = [send(), send()];
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").unwrap();
        assert_eq!(first.join().unwrap(), 200);
        denied
    });
    assert_eq!(held, [429, 429], "one request is in flight, and denied ones end without freeing its slot");

    // Envoy may end a stream after its client has the response. From here on the upstream sends no response: a client that disconnects ends
    // its request.
    upstream.set_nonblocking(true).unwrap();
    let (client, _at_upstream) = admitted(&edge, &upstream, "x-api-key: alice");
    assert_eq!(send(), 429);
    client.shutdown(Shutdown::Both).unwrap();
    admitted(&edge, &upstream, "x-api-key: alice");

    // A request that outlasts `max_hold` is renewed.
    let _long = admitted(&edge, &upstream, "x-long: a");
    let another = Request::get("/").header("x-long", "a");
    eventually("the fourth renewal", || {
        // Envoy 1.38 updates figures at the end of a request.
        assert_eq!(Connection::open(&edge).unwrap().send(&another).unwrap().status, 429);
        (envoy.figure("slots{event=\"renewed\"") >= 4).then_some(())
    });

    // A `max_hold` too short for renewals expires, and the figures count its slot.
    let _held = admitted(&edge, &upstream, "x-short: a");
    let _another = admitted(&edge, &upstream, "x-short: a");
    let slots = |event: &str| envoy.figure(&format!("slots{{event=\"{event}\""));
    eventually("an expired slot", || (slots("expired") > 0).then_some(()));
    assert!(slots("taken") >= 5 && slots("released") >= 2, "{} and {}", slots("taken"), slots("released"));
}

/// Sends requests until one is at the upstream; returns the connection of its client.
fn admitted(edge: &str, upstream: &UnixListener, header: &str) -> (TcpStream, UnixStream) {
    eventually("a free slot", || {
        let mut client = TcpStream::connect(edge).ok()?;
        client.write_all(format!("GET / HTTP/1.1\r\nhost: test\r\n{header}\r\n\r\n").as_bytes()).ok()?;
        client.set_nonblocking(true).ok()?;
        let at_upstream = eventually("a decision", || match upstream.accept() {
            Ok((stream, _)) => Some(Some(stream)),
            // The module has responded.
            Err(_) => client.peek(&mut [0]).is_ok().then_some(None),
        })?;
        Some((client, at_upstream))
    })
}
