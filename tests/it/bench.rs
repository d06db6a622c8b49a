//! `tidegate bench` against real servers.

use crate::support::{Server, eventually_blocking, rules_file};
use serde_json::Value;
use std::{
    process::{Command, Output},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tidegate::api::pb::service::{
    RateLimitRequest, RateLimitResponse,
    rate_limit_response::Code,
    rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
};
use tokio::{net::TcpListener, runtime::Runtime};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

fn bench(address: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["bench", address, "--json"])
        .args(args)
        .output()
        .expect("the program runs")
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// Returns OK, OVER_LIMIT, and UNAVAILABLE with a long message, cyclically.
#[derive(Default)]
struct Alternating(AtomicU64);

#[tonic::async_trait]
impl RateLimitService for Alternating {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let code = match self.0.fetch_add(1, Ordering::Relaxed) % 3 {
            0 => Code::Ok,
            1 => Code::OverLimit,
            _ => return Err(Status::unavailable("the counters are elsewhere ".repeat(40))),
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: code.into(),
            // Several frames long.
            raw_body: vec![b'x'; 40_000],
            ..RateLimitResponse::default()
        }))
    }
}

/// Serves with tonic in this process until the runtime is dropped.
fn tonic_server(
    configure: impl FnOnce(tonic::transport::Server) -> tonic::transport::Server,
) -> (Runtime, String) {
    let runtime = Runtime::new().expect("a runtime");
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    let service = RateLimitServiceServer::new(Alternating::default());
    let server = configure(tonic::transport::Server::builder()).add_service(service);
    runtime.spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    (runtime, address)
}

#[test]
fn a_run_of_n_requests_sends_exactly_those() {
    let rules = rules_file(
        "{ domain: demo, descriptors: [{ key: api_key, rate_limit: { unit: year, requests_per_unit: 5 } }] }",
    );
    let server = Server::with_rules(rules.path(), &[]);
    let args = ["--domain", "demo", "--descriptor", "api_key=one", "-n", "12", "-c", "2", "-s", "3"];
    let report = report(&bench(server.address(), &args));
    assert_eq!(
        (&report["requests"], &report["ok"], &report["over_limit"], &report["errors"]),
        (&12.into(), &5.into(), &7.into(), &0.into()),
        "5 are admitted"
    );
}

#[test]
fn an_open_loop_over_a_unix_socket_keeps_its_rate_and_is_plotted() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = format!("unix:{}", folder.path().join("tidegate.sock").display());
    let server = Server::start_on(&socket, &[]);
    let plot = folder.path().join("latency.svg");
    let pid = server.pid().to_string();
    let args =
        ["--domain", "demo", "--descriptor", "api_key={key}", "--rate", "1000", "-n", "300", "--pid", &pid];
    let drawn = ["--plot", plot.to_str().expect("temporary paths are UTF-8")];
    let report = report(&bench(server.address(), &[&args[..], &drawn].concat()));
    assert_eq!((&report["requests"], &report["errors"]), (&300.into(), &0.into()));
    let seconds = report["seconds"].as_f64().expect("a number");
    assert!(seconds > 0.29, "300 requests at 1,000/s were sent in {seconds} s");
    assert!(report["server_cpu_us_per_request"].as_f64().expect("a number") > 0.0);
    assert!(std::fs::read_to_string(plot).expect("the drawing").starts_with("<svg"));
}

#[test]
fn by_default_the_demo_is_measured_and_its_limits_apply() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["-n", "2000", "--keys", "20"]);
    assert_eq!(report(&ran)["limited"], true);
    // 5 for each key, or 6 if a window begins during the run.
    let ok = report(&ran)["ok"].as_u64().expect("a number");
    assert!((100..=120).contains(&ok), "{ok}");
    assert!(ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn a_run_that_no_limit_applied_to_is_reported_as_such() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["--domain", "edge", "-n", "20"]);
    assert_eq!((&report(&ran)["limited"], ran.status.code()), (&false.into(), Some(0)));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("no limit applied to these requests"), "{stderr}");
}

#[test]
fn a_run_that_its_limits_admit_is_not_reported_as_unlimited() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["-n", "20", "--in-order"]);
    assert_eq!((&report(&ran)["limited"], &report(&ran)["over_limit"]), (&true.into(), &0.into()));
    assert!(ran.stderr.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
}

/// Three requests in flight, and a budget of 100 of which each request reserves 40.
const LASTING: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 1h, max_wait: 0s }
  - key: budget
    rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window, reserve: 40, max_hold: 1h }
";

/// Remaining hits of a descriptor.
fn remaining(server: &Server, descriptor: &str) -> Value {
    let called = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["call", "--addr", server.address(), "--json", "--hits", "0", "edge", descriptor])
        .output()
        .expect("the program runs");
    serde_json::from_slice::<Value>(&called.stdout).expect("JSON")["statuses"][0]["remaining"].clone()
}

#[test]
fn held_requests_have_their_slots_until_their_ends() {
    let rules = rules_file(LASTING);
    let server = Server::with_rules(rules.path(), &[]);
    let of_user = ["--domain", "edge", "--descriptor", "user=ann", "--hold", "20ms..40ms"];
    // As many clients as slots: no client is ever denied.
    let ran = report(&bench(server.address(), &[&of_user[..], &["-n", "30", "-c", "1", "-s", "3"]].concat()));
    assert_eq!((&ran["ok"], &ran["over_limit"]), (&30.into(), &0.into()), "{ran:#}");
    assert_eq!(ran["held"], serde_json::json!({ "ended": 30, "lost": 0, "most": 3 }));
    assert!(ran["seconds"].as_f64() > Some(0.15), "ten requests of 20 ms, one after the other: {ran:#}");
    assert_eq!(remaining(&server, "user=ann"), 3);
    // An open loop, and holds that the end of the run cuts short.
    let open = ["--hold", "1h", "--rate", "200", "-d", "200ms", "--warm-up", "0s"];
    let ran = report(&bench(server.address(), &[&of_user[..4], &open[..]].concat()));
    assert_eq!(ran["held"], serde_json::json!({ "ended": 3, "lost": 0, "most": 3 }));
    assert_eq!((&ran["ok"], remaining(&server, "user=ann")), (&3.into(), 3.into()), "{ran:#}");
}

#[test]
fn held_requests_end_with_their_actual_cost() {
    let rules = rules_file(LASTING);
    let server = Server::with_rules(rules.path(), &[]);
    let args = ["--domain", "edge", "--descriptor", "budget=b", "-c", "1", "-s", "1", "--hold", "1ms"];
    let ran = report(&bench(server.address(), &[&args[..], &["-n", "10", "--cost", "6"]].concat()));
    assert_eq!((&ran["ok"], &ran["held"]["ended"]), (&10.into(), &10.into()), "{ran:#}");
    assert_eq!(remaining(&server, "budget=b"), 40);
    let ran = report(&bench(server.address(), &[&args[..], &["-n", "2"]].concat()));
    assert_eq!((&ran["ok"], &ran["over_limit"]), (&1.into(), &1.into()), "the estimate stays");
    let free = ["--descriptor", "budget=c", "-n", "5", "--cost", "0"];
    let ran = report(&bench(server.address(), &[&args[..2], &args[4..], &free[..]].concat()));
    assert_eq!((&ran["ok"], remaining(&server, "budget=c")), (&5.into(), 100.into()));
}

#[test]
fn a_run_in_which_nothing_can_be_held_is_reported_as_such() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["-n", "20", "--in-order", "--hold", "1s"]);
    assert_eq!(report(&ran)["held"]["most"], 0);
    assert!(String::from_utf8_lossy(&ran.stderr).contains("no response had a ticket"));
}

#[test]
fn a_plot_that_cannot_be_written_fails_before_the_run() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["--plot", "/nonexistent/latency.svg", "-n", "5"]);
    assert_eq!((ran.status.code(), ran.stdout.len()), (Some(1), 0), "nothing was measured");
    assert!(String::from_utf8_lossy(&ran.stderr).contains("--plot /nonexistent/latency.svg"));
    let kept = bench(server.address(), &["--descriptor", "api_key=one", "-n", "5"]);
    assert_eq!(report(&kept)["ok"], 5, "the failed run charged nothing");
}

#[test]
fn a_hyphen_as_plot_is_standard_output() {
    let server = Server::start(&[]);
    let ran = bench(server.address(), &["--plot", "-", "-n", "5"]);
    assert!(ran.stdout.starts_with(b"<svg"), "{}", String::from_utf8_lossy(&ran.stdout));
    assert!(serde_json::from_slice::<Value>(&ran.stderr).is_ok(), "the report is on standard error");
}

/// Accepts connections and answers each in HTTP/1.
fn http1_server() -> String {
    use std::io::{Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        }
    });
    address
}

#[test]
fn an_http1_server_is_named_as_such() {
    let ran = bench(&http1_server(), &["-n", "5"]);
    assert_eq!(ran.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("answers in HTTP/1; give the address of a gRPC server"), "{stderr}");
}

#[test]
fn a_failure_is_counted_by_its_status_and_never_as_a_decision() {
    let (_runtime, address) = tonic_server(|server| server);
    let report = report(&bench(&address, &["-n", "3000"]));
    assert_eq!(
        (&report["ok"], &report["over_limit"], &report["errors_by_kind"]["grpc-status 14 UNAVAILABLE"]),
        (&1000.into(), &1000.into(), &1000.into())
    );
}

#[test]
fn without_any_decision_the_command_fails() {
    let server = Server::start(&[]);
    let refused = bench(server.address(), &["--domain", "", "-n", "10"]);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(report(&refused)["errors_by_kind"]["grpc-status 3 INVALID_ARGUMENT"], 10);
}

#[test]
fn connections_that_the_server_ends_are_replaced_without_a_loss() {
    let (_runtime, address) = tonic_server(|server| server.max_connection_age(Duration::from_millis(20)));
    // Repeated until the run connects often enough.
    let report = eventually_blocking("three connections are replaced", || {
        let load = ["-c", "2", "-s", "4", "-d", "400ms", "--warm-up", "0s", "--timeout", "20s"];
        let ended = bench(&address, &load);
        // On a busy machine, connections may end before their first response, and the command with them.
        if !ended.status.success() {
            return Err(Value::from(String::from_utf8_lossy(&ended.stderr)));
        }
        let report = report(&ended);
        if report["reconnects"].as_u64() > Some(2) { Ok(report) } else { Err(report) }
    });
    // No kind is listed if nothing failed.
    let unavailable = report["errors_by_kind"]["grpc-status 14 UNAVAILABLE"].as_u64().unwrap_or(0);
    assert_eq!(report["errors"], unavailable, "nothing else failed: {report}");
}

#[test]
fn without_a_server_the_command_has_a_remedy() {
    let refused = bench("127.0.0.1:1", &[]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("refused") && said.contains("tidegate serve"), "{said}");
}
