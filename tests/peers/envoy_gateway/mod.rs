//! Envoy Gateway itself, an Envoy that it configures, and Tidegate instead of its rate limit deployment.
//!
//! Envoy Gateway runs standalone: its resources are files, and it starts Envoy itself. The Envoy that it starts is a script that notes its
//! arguments; the test runs Envoy with these arguments, so that Envoy outlives a restart of the gateway as it does in a cluster. Host names
//! and ports are those of a cluster, in network namespaces.

pub mod deployment;
pub mod in_flight;
mod network;
pub mod pod;

use crate::{
    envoy_process::envoy_binary,
    support::{eventually_within, http1},
};
use network::Network;
use pod::Pod;
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};
use tempfile::TempDir;

/// The port of the gateway's listener.
const LISTENER: u16 = 8888;

/// Names of a cluster.
const HOSTS: &str = "127.0.0.1 localhost\n10.89.0.1 envoy-gateway\n\
                     10.89.0.2 envoy-ratelimit.envoy-gateway-system.svc.cluster.local envoy-ratelimit.envoy-gateway-system\n";

/// Whether Envoy Gateway is on the PATH, and network namespaces can be made.
pub fn is_here() -> bool {
    let can_link = || {
        let script = "ip link add a0 type veth peer name b0 && command -v setpriv && command -v chroot";
        crate::peer::runs(Command::new("unshare").args(["--net", "--mount", "sh", "-c", script]))
    };
    crate::peer::runs(Command::new("envoy-gateway").arg("version"))
        && envoy_binary().is_some()
        && crate::chroot::is_here()
        && can_link()
}

/// Makes the root of Envoy: the root of this machine, with certificates at the path that the gateway's configuration names.
const ENVOY_ROOT: &str = r#"
    mkdir "$0"
    for path in /*; do
        if [ -L "$path" ]; then cp -P "$path" "$0$path"; fi
        if [ -d "$path" ] && [ ! -L "$path" ]; then mkdir "$0$path" && mount --rbind "$path" "$0$path"; fi
    done
    mkdir -p "$0/certs"
    mount --bind "$1" "$0/certs"
"#;

/// A process that is killed when dropped.
pub struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The resources with a policy of this many requests an hour for each value of `x-user-id`.
fn resources(requests: u32) -> String {
    include_str!("resources.yaml").replace("REQUESTS", &requests.to_string())
}

/// The files of Envoy Gateway.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().unwrap());
        // The rate limit server's user reads its certificates below it.
        fs::set_permissions(files.0.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let programs = files.path("data/envoy-versions/1.40.0/bin");
        for folder in [files.path("resources"), files.path("config"), programs.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        let arguments = files.path("arguments");
        let script = format!(
            "#!/bin/sh\nprintf '%s\\n' \"$@\" > {0}.new && mv {0}.new {0}\nexec sleep infinity\n",
            arguments.display()
        );
        fs::write(programs.join("envoy"), script).unwrap();
        fs::set_permissions(programs.join("envoy"), fs::Permissions::from_mode(0o755)).unwrap();
        let root = files.0.path().to_str().unwrap();
        fs::write(files.path("gateway.yaml"), include_str!("gateway.yaml").replace("FOLDER", root)).unwrap();
        fs::write(files.path("hosts"), HOSTS).unwrap();
        files.make_certificates();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn certs(&self, of: &str) -> PathBuf {
        self.path("config/certs").join(of)
    }

    /// Replaces all resources at once.
    fn write_resources(&self, resources: &str) {
        let new = self.path("resources.new");
        fs::write(&new, resources).unwrap();
        fs::rename(new, self.path("resources/all.yaml")).unwrap();
    }

    /// Makes an authority, and all certificates.
    fn make_certificates(&self) {
        let mut certgen = Command::new("envoy-gateway");
        certgen.args(["certgen", "--local", "--config-home"]).arg(self.path("config"));
        let output = certgen.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for file in fs::read_dir(self.certs("envoy-rate-limit")).unwrap() {
            fs::set_permissions(file.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
        }
    }
}

/// Everything but Tidegate.
struct Cluster {
    files: Files,
    node: Network,
    gateway: Option<Killed>,
    envoy: Option<Killed>,
}

impl Cluster {
    fn with(resources: &str, backend: fn()) -> Self {
        let files = Files::new();
        files.write_resources(resources);
        let node = Network::new(&files.path("hosts"));
        let paths = [files.path("root"), files.certs("envoy")];
        let script = node.command("sh").args(["-ec", ENVOY_ROOT]).args(&paths).output().unwrap();
        assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
        node.spawn(backend);
        Self { files, node, gateway: None, envoy: None }
    }

    fn log(&self, name: &str) -> File {
        File::options().create(true).append(true).open(self.files.path(name)).unwrap()
    }

    fn start_gateway(&mut self) {
        let mut command = self.node.command("envoy-gateway");
        command.args(["server", "--config-path"]).arg(self.files.path("gateway.yaml"));
        command.stdout(self.log("gateway.log")).stderr(self.log("gateway.log"));
        self.gateway = Some(Killed(command.spawn().unwrap()));
    }

    /// Starts Envoy with the arguments that the gateway passes to it.
    fn start_envoy(&mut self) {
        let arguments = self.files.path("arguments");
        eventually("the arguments of Envoy", || arguments.exists());
        let arguments = fs::read_to_string(arguments).unwrap();
        // The bootstrap has many lines, each other argument has one.
        let (before, rest) = arguments.split_once("--config-yaml\n").unwrap();
        let (bootstrap, after) = rest.split_once("\n--").unwrap();
        let after = format!("--{after}");
        // Arguments after a separator are for the gateway alone.
        let after = after.lines().take_while(|word| *word != "--");
        let mut command = self.node.command("chroot");
        command.arg(self.files.path("root")).arg(envoy_binary().unwrap());
        command.args(before.lines()).args(["--config-yaml", bootstrap]).args(after);
        command.args(["--base-id", "0", "--disable-hot-restart"]);
        command.stdout(self.log("envoy.log")).stderr(self.log("envoy.log"));
        self.envoy = Some(Killed(command.spawn().unwrap()));
    }

    /// The status codes of this many requests of one user, 0 for no response.
    fn statuses(&self, user: &str, count: usize) -> Vec<u16> {
        let user = user.to_owned();
        self.node.block_on(async move {
            let mut statuses = Vec::new();
            for _ in 0..count {
                statuses.push(status(&user).await);
            }
            statuses
        })
    }

    /// The limit in force, as a new user sees it.
    fn limit(&self) -> usize {
        static USERS: AtomicUsize = AtomicUsize::new(0);
        let user = format!("user-{}", USERS.fetch_add(1, Ordering::Relaxed));
        let statuses = self.statuses(&user, 8);
        statuses.iter().filter(|status| **status == 200).count()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            for name in ["gateway.log", "envoy.log"] {
                let log = fs::read_to_string(self.files.path(name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                eprintln!("end of {name}:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
            }
        }
    }
}

/// The status code of a request through Envoy, 0 for no response.
async fn status(user: &str) -> u16 {
    let request = http::Request::get("/").header("x-user-id", user);
    let answer = http1::fetch(Ipv4Addr::LOCALHOST, LISTENER, request).await;
    answer.map_or(0, |answer| answer.status().as_u16())
}

/// The backend of the route: answers 200.
fn serve_backend() {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 3000)).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    }
}

/// Waits longer than for other servers: three programs start, and the gateway makes certificates.
fn eventually(what: &str, holds: impl FnMut() -> bool) {
    eventually_within(Duration::from_secs(60), what, holds);
}

/// Requests of new users without a pause; each request must be admitted.
struct Traffic {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<(usize, Vec<u16>)>,
}

impl Traffic {
    fn start(node: &Network) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let thread = node.spawn({
            let is_over = Arc::clone(&is_over);
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let (mut count, mut failed) = (0, Vec::new());
                    while !is_over.load(Ordering::Relaxed) {
                        count += 1;
                        let status = status(&format!("load-{count}")).await;
                        failed.extend((status != 200).then_some(status));
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    (count, failed)
                })
            }
        });
        Self { is_over, thread }
    }

    /// Ends the requests; returns their number, and the statuses of failed requests.
    fn end(self) -> (usize, Vec<u16>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

async fn envoy_gateway_limits_by_this_server_as_by_the_reference_server() {
    tokio::task::spawn_blocking(serve_a_gateway).await.unwrap();
}

fn serve_a_gateway() {
    let mut cluster = Cluster::with(&resources(3), serve_backend);
    let hosts = cluster.files.path("hosts");
    let pod_network = Network::new(&hosts);
    cluster.node.link(&pod_network);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    // This is not part of the deployment: it makes reconnections earlier.
    let sooner =
        [("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "100ms"), ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "500ms")];
    let pod = Pod::start(&pod_network, &folder, &cluster.files.certs("envoy-rate-limit"), &hosts, &sooner);
    cluster.start_gateway();
    cluster.start_envoy();

    eventually("an answer of the backend", || cluster.statuses("first", 1) == [200]);
    let statuses = cluster.statuses("alice", 5);
    println!(
        "a policy of 3 requests per hour: {}",
        statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(" ")
    );
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    assert_eq!(cluster.statuses("bob", 1), [200], "users are counted apart");

    let traffic = Traffic::start(&cluster.node);
    cluster.files.write_resources(&resources(5));
    eventually("the changed policy", || cluster.limit() == 5);

    // Without the gateway the rules stay; they follow the gateway again when it is back.
    cluster.gateway = None;
    assert_eq!(cluster.limit(), 5);
    cluster.files.write_resources(&resources(2));
    cluster.start_gateway();
    eventually("the policy of the restarted gateway", || cluster.limit() == 2);

    // A new authority signs all certificates. Existing connections stay; new connections use the new certificates.
    cluster.files.make_certificates();
    eventually("the new certificate", || pod.log().contains("certificate reloaded"));
    cluster.gateway = None;
    cluster.files.write_resources(&resources(4));
    cluster.start_gateway();
    let accepted = || pod.log().matches("rules reloaded").count();
    eventually("the policy after the change of certificates", || accepted() == 4);
    let (count, failed) = traffic.end();
    println!(
        "2 changes of the policy, 2 restarts of the gateway, 1 change of all certificates: {count} requests, failed {}",
        failed.len()
    );
    assert_eq!(failed, [0_u16; 0]);
    assert!(count > 100);

    // A new Envoy verifies this server by the new authority.
    cluster.envoy = None;
    fs::remove_file(cluster.files.path("arguments")).unwrap();
    cluster.gateway = None;
    cluster.start_gateway();
    cluster.start_envoy();
    eventually("the limit at a new Envoy", || cluster.limit() == 4);
}

crate::tests_with! { ENVOY_GATEWAY: envoy_gateway_limits_by_this_server_as_by_the_reference_server }
