//! Requests from clients of a real Envoy: no header, path or cookie lifts the limits of its request.

use crate::{
    envoy_config,
    envoy_process::Envoy,
    support::{Server, rules_file},
};
use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpStream},
};

crate::tests_with! { ENVOY: no_value_of_a_client_lifts_the_limits_of_its_request }

const RULES: &str = "
domain: edge
descriptors:
  - { key: remote_address, rate_limit: { unit: year, requests_per_unit: 3 } }
  - { key: api_key, rate_limit: { unit: year, requests_per_unit: 1000 } }
  - { key: cost_of, rate_limit: { unit: year, requests_per_unit: 1000 } }
";

/// With tracing, Envoy sends the headers of a trace to the server.
const SETTINGS: &str = r#"
use_remote_address: true
tracing:
  provider:
    name: envoy.tracers.opentelemetry
    typed_config:
      "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
      grpc_service: { envoy_grpc: { cluster_name: tidegate } }
"#;

/// Envoy admits requests that the server does not decide.
const RATE_LIMIT: &str = r#"
domain: edge
failure_mode_deny: false
rate_limits:
  - { actions: [{ remote_address: {} }] }
  - { actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }] }
  - { actions: [{ request_headers: { header_name: ":path", descriptor_key: path } }] }
  - { actions: [{ request_headers: { header_name: cookie, descriptor_key: cookie } }] }
  - { actions: [{ request_headers: { header_name: user-agent, descriptor_key: no_rule } }] }
  - { actions: [{ query_parameters: { query_parameter_name: q, descriptor_key: q } }] }
  - actions: [{ request_headers: { header_name: x-api-key, descriptor_key: cost_of } }]
    hits_addend: { format: "%REQ(x-cost)%" }
"#;

/// Requests that the limit of the client's address has to deny, by their odd part.
fn odd_requests() -> Vec<(String, Vec<u8>)> {
    let long = |length: usize| vec![b'a'; length];
    let mut requests = Vec::new();
    let mut add = |path: &[u8], headers: &[(&str, &[u8])]| {
        let mut request = [b"GET ", path, b" HTTP/1.1\r\nhost: a\r\nconnection: close\r\n"].concat();
        for (name, value) in headers {
            request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
        }
        request.extend(b"\r\n");
        let shown = String::from_utf8_lossy(&request[..request.len().min(200)]).into_owned();
        requests.push((shown, request));
    };
    let (api_key, odd_end) = ("x-api-key", [long(57_000), vec![0xff]].concat());
    for value in [
        &b"\xff"[..],
        b"a\xc3",
        b"\\xff",
        b"",
        b"a\tb",
        b"a\x01b",
        b"a\0b",
        &long(9_000),
        &long(58_000),
        &odd_end,
        &[0xff; 58_000],
    ] {
        add(b"/", &[(api_key, value)]);
        add(b"/", &[("cookie", value)]);
        // No rule has the key of this descriptor.
        add(b"/", &[("user-agent", value)]);
        add(&[b"/", value].concat(), &[]);
        add(&[b"/?q=", value].concat(), &[]);
        add(b"/", &[("traceparent", value), ("tracestate", value)]);
    }
    add(b"/%ff?q=%ff", &[]);
    add(&[&b"/?"[..], &b"q=1&".repeat(5_000)].concat(), &[]);
    add(b"/", &[(api_key, &b"\xff"[..]); 50]);
    add(
        &[b"/", &*long(14_000)].concat(),
        &[(api_key, &long(14_000)), ("cookie", &long(14_000)), ("user-agent", &long(14_000))],
    );
    for cost in [
        "0",
        "-1",
        "1e9",
        "1e99",
        "1000000001",
        "18446744073709551616",
        "abc",
        "\u{ff}",
        "",
        "nan",
        "inf",
        "1.5",
    ] {
        add(b"/", &[(api_key, b"k"), ("x-cost", cost.as_bytes())]);
    }
    requests
}

/// The status of the response to a request, which is sent unchanged. Envoy may respond before it has read the whole request.
fn status(port: u16, request: &[u8]) -> Option<u16> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    let _ = stream.write_all(request);
    let mut line = [0; 12];
    stream.read_exact(&mut line).ok()?;
    str::from_utf8(&line[9..]).ok()?.parse().ok()
}

async fn no_value_of_a_client_lifts_the_limits_of_its_request() {
    let rules = rules_file(RULES);
    let any_port = [("HOST", "127.0.0.1"), ("PORT", "0"), ("DEBUG_HOST", "127.0.0.1"), ("DEBUG_PORT", "0")];
    let reference = &["--env", "reference", "--log", "info"][..];
    let config =
        envoy_config::bootstrap(SETTINGS, &envoy_config::rate_limit(RATE_LIMIT), envoy_config::SERVED);
    for args in [&[][..], &["--compat", "reference"], reference] {
        let server = Server::with_variables(rules.path(), args, &any_port);
        let envoy = Envoy::start_with(&config, server.address(), &[]).await;
        let port = envoy.port(envoy_config::LISTENER);
        // Until Envoy reaches the server, it admits requests.
        let mut plain = Vec::new();
        while plain.last() != Some(&Some(429)) {
            plain.push(status(port, b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"));
            assert!(plain.len() < 1_000, "{plain:?}");
        }
        let (mut denied, mut by_envoy) = (0, 0);
        for (shown, request) in odd_requests() {
            match status(port, &request) {
                Some(429) => denied += 1,
                // Envoy itself regards some requests with control characters, bytes in paths or long headers as malformed.
                Some(400 | 431) => by_envoy += 1,
                other => panic!("{other:?} with {args:?} for {shown}"),
            }
        }
        assert!(denied > 50 && by_envoy > 0, "{denied} denied, {by_envoy} refused by Envoy");
    }
}
