//! The layer under real HTTP and real gRPC: in this process, and in the samples.

use crate::servers::{Server, misbehaving, serve};
use axum::{Router, routing::get};
use std::{
    env,
    net::TcpListener as StdListener,
    panic,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tidegate_client::{Builder, Key, Missing, OnFailure, RateLimitLayer, Tidegate};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const FIVE: &str = "{domain: demo, descriptors: [{key: api_key, rate_limit: {name: demo, unit: hour, requests_per_unit: 5, algorithm: token_bucket}}]}";

fn client(address: &str) -> Builder {
    Tidegate::builder(address).domain("demo").timeout(Duration::from_secs(10))
}

/// Sends a request; the status, and the headers in lower case.
async fn get_status(address: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    let request = format!("GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("a response");
    let status = response.split(' ').nth(1).expect("a status").parse().expect("a number");
    (status, response.to_lowercase())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_lets_five_requests_pass_and_denies_the_sixth() {
    let server = serve(FIVE, &[]);
    let layer = |address: &str, policy| {
        let client = client(address).on_failure(policy).build().expect("a client");
        RateLimitLayer::new(client, [Key::header("api_key", "x-api-key", Missing::Reject)])
    };
    let listen = async |layer| {
        let app = Router::new().route("/", get(|| async { "hello" })).layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        tokio::spawn(async move { axum::serve(listener, app).await });
        address
    };
    let address = listen(layer(&server.address, OnFailure::Open)).await;
    for remaining in (0..5).rev() {
        let (status, response) = get_status(&address, "x-api-key: alice\r\n").await;
        assert_eq!(status, 200, "{response}");
        assert!(response.contains(&format!("ratelimit: \"demo\";r={remaining}\r\n")), "{response}");
    }
    for _ in 0..2 {
        let (status, response) = get_status(&address, "x-api-key: alice\r\n").await;
        assert_eq!(status, 429, "{response}");
        assert!(response.contains("ratelimit-policy: \"demo\";q=5;w=3600"), "{response}");
        assert!(response.contains("retry-after: 7"), "{response}");
        assert!(response.ends_with("too many requests\n"), "{response}");
    }
    assert_eq!(get_status(&address, "x-api-key: bob\r\n").await.0, 200);
    assert_eq!(get_status(&address, "").await.0, 400);
    let (_, response) = get_status(&address, "x-api-key: alice\r\ncontent-type: application/grpc\r\n").await;
    assert!(response.contains("grpc-status: 8"), "{response}");

    let (_, refused) = misbehaving("refused");
    let closed = listen(layer(&refused, OnFailure::Closed)).await;
    assert_eq!(get_status(&closed, "x-api-key: alice\r\n").await.0, 503);
}

/// A running sample; killed when dropped.
struct Sample(Child);

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of a sample, which `cargo test` builds beside the tests.
fn program(name: &str) -> Command {
    let tests: PathBuf = env::current_exe().expect("a path");
    let folder = tests.parent().and_then(|folder| folder.parent()).expect("a folder");
    Command::new(folder.join("examples").join(name))
}

/// Starts a sample that listens on a free port, as soon as it accepts connections.
fn start(name: &str, server: &Server) -> (Sample, String) {
    let unused = StdListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = unused.expect("a free port").port().to_string();
    let mut command = program(name);
    command.arg(&port).env("TIDEGATE_ADDR", &server.address).stdout(Stdio::null());
    let sample = Sample(command.spawn().expect("it starts; build it with `cargo build --examples`"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_err() {
        assert!(Instant::now() < deadline, "the sample does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    (sample, port)
}

/// The status of a response, and the response in lower case, as curl prints it.
fn curl(arguments: &[&str]) -> (u16, String) {
    let output = Command::new("curl").args(["--silent", "--include"]).args(arguments).output();
    let response = String::from_utf8(output.expect("curl runs").stdout).expect("UTF-8").to_lowercase();
    let status = response.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.expect("a status"), response)
}

/// Repeats a failed run: samples have the timeout of 50 ms, which a machine under load exceeds.
fn repeated(scenario: fn()) {
    if (0..2).all(|_| panic::catch_unwind(scenario).is_err()) {
        scenario();
    }
}

#[test]
fn the_axum_sample_admits_five_requests_of_curl_and_denies_the_sixth() {
    repeated(check_axum);
}

fn check_axum() {
    let server = serve(FIVE, &[]);
    let (_sample, port) = start("axum", &server);
    let url = format!("http://127.0.0.1:{port}/");
    for remaining in (0..5).rev() {
        let (status, response) = curl(&["-H", "x-api-key: alice", &url]);
        assert_eq!(status, 200, "{response}");
        assert!(response.contains(&format!("ratelimit: \"demo\";r={remaining}\r\n")), "{response}");
        assert!(response.ends_with(&format!("hello, {remaining} left\n")), "{response}");
    }
    let (status, response) = curl(&["-H", "x-api-key: alice", &url]);
    assert_eq!(status, 429, "{response}");
    assert!(response.contains("ratelimit: \"demo\";r=0;t=7"), "{response}");
    assert!(response.contains("ratelimit-policy: \"demo\";q=5;w=3600"), "{response}");
    assert!(response.contains("retry-after: 7"), "{response}");
    assert_eq!(curl(&[&url]).0, 400);
}

#[test]
fn the_tonic_sample_admits_five_calls_and_denies_the_sixth() {
    repeated(check_tonic);
}

fn check_tonic() {
    let server = serve(FIVE, &[]);
    let (_sample, port) = start("tonic", &server);
    let call = || -> Output { program("tonic").args([&port, "call"]).output().expect("it runs") };
    for remaining in (0..5).rev() {
        let output = call();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(printed.starts_with(&format!("hello Some(\"\\\"demo\\\";r={remaining}")), "{printed}");
    }
    let output = call();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{error}");
    assert!(error.contains("ResourceExhausted"), "{error}");
    assert!(error.contains("\"retry-after\": \"7"), "{error}");
}
