//! Traces, received by Python's classes of the OTLP protocol: from the server alone, and together with a real Envoy.

use crate::{
    envoy_process::Envoy,
    support::{
        PATIENCE, Server,
        certificates::{Authority, replace},
        http1, rules_file,
    },
};
use http::Request;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    net::Ipv4Addr,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: { name: per-key, unit: day, requests_per_unit: 1 }
  - key: route
    rate_limit: { unit: day, requests_per_unit: 5, algorithm: leaky_bucket, burst: 5, max_wait: 1s }
";

/// A receiver of traces; ends with its standard input.
pub struct OtlpReceiver {
    child: Child,
    pub ports: Value,
    spans: Receiver<Value>,
}

impl OtlpReceiver {
    fn start() -> Self {
        Self::start_with("traces", &[])
    }

    /// Starts a receiver that prints one signal: `traces` or `metrics`. With the paths of a certificate and its key, it has TLS.
    pub fn start_with(signal: &str, args: &[&Path]) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/otlp_receiver.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg(signal)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 can be run");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines().map_while(Result::ok);
        let first = lines.next().expect("the receiver prints its ports");
        let ports = serde_json::from_str(&first).expect("JSON");
        let (sender, spans) = channel();
        std::thread::spawn(move || {
            for line in lines {
                let _ = sender.send(serde_json::from_str(&line).expect("JSON"));
            }
        });
        Self { child, ports, spans }
    }

    pub fn endpoint(&self, transport: &str) -> String {
        format!("http://127.0.0.1:{}", self.ports[transport])
    }

    pub fn next(&self) -> Value {
        self.spans.recv_timeout(PATIENCE).expect("a span or a metric arrives")
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls the server with a `traceparent`.
async fn call(server: &Server, key: &str, traceparent: &str) {
    call_with(server, key, &[("traceparent", traceparent)]).await;
}

/// Calls the server with metadata.
async fn call_with(server: &Server, key: &str, metadata: &[(&'static str, &str)]) {
    let descriptor = RateLimitDescriptor {
        entries: vec![Entry { key: key.into(), value: "v".into() }],
        ..RateLimitDescriptor::default()
    };
    let request = RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor], hits_addend: 0 };
    let mut request = tonic::Request::new(request);
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().expect("ASCII"));
    }
    let address = format!("http://{}", server.address());
    let mut client = RateLimitServiceClient::connect(address).await.expect("the server accepts");
    client.should_rate_limit(request).await.expect("a decision");
}

fn server(receiver: &OtlpReceiver, transport: &str, protocol: &str) -> Server {
    server_with(&receiver.endpoint(transport), protocol, &[])
}

fn server_with(endpoint: &str, protocol: &str, more: &[(&str, &str)]) -> Server {
    let rules = rules_file(RULES);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
        ("OTEL_BSP_SCHEDULE_DELAY", "50"),
    ];
    Server::with_variables(rules.path(), &[], &[&variables, more].concat())
}

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

async fn sampled_calls_have_spans_by_either_transport() {
    for (transport, protocol) in [("grpc", "grpc"), ("http", "http/protobuf")] {
        let receiver = OtlpReceiver::start();
        let mut server = server(&receiver, transport, protocol);
        call(&server, "k", &format!("00-{}-{SPAN}-00", "1".repeat(32))).await;
        call(&server, "k", &format!("00-{TRACE}-{SPAN}-01")).await;
        let span = receiver.next();
        println!("{span:#}");
        assert_eq!((&span["transport"], &span["service"]), (&json!(transport), &json!("tidegate")));
        assert_eq!(
            (&span["trace"], &span["parent"]),
            (&json!(TRACE), &json!(SPAN)),
            "the first is not sampled"
        );
        assert_eq!(span["name"], "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
        assert_eq!(span["kind"], 2, "a server's span");
        let attributes = &span["attributes"];
        assert_eq!(
            [&attributes["tidegate.domain"], &attributes["tidegate.limit"], &attributes["tidegate.code"]],
            ["d", "per-key", "OVER_LIMIT"]
        );
        assert_eq!(attributes["tidegate.remaining"], 0);

        // A rule of this domain queues requests, and a stop exports the remaining spans.
        call(&server, "route", &format!("00-{TRACE}-{SPAN}-01")).await;
        server.signal(rustix::process::Signal::TERM);
        let span = receiver.next();
        assert_eq!(span["attributes"]["tidegate.code"], "OK");
        assert_eq!(span["attributes"]["tidegate.limit"], "route");
        assert!(server.wait().success());
    }
}

async fn a_collector_with_tls_is_trusted_by_its_authority_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let authority = Authority::new("collector");
    let (cert, key) = authority.issue(&["localhost"]).write(folder.path(), "collector");
    let ca = replace(&folder.path().join("ca.crt"), &authority.pem);
    let other = replace(&folder.path().join("other.crt"), &Authority::new("other").pem);
    for (transport, protocol) in [("grpc", "grpc"), ("http", "http/protobuf")] {
        let receiver = OtlpReceiver::start_with("traces", &[&cert, &key]);
        let endpoint = format!("https://localhost:{}", receiver.ports[transport]);
        let server = |ca: &Path| {
            let ca = ca.to_str().expect("temporary paths are UTF-8");
            server_with(&endpoint, protocol, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", ca)])
        };
        let distrusting = server(&other);
        call(&distrusting, "k", &format!("00-{}-{SPAN}-01", "1".repeat(32))).await;
        distrusting.logged("spans were not exported");
        let trusting = server(&ca);
        call(&trusting, "k", &format!("00-{TRACE}-{SPAN}-01")).await;
        let span = receiver.next();
        assert_eq!((&span["transport"], &span["trace"]), (&json!(transport), &json!(TRACE)));
    }
}

async fn b3_headers_and_calls_without_context_have_spans_where_the_environment_selects_them() {
    let receiver = OtlpReceiver::start();
    let endpoint = receiver.endpoint("http");
    let selected = [("OTEL_PROPAGATORS", "b3,b3multi"), ("OTEL_TRACES_SAMPLER", "parentbased_always_on")];
    let server = server_with(&endpoint, "http/protobuf", &selected);
    let single = format!("{TRACE}-{SPAN}-1");
    let several = [("x-b3-traceid", TRACE), ("x-b3-spanid", SPAN), ("x-b3-sampled", "1")];
    // The second call in each pair is not served on the fast path.
    for more in [&[][..], &[("tidegate-windows", "yes")]] {
        for headers in [&[("b3", single.as_str())][..], &several] {
            call_with(&server, "k", &[headers, more].concat()).await;
            let span = receiver.next();
            assert_eq!(
                (&span["trace"], &span["parent"]),
                (&json!(TRACE), &json!(SPAN)),
                "{headers:?} {more:?}"
            );
        }
        call_with(&server, "k", &[&[("b3", format!("{TRACE}-{SPAN}-0").as_str())], more].concat()).await;
        call_with(
            &server,
            "k",
            &[&[("traceparent", format!("00-{TRACE}-{SPAN}-00").as_str())], more].concat(),
        )
        .await;
        let span = receiver.next();
        assert_eq!(span["parent"], "", "the unsampled call has no span, and traceparent is not read");
        assert_ne!(span["trace"], TRACE);
    }
}

/// A receiver that is gone costs spans, but no decision.
async fn without_a_receiver_decisions_are_made() {
    let receiver = OtlpReceiver::start();
    let server = server(&receiver, "http", "http/protobuf");
    drop(receiver);
    for _ in 0..3 {
        call(&server, "k", &format!("00-{TRACE}-{SPAN}-01")).await;
    }
}

/// The provider of a connection manager's `tracing`.
const TRACING: &str = r#"                tracing:
                  provider:
                    name: envoy.tracers.opentelemetry
                    typed_config:
                      "@type": type.googleapis.com/envoy.config.trace.v3.OpenTelemetryConfig
                      service_name: envoy
                      grpc_service: { envoy_grpc: { cluster_name: otlp }, timeout: 2s }
                stat_prefix: edge
"#;

/// The cluster that Envoy sends spans to.
const OTLP_CLUSTER: &str = r#"  clusters:
    - name: otlp
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment:
        cluster_name: otlp
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 4317 } } }
"#;

/// Envoy's spans and the server's spans are one trace: ingress, then the call as Envoy makes it, then the decision.
async fn a_request_through_envoy_is_one_trace() {
    let receiver = OtlpReceiver::start();
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/rules.yaml");
    let endpoint = receiver.endpoint("grpc");
    let variables =
        [("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    let server = Server::with_variables(&rules, &[], &variables);
    let config = include_str!("../../deploy/envoy/http.yaml");
    let config =
        config.replace("                stat_prefix: edge\n", TRACING).replace("  clusters:\n", OTLP_CLUSTER);
    let port = receiver.ports["grpc"].as_u64().and_then(|port| u16::try_from(port).ok()).expect("a port");
    let envoy = Envoy::start_with(&config, server.address(), &[(4317, port)]).await;
    let request = Request::get("/api/").header("x-api-key", "alice");
    let response = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(10000), request).await;
    assert_eq!(response.expect("Envoy answers").status(), 200);

    let mut spans: Vec<Value> = Vec::new();
    let decision = |spans: &[Value]| spans.iter().find(|span| span["service"] == "tidegate").cloned();
    let by_id = |spans: &[Value], id: &Value| spans.iter().find(|span| span["span"] == *id).cloned();
    let (call, ingress, decision) = loop {
        spans.push(receiver.next());
        let Some(decision) = decision(&spans) else { continue };
        let Some(call) = by_id(&spans, &decision["parent"]) else { continue };
        if let Some(ingress) = by_id(&spans, &call["parent"]) {
            break (call, ingress, decision);
        }
    };
    for (depth, span) in [&ingress, &call, &decision].into_iter().enumerate() {
        let [service, name, nanos] = [&span["service"], &span["name"], &span["nanos"]];
        println!("{}{service} {name} {nanos} ns, trace {}", "  ".repeat(depth), span["trace"]);
    }
    assert_eq!((&ingress["service"], &call["service"]), (&json!("envoy"), &json!("envoy")));
    assert_eq!((&ingress["trace"], &call["trace"]), (&decision["trace"], &decision["trace"]));
    assert_eq!(ingress["parent"], "", "the root of the trace");
    assert_eq!(decision["attributes"]["tidegate.domain"], "edge");
    assert_eq!(decision["attributes"]["tidegate.limit"], "api-key");
}

/// With Python's receiver alone.
pub mod receiver {
    use super::{
        a_collector_with_tls_is_trusted_by_its_authority_alone,
        b3_headers_and_calls_without_context_have_spans_where_the_environment_selects_them,
        sampled_calls_have_spans_by_either_transport, without_a_receiver_decisions_are_made,
    };

    crate::tests_with! { PYTHON_OTLP:
        sampled_calls_have_spans_by_either_transport,
        a_collector_with_tls_is_trusted_by_its_authority_alone,
        b3_headers_and_calls_without_context_have_spans_where_the_environment_selects_them,
        without_a_receiver_decisions_are_made,
    }
}

crate::tests_with! { PYTHON_OTLP, ENVOY: a_request_through_envoy_is_one_trace }
