//! Rules from the SnapshotCache of go-control-plane over mutual TLS, to a server with the environment variables of Envoy Gateway's rate
//! limit deployment. Only ports and paths differ.

use crate::{
    envoy_gateway::pod::ENVIRONMENT,
    support::{certificates::Authority, eventually_blocking, http1, http2::Connection, tls},
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/control_plane")
}

/// Whether Go is installed and the modules have been downloaded (`go mod download` in the folder of the program).
pub fn is_here() -> bool {
    let mut list = Command::new("go");
    list.args(["list", "-deps", "./..."]).current_dir(folder()).env("GOPROXY", "off");
    crate::peer::runs(&mut list)
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The control plane, and the lines that it writes.
pub struct Plane {
    process: Killed,
    lines: Arc<Mutex<Vec<String>>>,
    address: String,
}

impl Plane {
    /// Starts the control plane by a command without arguments.
    pub fn start(mut program: Command, certs: &Path, listen: &str) -> Self {
        let mut child = program
            .args(["-node", "envoy-ratelimit", "-listen", listen, "-certs"])
            .arg(certs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let first = stdout.next().unwrap().unwrap();
        let address = first.strip_prefix("listening ").unwrap().to_owned();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&lines);
        thread::spawn(move || {
            stdout.map_while(Result::ok).for_each(|line| written.lock().unwrap().push(line));
        });
        Self { process: Killed(child), lines, address }
    }

    /// Puts resources in the cache.
    pub fn set(&mut self, version: &str, resources: Value) {
        let line = json!({ "version": version, "resources": resources });
        writeln!(self.process.0.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The lines that it wrote and that have this beginning.
    pub fn lines(&self, begin: &str) -> Vec<String> {
        self.lines.lock().unwrap().iter().filter(|line| line.starts_with(begin)).cloned().collect()
    }
}

/// Builds the control plane.
pub fn build(program: &Path) {
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(program).arg(".").current_dir(folder());
    let built = go.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
}

/// The shape of rules that Envoy Gateway makes: a route, then a match of a rule, then each value of a header.
pub fn rules(requests: u32, unit: &str) -> Value {
    let limit = json!({ "unit": unit, "requestsPerUnit": requests });
    let value = json!({ "key": "rule-0-match-0", "rateLimit": limit });
    let route = json!({ "key": "httproute/default/backend/rule/0", "value": "httproute/default/backend/rule/0",
                        "descriptors": [value] });
    json!([{ "name": "default/eg/http", "domain": "default/eg/http", "descriptors": [route] }])
}

/// The program, its certificates and its rules.
struct Deployment {
    folder: TempDir,
    authority: Authority,
}

impl Deployment {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let certs = folder.path().join("certs");
        fs::create_dir(&certs).unwrap();
        let authority = Authority::new("authority");
        fs::write(certs.join("ca.crt"), &authority.pem).unwrap();
        authority.issue(&["localhost", "127.0.0.1"]).write(&certs, "plane");
        authority.issue(&["localhost", "envoy-ratelimit"]).write(&certs, "tls");
        symlink(env!("CARGO_BIN_EXE_tidegate"), folder.path().join("ratelimit")).unwrap();
        let program = folder.path().join("plane");
        build(&program);
        Self { folder, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts the server with the variables of Envoy Gateway's deployment, with the given variables, and no others.
    fn start(
        &self,
        plane: &str,
        [http, grpc, debug, metrics]: [u16; 4],
        variables: &[(&str, String)],
    ) -> Killed {
        let certs = |name: &str| self.path("certs").join(name).display().to_string();
        let child = Command::new(self.path("ratelimit"))
            .env_clear()
            .envs(ENVIRONMENT)
            .envs([
                ("CONFIG_GRPC_XDS_SERVER_URL", plane),
                // These are not part of the deployment: they keep the reconnections of this test short.
                ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "50ms"),
                ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "200ms"),
            ])
            .env("GRPC_SERVER_TLS_CERT", certs("tls.crt"))
            .env("GRPC_SERVER_TLS_KEY", certs("tls.key"))
            .env("GRPC_SERVER_TLS_CA_CERT", certs("ca.crt"))
            .env("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", certs("tls.crt"))
            .env("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", certs("tls.key"))
            .env("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", certs("ca.crt"))
            .env("PORT", http.to_string())
            .env("GRPC_PORT", grpc.to_string())
            .env("DEBUG_PORT", debug.to_string())
            .env("PROMETHEUS_ADDR", format!(":{metrics}"))
            .envs(variables.iter().map(|(name, value)| (*name, value.as_str())))
            .stdin(Stdio::null())
            .stderr(fs::File::create(self.path("log")).unwrap())
            .spawn()
            .unwrap();
        Killed(child)
    }

    /// The response to one hit, as `tidegate call --json` prints it; none if the call failed.
    fn call(&self, grpc: u16) -> Option<Value> {
        let route = "httproute/default/backend/rule/0";
        let called = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["call", "default/eg/http", &format!("{route}={route},rule-0-match-0=alice"), "--json"])
            .args(["--addr", &format!("localhost:{grpc}"), "--tls-ca"])
            .arg(self.path("certs").join("ca.crt"))
            .output()
            .unwrap();
        serde_json::from_slice(&called.stdout).ok()
    }
}

/// The body of a page; none if it cannot be read.
fn page(port: u16, path: &str) -> Option<String> {
    let fetch = http1::fetch(std::net::Ipv4Addr::LOCALHOST, port, http::Request::get(path));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let response = runtime.block_on(fetch).ok().filter(|response| response.status() == 200)?;
    String::from_utf8(response.into_body()).ok()
}

fn is_ok(port: u16, path: &str) -> bool {
    page(port, path).is_some()
}

fn free_ports() -> [u16; 4] {
    [(); 4]
        .map(|()| TcpListener::bind(("127.0.0.1", 0)).unwrap())
        .map(|listener| listener.local_addr().unwrap().port())
}

async fn rules_follow_a_snapshot_cache_over_mutual_tls() {
    tokio::task::spawn_blocking(follow).await.unwrap();
}

fn follow() {
    let deployment = Deployment::new();
    let certs = deployment.path("certs");
    let ports = free_ports();
    let [http, grpc, debug, metrics] = ports;
    let mut plane = Plane::start(Command::new(deployment.path("plane")), &certs, "127.0.0.1:0");
    let mut server = deployment.start(&plane.address.clone(), ports, &[]);

    // No snapshot yet: healthy, since FORCE_START_WITHOUT_INITIAL_CONFIG is set; calls fail.
    eventually_blocking("the health check", || is_ok(http, "/healthcheck"));
    assert!(is_ok(debug, "/metrics") && is_ok(metrics, "/metrics"));
    assert!(deployment.call(grpc).is_none());

    plane.set("1", rules(3, "HOUR"));
    eventually_blocking("an ACK", || plane.lines("ack 1").len() == 1);
    eventually_blocking("the first rules", || deployment.call(grpc).is_some());
    let codes: Vec<Value> = (0..4).map(|_| deployment.call(grpc).unwrap()["overall"].clone()).collect();
    assert!(codes.contains(&json!("OVER_LIMIT")), "{codes:?}");

    // Calls continue throughout; none may fail.
    let is_over = Arc::new(AtomicBool::new(false));
    let (address, config) = (format!("localhost:{grpc}"), tls::client(&deployment.authority, None));
    let calls = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let stream = tls::connect(&address, &config).await.unwrap();
                let connection = Connection::over(stream).await.unwrap();
                let mut calls = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    let answer = tls::request(&connection).await.unwrap();
                    let code = answer.grpc.map(|status| status.code());
                    assert_eq!(code, Some(tonic::Code::Ok), "no call fails");
                    calls += 1;
                }
                calls
            })
        }
    });

    for version in 2..12 {
        plane.set(&version.to_string(), rules(100 + version, "MINUTE"));
        eventually_blocking("an ACK", || plane.lines(&format!("ack {version}")).len() == 1);
    }

    plane.set("12", rules(5, "UNKNOWN"));
    eventually_blocking("a NACK", || !plane.lines("nack").is_empty());
    let refusal = plane.lines("nack").remove(0);
    assert!(refusal.contains("xds:default/eg/http:") && refusal.contains("rate_limit.unit"), "{refusal}");
    thread::sleep(Duration::from_millis(500));
    let refusals = plane.lines("nack").len();
    assert!(
        refusals <= 2,
        "{refusals} refusals within half a second: the cache sends a refused version again"
    );

    // The control plane restarts with new certificates of the same authority, and the server's certificates are new too.
    let listen = plane.address.clone();
    drop(plane);
    deployment.authority.issue(&["localhost", "127.0.0.1"]).write(&certs, "plane");
    deployment.authority.issue(&["localhost", "envoy-ratelimit"]).write(&certs, "tls");
    assert!(deployment.call(grpc).is_some(), "rules stay");
    let mut plane = Plane::start(Command::new(deployment.path("plane")), &certs, &listen);
    plane.set("13", rules(77, "DAY"));
    eventually_blocking("an ACK after a restart", || plane.lines("ack 13").len() == 1);
    plane.set("14", json!([]));
    eventually_blocking("the removal", || plane.lines("ack 14").len() == 1);

    is_over.store(true, Ordering::Relaxed);
    let calls = calls.join().unwrap();
    println!("13 updates, 1 version refused, 1 restart of the control plane; {calls} calls, failed 0");
    assert!(calls > 0);
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    assert!(server.0.wait().unwrap().success());
}

async fn rules_have_the_keys_that_the_message_lacks() {
    tokio::task::spawn_blocking(add_keys).await.unwrap();
}

/// The default algorithm, and a file that extends the rules. The Go module of the messages has no metadata of descriptors yet.
fn add_keys() {
    let deployment = Deployment::new();
    let file = deployment.path("extensions.yaml");
    let extension = "{key: in_file, rate_limit: {algorithm: leaky_bucket, burst: 5}, on_deny: {body: later}}";
    fs::write(&file, format!("domain: edge\nextensions:\n- {extension}\n")).unwrap();
    let mut plane =
        Plane::start(Command::new(deployment.path("plane")), &deployment.path("certs"), "127.0.0.1:0");
    let ports = free_ports();
    let variables = [
        ("TIDEGATE_RULES", format!("{}:xds://{}?node=envoy-ratelimit", file.display(), plane.address)),
        ("TIDEGATE_DEFAULT_ALGORITHM", "sliding_window".to_owned()),
    ];
    let _server = deployment.start(&plane.address.clone(), ports, &variables);
    let limit = json!({ "unit": "MINUTE", "requestsPerUnit": 60 });
    let resource = |unit: &str| {
        json!([{ "name": "edge", "domain": "edge", "descriptors": [
            { "key": "alone", "rateLimit": limit },
            { "key": "in_file", "rateLimit": { "unit": unit, "requestsPerUnit": 60 } },
        ] }])
    };
    plane.set("1", resource("MINUTE"));
    eventually_blocking("an ACK", || plane.lines("ack 1").len() == 1);
    let rules = page(ports[0], "/rules").unwrap();
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let rules = rules[0]["rules"].as_array().unwrap();
    let algorithms: Vec<&Value> = rules.iter().map(|rule| &rule["limits"][0]["algorithm"]).collect();
    assert_eq!(algorithms, ["sliding_window", "leaky_bucket"], "{rules:#?}");
    let declared_at = rules[1]["declared_at"].as_str().unwrap();
    assert!(declared_at.starts_with("xds:edge:") && declared_at.contains("extended at"), "{declared_at}");
    assert_eq!(rules[1]["on_deny"], "reply with a body of 5 bytes", "{rules:#?}");

    fs::write(&file, "domain: edge\nextensions:\n- {key: in_file, rate_limit: {calendar: true, algorithm: fixed_window}}\n")
        .unwrap();
    let log = || fs::read_to_string(deployment.path("log")).unwrap();
    eventually_blocking("a refused file", || log().contains("extensions.yaml:3:"));
    plane.set("2", resource("DAY"));
    plane.set("3", json!([]));
    eventually_blocking("the removal", || plane.lines("ack 3").len() == 1);
}

crate::tests_with! {
    CONTROL_PLANE:
    rules_follow_a_snapshot_cache_over_mutual_tls,
    rules_have_the_keys_that_the_message_lacks,
}
