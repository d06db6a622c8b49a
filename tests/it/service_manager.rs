//! The protocols of systemd, with the tests in the role of systemd: notifications to its datagram socket (`NOTIFY_SOCKET`), and listening
//! sockets that it passes (`LISTEN_FDS`).

use crate::support::{Client, Server, rules_file};
use std::{
    io::Read,
    net::TcpListener,
    os::{
        fd::OwnedFd,
        unix::net::{UnixDatagram, UnixListener},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};
use tidegate::api::pb::service::rate_limit_service_client::RateLimitServiceClient;

const RULES: &str = "{ domain: demo, descriptors: [] }";

/// A socket as systemd opens it, and its path.
fn notify_socket(folder: &tempfile::TempDir) -> (UnixDatagram, String) {
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    (socket, path.to_str().expect("temporary paths are UTF-8").to_owned())
}

fn received(socket: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let length = socket.recv(&mut message).expect("a notification");
    String::from_utf8(message[..length].to_vec()).expect("text")
}

#[test]
fn systemd_is_notified_of_readiness_the_watchdog_and_the_stop() {
    let folder = tempfile::tempdir().expect("a directory");
    let (socket, path) = notify_socket(&folder);
    let rules = rules_file(RULES);
    let variables = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "600000")];
    let mut server = Server::with_variables(rules.path(), &[], &variables);
    assert_eq!(received(&socket), "STATUS=Restoring counters");
    assert_eq!(received(&socket), "READY=1\nSTATUS=Serving");
    for _ in 0..3 {
        assert_eq!(received(&socket), "WATCHDOG=1");
    }
    server.signal(rustix::process::Signal::TERM);
    let mut last = received(&socket);
    while last == "WATCHDOG=1" {
        last = received(&socket);
    }
    assert_eq!(last, "STOPPING=1\nSTATUS=Draining");
    assert!(server.wait().success());
}

#[test]
fn without_a_watchdog_there_are_no_pings() {
    let folder = tempfile::tempdir().expect("a directory");
    let (socket, path) = notify_socket(&folder);
    let rules = rules_file(RULES);
    let another = [("NOTIFY_SOCKET", &*path), ("WATCHDOG_USEC", "1000"), ("WATCHDOG_PID", "1")];
    let server = Server::with_variables(rules.path(), &[], &another);
    assert!(server.terminate().success());
    let messages = [received(&socket), received(&socket), received(&socket)];
    assert_eq!(messages[1..], ["READY=1\nSTATUS=Serving", "STOPPING=1\nSTATUS=Draining"]);
}

#[test]
fn a_service_manager_that_is_gone_keeps_no_server_from_serving() {
    let rules = rules_file(RULES);
    let server = Server::with_variables(rules.path(), &[], &[("NOTIFY_SOCKET", "/nowhere/notify")]);
    server.logged("cannot reach the service manager");
    assert!(server.terminate().success());
}

/// A server in a process of its own that gets `socket` as systemd passes it: as descriptor 3, under a name.
struct Activated(Child);

impl Activated {
    fn start(socket: OwnedFd, name: &str, args: &[&str]) -> Self {
        // The process's own id is in LISTEN_PID; `exec` keeps it.
        let script = r#"export LISTEN_PID=$$; exec "$0" serve --log-format json --drain-timeout 200ms "$@" 3<&0 0</dev/null"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]).args(args);
        command.env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", name).stdin(socket);
        Self(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts"))
    }

    /// Stops it with SIGTERM.
    fn terminate(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        assert!(self.0.wait().expect("a child").success());
    }

    /// Waits until it has refused to start; returns its log.
    fn refusal(mut self) -> String {
        let mut log = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut log).expect("text");
        assert!(!self.0.wait().expect("a child").success(), "{log}");
        log
    }
}

impl Drop for Activated {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn one_call(address: String) -> i32 {
    let client = RateLimitServiceClient::connect(address).await.expect("the socket is bound");
    let answer = Client(client).hit("demo", &[("api_key", "a")]).await;
    answer.expect("an answer").overall_code
}

#[tokio::test]
async fn a_socket_of_systemd_outlives_the_server_and_its_connections_wait_for_the_next() {
    let socket = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = format!("http://{}", socket.local_addr().expect("an address"));
    let start = || {
        let passed = socket.try_clone().expect("a descriptor").into();
        Activated::start(passed, "grpc", &["--listen", "systemd:grpc"])
    };
    let first = start();
    assert_eq!(one_call(address.clone()).await, 1);
    first.terminate();
    let call = tokio::spawn(one_call(address));
    let second = start();
    assert_eq!(call.await.expect("no panic"), 1);
    second.terminate();
}

#[tokio::test]
async fn the_file_of_a_socket_of_systemd_is_not_removed() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("t.sock");
    let socket = UnixListener::bind(&path).expect("a socket");
    let server = Activated::start(socket.into(), "unix", &["--listen", "systemd:unix"]);
    assert_eq!(one_call(format!("unix:{}", path.display())).await, 1);
    server.terminate();
    assert!(path.exists());
}

#[test]
fn a_name_that_systemd_does_not_pass_is_refused_with_those_that_it_does() {
    let socket = || TcpListener::bind("127.0.0.1:0").expect("a port").into();
    let log = Activated::start(socket(), "http", &["--listen", "systemd:grpc"]).refusal();
    let remedy = "cannot listen on systemd:grpc: systemd passed the sockets http; set FileDescriptorName=grpc in the socket unit";
    assert!(log.contains(remedy), "{log}");
    let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    let log = Activated::start(datagrams.into(), "grpc", &["--listen", "systemd:grpc"]).refusal();
    assert!(log.contains("neither of TCP nor a Unix stream socket"), "{log}");
}
