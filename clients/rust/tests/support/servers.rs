//! Real servers in processes of their own.

use prost_types::Timestamp;
use serde_json::Value;
use std::{
    env,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};
use tempfile::NamedTempFile;
use tonic::{client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

/// A `tidegate` process that listens on a free port of loopback; killed when dropped.
pub struct Server {
    child: Child,
    pub address: String,
    _rules: Option<NamedTempFile>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Sends a signal, such as `STOP`.
    #[allow(dead_code, reason = "tests/conformance sends none")]
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()), "kill -{name}");
    }
}

pub fn program() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/tidegate");
    env::var_os("TIDEGATE_BIN").map_or_else(built, PathBuf::from)
}

/// Starts a program that logs its address as JSON, once it serves.
pub fn start(program: &Path, arguments: &[&str], rules: Option<NamedTempFile>) -> Server {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child =
        command.spawn().expect("the server starts; build it with `cargo build`, or set TIDEGATE_BIN");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
    let (mut address, mut log) = (String::new(), String::new());
    for line in lines.by_ref() {
        let event: Value = serde_json::from_str(&line).unwrap_or_default();
        match event["message"].as_str() {
            Some("listening") => event["address"].as_str().unwrap_or_default().clone_into(&mut address),
            Some("serving") => {
                thread::spawn(move || lines.for_each(drop));
                return Server { child, address, _rules: rules };
            }
            _ => log += &line,
        }
    }
    panic!("the server does not serve: {log}");
}

/// Starts `tidegate serve` with rules.
pub fn serve(rules: &str, arguments: &[&str]) -> Server {
    serve_on("127.0.0.1:0", rules, arguments)
}

pub fn serve_on(listen: &str, rules: &str, arguments: &[&str]) -> Server {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    file.write_all(rules.as_bytes()).expect("rules are written");
    let path = file.path().to_str().expect("UTF-8").to_owned();
    let serve = ["serve", "--rules", &path, "--listen", listen, "--log-format", "json"];
    start(&program(), &[&serve, arguments].concat(), Some(file))
}

/// Starts a server with a fault; `refused` is an address on which nothing listens.
pub fn misbehaving(fault: &str) -> (Option<Server>, String) {
    if fault == "refused" {
        let unused = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        return (None, unused.expect("a free port").to_string());
    }
    let server = start(&program().with_file_name("faulty-server"), &[fault], None);
    let address = server.address.clone();
    (Some(server), address)
}

/// `SetRequest` and `SetResponse` of `tidegate.test.v1.Clock`.
#[derive(Clone, PartialEq, prost::Message)]
struct Now {
    #[prost(message, optional, tag = "1")]
    now: Option<Timestamp>,
}

/// Sets the clock of a server with `--test-clock`.
pub struct TestClock(Grpc<Channel>);

impl TestClock {
    pub fn new(address: &str) -> Self {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        Self(Grpc::new(endpoint.connect_lazy()))
    }

    pub async fn set(&mut self, millis: u64, nanos: u64) {
        let seconds = i64::try_from(millis / 1000).expect("a time");
        let nanos = i32::try_from(millis % 1000 * 1_000_000 + nanos).expect("a time");
        let request = tonic::Request::new(Now { now: Some(Timestamp { seconds, nanos }) });
        self.0.ready().await.expect("the server answers");
        let path = http::uri::PathAndQuery::from_static("/tidegate.test.v1.Clock/Set");
        self.0.unary(request, path, ProstCodec::<Now, Now>::default()).await.expect("the clock is set");
    }
}
