//! TLS with clients that are not rustls: `openssl s_client`, gRPC for Python, grpcurl, and Envoy.

use crate::{
    envoy_process::Envoy,
    support::{
        Server,
        certificates::{Authority, Pair, replace},
        eventually, http1,
    },
};
use http::Request;
use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};
use tempfile::TempDir;

const GUIDE: &str = include_str!("../../docs/operations.md");
/// The listener of the Envoy config that refuses requests without a decision.
const FAIL_CLOSED: u16 = 10001;

/// The code block of the guide with a text.
fn block(text: &str) -> &'static str {
    let mut blocks = GUIDE.split("```").skip(1).step_by(2);
    let block = blocks.find(|block| block.contains(text)).expect("a block of the guide");
    block.split_once('\n').expect("a language").1
}

/// A server with mutual TLS, and the files of its clients.
struct Mutual {
    folder: TempDir,
    server: Server,
}

impl Mutual {
    fn start(args: &[&str]) -> Self {
        let authority = Authority::new("tests");
        let folder = tempfile::tempdir().expect("a temporary folder");
        replace(&folder.path().join("ca.crt"), &authority.pem);
        let (cert, key) =
            authority.issue(&["tidegate", "localhost", "127.0.0.1"]).write(folder.path(), "tidegate");
        authority.issue(&["envoy"]).write(folder.path(), "envoy");
        let ca = folder.path().join("ca.crt");
        let tls = ["--tls-cert", text(&cert), "--tls-key", text(&key), "--tls-client-ca", text(&ca)];
        let server = Server::start(&[&tls, ["--http-listen", "127.0.0.1:0"].as_slice(), args].concat());
        Self { folder, server }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn port(&self) -> &str {
        self.server.address().rsplit(':').next().expect("host:port")
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("temporary paths are UTF-8")
}

fn succeeded(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

async fn metrics(server: &Server) -> String {
    let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), Request::get("/metrics")).await;
    String::from_utf8(page.expect("a page").into_body()).expect("UTF-8")
}

/// The value of a series.
async fn metric(server: &Server, series: &str) -> u64 {
    let page = metrics(server).await;
    let line = page.lines().find_map(|line| line.strip_prefix(series)).unwrap_or_else(|| panic!("{page}"));
    line.trim().parse().expect("a number")
}

async fn the_commands_of_the_guide_make_certificates_and_call_the_server() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let made = Command::new("sh").args(["-euc", block("openssl req")]).current_dir(folder.path()).output();
    succeeded(&made.expect("sh can be run"));
    let tls = format!("{}/tls/", folder.path().display());
    let in_folder = |line: &str| line.replace("tls/", &tls);
    let mut lines = block("tidegate serve --listen 0.0.0.0:8081").lines();
    let serve = in_folder(
        lines.next().expect("a line").strip_prefix("tidegate serve --listen 0.0.0.0:8081 ").expect("serve"),
    );
    let server = Server::start(&serve.split_whitespace().collect::<Vec<_>>());
    let port = server.address().rsplit(':').next().expect("host:port");
    let call = in_folder(lines.next().expect("a line").strip_prefix("tidegate ").expect("call"));
    let call = call.replace("localhost:8081", &format!("localhost:{port}"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let called = succeeded(&command.args(call.split_whitespace()).output().expect("the command runs"));
    assert!(called.contains("OK"), "{called}");
}

/// `openssl s_client` with arguments; what it prints.
fn s_client(mutual: &Mutual, args: &[&str]) -> String {
    let ca = mutual.path("ca.crt");
    let mut command = Command::new("openssl");
    command.args([
        "s_client",
        "-connect",
        mutual.server.address(),
        "-CAfile",
        text(&ca),
        "-servername",
        "tidegate",
    ]);
    let output = command.args(args).stdin(Stdio::null()).output().expect("openssl can be run");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

async fn s_client_negotiates_both_versions_and_is_refused_without_a_certificate() {
    let mutual = Mutual::start(&[]);
    let (cert, key) = (mutual.path("envoy.crt"), mutual.path("envoy.key"));
    for (flag, version) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let printed = s_client(&mutual, &[flag, "-alpn", "h2", "-cert", text(&cert), "-key", text(&key)]);
        assert!(printed.contains(version), "{printed}");
        assert!(printed.contains("ALPN protocol: h2"), "{printed}");
        assert!(printed.contains("Verify return code: 0 (ok)"), "{printed}");
    }
    s_client(&mutual, &["-tls1_2", "-alpn", "h2"]);
    s_client(&mutual, &["-tls1_1", "-alpn", "h2", "-cipher", "ALL:@SECLEVEL=0"]);
    s_client(&mutual, &["-alpn", "http/1.1", "-cert", text(&cert), "-key", text(&key)]);
    // A handshake is counted when its thread has finished it, which may be later than the client has.
    let expected = ["client_certificate_missing\"} 1", "incompatible\"} 2", "completed\"} 2"]
        .map(|line| format!("tidegate_tls_handshakes_total{{port=\"grpc\",result=\"{line}"));
    let mut page = String::new();
    for _ in 0..500 {
        page = metrics(&mutual.server).await;
        if expected.iter().all(|line| page.contains(line)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{expected:#?} are not all in\n{page}");
}

/// A request of the domain `demo`, with one descriptor: api_key = a.
const MESSAGE: &str = "0a0464656d6f120e0a0c0a076170695f6b6579120161";

/// Makes a call over mutual TLS.
const PYTHON: &str = "
import grpc, sys
target, folder, message = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
read = lambda name: open(folder + '/' + name, 'rb').read()
credentials = grpc.ssl_channel_credentials(read('ca.crt'), read('envoy.key'), read('envoy.crt'))
with grpc.secure_channel(target, credentials) as channel:
    call = channel.unary_unary('/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit')
    print(call(message, timeout=10).hex())
";

async fn grpc_python_calls_over_mutual_tls() {
    let mutual = Mutual::start(&["--tls-allow-san", "envoy"]);
    let mut command = Command::new("python3");
    let target = format!("localhost:{}", mutual.port());
    command.args(["-c", PYTHON, &target, text(mutual.folder.path()), MESSAGE]);
    let response = succeeded(&command.output().expect("python3 can be run"));
    assert!(response.starts_with("0801"), "OK is field 1: {response}");
}

fn grpc_go() -> Command {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/grpc_go");
    let mut command = Command::new("go");
    command.current_dir(folder).env("GOPROXY", "off");
    command
}

async fn grpc_go_calls_over_mutual_tls() {
    let mutual = Mutual::start(&["--tls-allow-san", "envoy"]);
    let target = format!("localhost:{}", mutual.port());
    let mut command = grpc_go();
    command.args(["run", ".", &target, text(mutual.folder.path()), MESSAGE]);
    let response = succeeded(&command.output().expect("go can be run"));
    assert!(response.starts_with("0801"), "OK is field 1: {response}");
}

async fn grpcurl_calls_over_mutual_tls_by_reflection() {
    let mutual = Mutual::start(&["--tls-allow-san", "envoy"]);
    let (ca, cert, key) = (mutual.path("ca.crt"), mutual.path("envoy.crt"), mutual.path("envoy.key"));
    let request = r#"{"domain":"demo","descriptors":[{"entries":[{"key":"api_key","value":"a"}]}]}"#;
    let mut command = Command::new("grpcurl");
    command.args(["-cacert", text(&ca), "-cert", text(&cert), "-key", text(&key), "-d", request]);
    command.args([mutual.server.address(), "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"]);
    let response = succeeded(&command.output().expect("grpcurl can be run"));
    assert!(response.contains("\"overallCode\": \"OK\""), "{response}");
}

/// Envoy's secret, which names the files of a pair.
fn secret(folder: &Path, pair: &Pair, name: &str) -> String {
    let (cert, key) = pair.write(folder, name);
    let secret = block("tls.v3.Secret").replace("tls/envoy.crt", text(&cert));
    secret.replace("tls/envoy.key", text(&key))
}

/// Connections end at a maximum age, so that each rotation is used while requests arrive.
async fn envoy_is_limited_over_mutual_tls_while_both_sides_replace_their_certificates() {
    const REQUESTS: usize = 600;
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name);
    // Both sides trust both authorities; the certificates change from one authority to the other.
    let ca = replace(&path("ca.crt"), &format!("{}{}", old.pem, new.pem));
    let (cert, key) = old.issue(&["tidegate"]).write(folder.path(), "tidegate");
    let sds = replace(&path("envoy-sds.yaml"), &secret(folder.path(), &old.issue(&["envoy"]), "envoy-old"));
    let deployed = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy");
    let rules = deployed.join("rules.yaml");
    let server = Server::with_rules(
        &rules,
        &[
            "--tls-cert",
            text(&cert),
            "--tls-key",
            text(&key),
            "--tls-client-ca",
            text(&ca),
            "--tls-allow-san",
            "envoy",
            "--http-listen",
            "127.0.0.1:0",
            "--max-connection-age",
            "300ms",
        ],
    );
    let socket = block("transport_sockets.tls\n").replace("tls/ca.crt", text(&ca));
    let socket = socket.replace("tls/envoy-sds.yaml", text(&sds));
    let config = fs::read_to_string(deployed.join("http.yaml")).expect("the config");
    // On a busy machine, a decision with a handshake before it may take longer than Envoy waits.
    let config = config.replace("timeout: 0.25s", "timeout: 5s");
    let config = config.replacen("    - name: tidegate\n", &format!("    - name: tidegate\n{socket}"), 1);
    let config = format!("node: {{ id: envoy, cluster: edge }}\n{config}");
    let envoy = Envoy::start_with(&config, server.address(), &[]).await;

    let completed = "tidegate_tls_handshakes_total{port=\"grpc\",result=\"completed\"}";
    let reloads = "tidegate_tls_certificate_reloads_total{port=\"grpc\",result=\"succeeded\"}";
    let mut undecided = 0;
    for number in 0..REQUESTS {
        if number == REQUESTS / 3 {
            new.issue(&["tidegate"]).write(folder.path(), "tidegate");
        }
        if number == REQUESTS * 2 / 3 {
            replace(&sds, &secret(folder.path(), &new.issue(&["envoy"]), "envoy-new"));
        }
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(FAIL_CLOSED), Request::get("/")).await;
        let answer = answer.expect("Envoy answers");
        let is_decided = [200, 429].contains(&answer.status().as_u16());
        undecided += usize::from(!is_decided || !answer.headers().contains_key("x-ratelimit-limit"));
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
    eventually("a reload", async || metric(&server, reloads).await > 0).await;
    let (handshakes, reloads) = (metric(&server, completed).await, metric(&server, reloads).await);
    println!(
        "{REQUESTS} requests, {undecided} without a decision, {handshakes} handshakes, {reloads} reloads"
    );
    assert_eq!(undecided, 0);
    assert!(handshakes >= 3 && reloads >= 1, "{handshakes} handshakes, {reloads} reloads");
    let page = metrics(&server).await;
    assert!(page.contains("result=\"client_certificate_unknown_ca\"} 0"), "{page}");
}

pub mod openssl {
    use super::{
        s_client_negotiates_both_versions_and_is_refused_without_a_certificate,
        the_commands_of_the_guide_make_certificates_and_call_the_server,
    };
    crate::tests_with! { OPENSSL:
        s_client_negotiates_both_versions_and_is_refused_without_a_certificate,
        the_commands_of_the_guide_make_certificates_and_call_the_server,
    }
}

pub mod python {
    use super::grpc_python_calls_over_mutual_tls;
    crate::tests_with! { PYTHON_GRPC: grpc_python_calls_over_mutual_tls }
}

pub mod grpcurl {
    use super::grpcurl_calls_over_mutual_tls_by_reflection;
    crate::tests_with! { GRPCURL: grpcurl_calls_over_mutual_tls_by_reflection }
}

pub mod grpc_go {
    use super::grpc_go_calls_over_mutual_tls;
    crate::tests_with! { GO: grpc_go_calls_over_mutual_tls }

    /// Whether Go is installed and the modules of its program have been downloaded (`go mod download`).
    pub fn is_here() -> bool {
        crate::peer::runs(super::grpc_go().args(["list", "-deps", "./..."]))
    }
}

pub mod envoy {
    use super::envoy_is_limited_over_mutual_tls_while_both_sides_replace_their_certificates;
    crate::tests_with! { ENVOY: envoy_is_limited_over_mutual_tls_while_both_sides_replace_their_certificates }
}
