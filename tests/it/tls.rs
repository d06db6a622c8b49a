//! TLS and mutual TLS of a real server, with certificates made for the test.

use crate::support::{
    Server,
    certificates::{Authority, Pair, replace},
    eventually, http1, http2, tls,
};
use rustls::ClientConfig;
use std::{
    collections::VecDeque,
    fs,
    net::{self, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};
use tempfile::TempDir;
use tidegate::api::pb::test::{SetRequest, clock_client::ClockClient};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

const SERVER_NAMES: &[&str] = &["localhost", "127.0.0.1"];
const SPIFFE: &str = "spiffe://cluster.local/ns/edge/sa/envoy";

/// A folder of certificates, and the authority that signed them.
pub struct Pki {
    pub folder: TempDir,
    pub authority: Authority,
}

impl Pki {
    pub fn new() -> Self {
        let authority = Authority::new("tests");
        let pki = Self { folder: tempfile::tempdir().expect("a temporary folder"), authority };
        pki.authority.issue(SERVER_NAMES).write(pki.folder.path(), "server");
        replace(&pki.folder.path().join("ca.crt"), &pki.authority.pem);
        pki
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a server with TLS on the gRPC port.
    pub fn start(&self, args: &[&str]) -> Server {
        let (cert, key) = (self.path("server.crt"), self.path("server.key"));
        let tls = ["--tls-cert", text(&cert), "--tls-key", text(&key), "--http-listen", "127.0.0.1:0"];
        Server::start(&[&tls, args].concat())
    }

    /// Starts a server that requires client certificates.
    pub fn start_mutual(&self, args: &[&str]) -> Server {
        self.start(&[&["--tls-client-ca", text(&self.path("ca.crt"))], args].concat())
    }

    fn client(&self, own: Option<&Pair>) -> Arc<ClientConfig> {
        tls::client(&self.authority, own)
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

/// `tidegate call` of the demo rules with further arguments.
fn call(address: &str, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["call", "demo", "api_key=a", "--addr", address]).args(args);
    command.output().expect("the command runs")
}

async fn metrics(server: &Server) -> String {
    let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), http::Request::get("/metrics")).await;
    String::from_utf8(page.expect("a page").into_body()).expect("UTF-8")
}

/// Waits until the metrics have a line.
async fn has_metric(server: &Server, line: &str) {
    eventually(line, async || {
        let page = metrics(server).await;
        if page.lines().any(|found| found == line) { Ok(()) } else { Err(page) }
    })
    .await;
}

fn handshakes(result: &str, count: u64) -> String {
    format!("tidegate_tls_handshakes_total{{port=\"grpc\",result=\"{result}\"}} {count}")
}

/// The lines of the log that contain a text.
#[tokio::test]
async fn clients_with_tls_are_decided_and_those_without_are_refused_with_a_reason() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let answer = tls::decide(server.address(), &pki.client(None)).await.expect("a decision");
    assert_eq!(answer.grpc.expect("a status").code(), tonic::Code::Ok);
    let called = call(server.address(), &["--tls-ca", text(&pki.path("ca.crt"))]);
    assert!(called.status.success(), "{called:?}");

    for _ in 0..3 {
        let mut plain = TcpStream::connect(server.address()).await.expect("the server accepts");
        plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("the socket takes it");
    }
    has_metric(&server, &handshakes("not_tls", 3)).await;
    has_metric(&server, &handshakes("completed", 2)).await;
    assert_eq!(server.logged("client without TLS on a TLS port").len(), 1, "{:#?}", server.log());
}

#[tokio::test]
async fn a_tls_client_on_a_port_without_tls_is_counted_and_has_a_remedy() {
    let pki = Pki::new();
    let server = Server::start(&["--http-listen", "127.0.0.1:0"]);
    let called = call(server.address(), &["--tls-ca", text(&pki.path("ca.crt"))]);
    let error = String::from_utf8_lossy(&called.stderr).into_owned();
    assert!(!called.status.success() && error.contains("leave out the --tls flags"), "{error}");
    has_metric(&server, &handshakes("tls_on_plaintext_port", 1)).await;
    assert_eq!(server.logged("set --tls-cert and --tls-key").len(), 1, "{:#?}", server.log());
}

/// In TLS 1.3 a client has completed its handshake, and writes, before the server has seen that the certificate is missing.
#[tokio::test]
async fn a_refused_client_that_writes_reads_why() {
    let pki = Pki::new();
    let server = pki.start_mutual(&[]);
    let mut client = tls::connect(server.address(), &pki.client(None)).await.expect("the client's half");
    client.write_all(&[0; 64 * 1024]).await.expect("the connection is open");
    has_metric(&server, &handshakes("client_certificate_missing", 1)).await;
    for _ in 0..3 {
        client.write_all(&[0; 1024]).await.expect("the connection is not reset");
        client.flush().await.expect("the connection is not reset");
    }
    let error = client.read(&mut [0; 16]).await.expect_err("the server has refused the client");
    assert!(error.to_string().contains("CertificateRequired"), "{error}");
}

#[tokio::test]
async fn mutual_tls_refuses_clients_by_reason() {
    let pki = Pki::new();
    let server = pki.start_mutual(&["--tls-allow-san", SPIFFE, "--tls-allow-san", "Edge.Test"]);
    let other = Authority::new("another authority");
    let refused = [
        (None, "client_certificate_missing", "--tls-client-ca requires (--http-tls-client-ca"),
        (Some(pki.authority.issue_until(&[SPIFFE], 2021)), "client_certificate_expired", "renew it"),
        (
            Some(other.issue(&[SPIFFE])),
            "client_certificate_unknown_ca",
            "--tls-client-ca (--http-tls-client-ca",
        ),
        (Some(pki.authority.issue(&["other.test"])), "client_san_not_allowed", "it has: other.test"),
    ];
    for (own, result, log) in refused {
        let answer = tls::decide(server.address(), &pki.client(own.as_ref())).await;
        assert!(answer.is_err(), "{result}: {answer:?}");
        has_metric(&server, &handshakes(result, 1)).await;
        assert_eq!(server.logged(log).len(), 1, "{result}: {:#?}", server.log());
    }
    for name in [SPIFFE, "edge.test"] {
        let own = pki.authority.issue(&["more.test", name]);
        tls::decide(server.address(), &pki.client(Some(&own))).await.expect("an allowed name");
    }
    let (cert, key) = pki.authority.issue(&[SPIFFE]).write(pki.folder.path(), "client");
    let ca = pki.path("ca.crt");
    let called =
        call(server.address(), &["--tls-ca", text(&ca), "--tls-cert", text(&cert), "--tls-key", text(&key)]);
    assert!(called.status.success(), "{called:?}");
    has_metric(&server, &handshakes("completed", 3)).await;
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_server_is_counted_and_has_a_remedy() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let other = replace(&pki.path("other.crt"), &Authority::new("another authority").pem);
    let called = call(server.address(), &["--tls-ca", text(&other)]);
    let error = String::from_utf8_lossy(&called.stderr).into_owned();
    assert!(error.contains("with --tls-ca"), "{error}");
    has_metric(&server, &handshakes("refused_by_client", 1)).await;

    let ca = pki.path("ca.crt");
    let called = call(server.address(), &["--tls-ca", text(&ca), "--tls-server-name", "other.test"]);
    let error = String::from_utf8_lossy(&called.stderr).into_owned();
    assert!(error.contains("with --tls-server-name"), "{error}");
    let called = call(server.address(), &["--tls-insecure"]);
    assert!(called.status.success(), "{called:?}");
}

/// The end of the validity of the certificate in force, as the metrics have it.
fn expires(year: i64) -> String {
    // Leap days between 1970 and the years of these tests: 4,102,444,800 is 2100-01-01.
    let seconds = match year {
        2099 => 4_070_908_800_i64,
        2100 => 4_102_444_800,
        _ => unreachable!("a year of these tests"),
    };
    format!("tidegate_tls_certificate_not_after_timestamp_seconds{{port=\"grpc\"}} {seconds}.0")
}

#[tokio::test]
async fn a_replaced_certificate_serves_new_connections_and_open_ones_stay() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let stream = tls::connect(server.address(), &pki.client(None)).await.expect("a handshake");
    let open = http2::Connection::over(stream).await.expect("HTTP/2");
    tls::request(&open).await.expect("a decision");
    has_metric(&server, &expires(2100)).await;

    // A key without its certificate, a certificate without its key, and an expired pair leave the certificate in force.
    let pem = pki.authority.issue(SERVER_NAMES).key;
    replace(&pki.path("server.key"), &pem);
    has_failed_reload(&server, "does not belong").await;
    let reloaded =
        |value| format!("tidegate_file_last_reload_successful{{file=\"grpc_certificate\"}} {value}");
    has_metric(&server, &reloaded(0)).await;
    replace(&pki.path("server.crt"), "no PEM");
    has_failed_reload(&server, "no certificate in PEM form").await;
    pki.authority.issue_until(SERVER_NAMES, 2021).write(pki.folder.path(), "server");
    has_failed_reload(&server, "expired").await;
    tls::decide(server.address(), &pki.client(None)).await.expect("the former certificate serves");
    has_metric(&server, &expires(2100)).await;

    let next = Authority::new("next");
    next.issue_until(SERVER_NAMES, 2099).write(pki.folder.path(), "server");
    has_metric(&server, &expires(2099)).await;
    has_metric(&server, &reloaded(1)).await;
    assert!(tls::decide(server.address(), &pki.client(None)).await.is_err(), "the new certificate is served");
    tls::decide(server.address(), &tls::client(&next, None)).await.expect("the new certificate serves");
    tls::request(&open).await.expect("the open connection stays");
}

/// SIGHUP used to read only the rule files.
#[tokio::test]
async fn sighup_reads_the_certificates_again() {
    let pki = Pki::new();
    let server = pki.start(&[]);
    let reloads = |count| {
        format!("tidegate_tls_certificate_reloads_total{{port=\"grpc\",result=\"succeeded\"}} {count}")
    };
    has_metric(&server, &reloads(0)).await;
    server.signal(rustix::process::Signal::HUP);
    has_metric(&server, &reloads(1)).await;
    tls::decide(server.address(), &pki.client(None)).await.expect("the certificate serves");
    assert_eq!(server.logged("certificate reloaded; open connections stay").len(), 1, "{:#?}", server.log());
}

/// It was refused once and never read again, while the former certificate expired.
#[tokio::test]
async fn a_certificate_that_is_not_valid_yet_serves_once_it_is() {
    let pki = Pki::new();
    let (cert, key) = (pki.path("server.crt"), pki.path("server.key"));
    let args = ["--http-listen", "127.0.0.1:0", "--http-tls-cert", text(&cert), "--http-tls-key", text(&key)];
    // The server's clock starts in 1970, long before the certificate is valid.
    let server = Server::start(&[&args[..], &["--test-clock"]].concat());
    let mut clock = ClockClient::new(server.channel().await);
    pki.authority.issue(SERVER_NAMES).write(pki.folder.path(), "server");
    has_failed_reload(&server, "is not valid for another").await;
    let now = Some(prost_types::Timestamp { seconds: 1_700_000_000, nanos: 0 });
    clock.set(SetRequest { now }).await.expect("the time is set");
    eventually("a reload without a change of the files", async || {
        let done = server.logged("certificate reloaded; open connections stay");
        if done.is_empty() { Err(server.log()) } else { Ok(()) }
    })
    .await;
}

async fn has_failed_reload(server: &Server, cause: &str) {
    let is_line = |line: &String| line.contains("certificate not reloaded") && line.contains(cause);
    eventually(&format!("a failed reload with {cause:?}"), async || {
        let log = server.log();
        if log.iter().any(is_line) { Ok(()) } else { Err(log) }
    })
    .await;
}

#[tokio::test]
async fn the_http_port_has_tls_of_its_own() {
    let pki = Pki::new();
    let (cert, key) = (pki.path("server.crt"), pki.path("server.key"));
    let args = ["--http-listen", "127.0.0.1:0", "--http-tls-cert", text(&cert), "--http-tls-key", text(&key)];
    let server = Server::start(&args);
    let address = format!("127.0.0.1:{}", server.admin_port());
    let mut config = Arc::unwrap_or_clone(pki.client(None));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut stream = tls::connect(&address, &Arc::new(config)).await.expect("a handshake");
    let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    stream.write_all(request).await.expect("the server reads");
    let mut page = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut page).await.expect("the server answers");
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("tidegate_tls_handshakes_total{port=\"http\",result=\"completed\"} 1"), "{page}");
    // The gRPC port has no TLS.
    server.client().await.hit("demo", &[("api_key", "a")]).await.expect("a decision");
}

#[test]
fn files_that_cannot_be_used_end_the_start_with_the_reason() {
    let pki = Pki::new();
    let (cert, key) = (pki.path("server.crt"), pki.path("server.key"));
    let other = pki.authority.issue(SERVER_NAMES).write(pki.folder.path(), "other").1;
    let empty = replace(&pki.path("empty"), "");
    let absent = pki.path("absent");
    for (cert, key, reason) in [
        (&cert, &other, "does not belong to the certificate"),
        (&absent, &key, "absent: "),
        (&empty, &key, "no certificate in PEM form"),
        (&cert, &empty, "no private key in PEM form"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--tls-cert", text(cert), "--tls-key", text(key)]);
        let ended = command.output().expect("the command runs");
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        assert!(!ended.status.success() && error.contains(reason), "{error}");
    }
}

/// The number of an attacker's half handshakes, unless `TIDEGATE_TEST_HANDSHAKES` raises it.
const HALF_HANDSHAKES: usize = 300;

fn half_handshakes() -> usize {
    std::env::var("TIDEGATE_TEST_HANDSHAKES").map_or(HALF_HANDSHAKES, |text| text.parse().expect("a number"))
}

/// With a bound but no eviction, clients that complete no handshake would lock others out.
#[tokio::test]
async fn half_handshakes_do_not_lock_others_out_and_end_in_time() {
    let pki = Pki::new();
    let server = pki.start(&["--tls-max-handshakes", "50", "--tls-handshake-timeout", "3s"]);
    // A record header of a ClientHello, without its content.
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00];
    let mut half = Vec::new();
    for _ in 0..half_handshakes() {
        let mut socket = TcpStream::connect(server.address()).await.expect("the server accepts");
        // An evicted connection may be closed already.
        let _ = socket.write_all(&hello).await;
        half.push(socket);
    }
    tls::decide(server.address(), &pki.client(None)).await.expect("a decision");
    let line = metrics(&server).await;
    let evicted = line.lines().find(|line| line.contains("result=\"evicted\"")).expect("the metric");
    let evicted: usize = evicted.rsplit(' ').next().and_then(|count| count.parse().ok()).expect("a count");
    assert!(evicted >= half_handshakes().saturating_sub(50), "{evicted}");
    // The other connections, and no more.
    let rest = half_handshakes() + 1 - evicted - 1;
    has_metric(&server, &handshakes("timed_out", rest as u64)).await;
    assert_eq!(server.logged("handshake not complete within").len(), 1, "{:#?}", server.log());
}

/// Makes calls on an open connection one by one until `is_done`, and at least `calls_min`. Returns the processor time that the worker took
/// for each.
async fn worker_time_per_call(
    server: &Server,
    connection: &http2::Connection,
    calls_min: u32,
    is_done: impl Fn() -> bool,
) -> Duration {
    let (before, mut calls) = (processor_time(server, "worker-0"), 0);
    while calls < calls_min || !is_done() {
        tls::request(connection).await.expect("a decision");
        calls += 1;
    }
    (processor_time(server, "worker-0") - before) / calls
}

/// The processor time of a thread of the server so far. Unlike latencies, it is the same on a busy machine.
fn processor_time(server: &Server, thread: &str) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{}/task", server.pid())).expect("the server runs");
    let mut tasks = tasks.map(|task| task.expect("an entry").path());
    let is_named =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == thread);
    let task = tasks.find(is_named).unwrap_or_else(|| panic!("no thread {thread}"));
    let times = fs::read_to_string(task.join("schedstat")).expect("the kernel keeps it");
    Duration::from_nanos(times.split(' ').next().and_then(|time| time.parse().ok()).expect("nanoseconds"))
}

/// The first flight of a client: the server computes a key exchange and a signature for it.
fn client_hello(config: Arc<ClientConfig>) -> Vec<u8> {
    let name = rustls::pki_types::ServerName::try_from("localhost").expect("a DNS name");
    let mut client = rustls::ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    client.write_tls(&mut hello).expect("memory takes it");
    hello
}

/// Sends the hello on new connections and never completes a handshake.
fn start_half_handshakes(address: &str, hello: &[u8], count: usize) -> JoinHandle<VecDeque<net::TcpStream>> {
    let (address, hello) = (address.to_owned(), hello.to_vec());
    thread::spawn(move || {
        let mut open = VecDeque::new();
        for _ in 0..count {
            let mut socket = net::TcpStream::connect(&address).expect("the server accepts");
            // An evicted connection may be closed already.
            let _ = std::io::Write::write_all(&mut socket, &hello);
            open.push_back(socket);
            // As many as may be in progress at once by default; the server has ended older ones.
            if open.len() > 1_000 {
                open.pop_front();
            }
        }
        open
    })
}

/// Handshakes used to be completed on the threads that decide, which delayed calls on open connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_handshakes_take_no_time_of_the_threads_that_decide() {
    const CALLS: u32 = 300;
    /// They take about four times as long as the calls.
    const HANDSHAKES: usize = 1_000;
    let pki = Pki::new();
    let server = pki.start(&["--threads", "1", "--tls-handshake-timeout", "10m"]);
    let hello = client_hello(pki.client(None));
    let stream = tls::connect(server.address(), &pki.client(None)).await.expect("a handshake");
    let open = http2::Connection::over(stream).await.expect("HTTP/2");
    let before = worker_time_per_call(&server, &open, CALLS, || true).await;
    let handshakes_before = processor_time(&server, "tls-handshakes");
    let attack = start_half_handshakes(server.address(), &hello, HANDSHAKES);
    let during = worker_time_per_call(&server, &open, CALLS, || attack.is_finished()).await;
    // A connection that is closed is not computed any more.
    let _open = attack.join().expect("the server accepts all");
    let mut computed = Duration::ZERO;
    while computed <= before * CALLS {
        // Their thread has a low priority: on a busy machine it goes on slowly.
        computed = eventually("the server computes more of the handshakes", async || {
            let now = processor_time(&server, "tls-handshakes") - handshakes_before;
            (now > computed).then_some(now)
        })
        .await;
    }
    assert!(during < 2 * before, "a call takes {during:?} of the worker, {before:?} without handshakes");
}

#[test]
fn bench_measures_a_server_with_tls() {
    let pki = Pki::new();
    let (cert, key) = pki.authority.issue(&[SPIFFE]).write(pki.folder.path(), "client");
    let server = pki.start_mutual(&[]);
    let ca = pki.path("ca.crt");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["bench", server.address(), "-n", "20000", "-c", "2", "--json", "--tls-ca", text(&ca)]);
    let measured = command.args(["--tls-cert", text(&cert), "--tls-key", text(&key)]).output();
    let measured = measured.expect("the command runs");
    assert!(measured.status.success(), "{measured:?}");
    let report: serde_json::Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let text = report.to_string();
    assert!(text.contains("20000"), "{text}");
}
