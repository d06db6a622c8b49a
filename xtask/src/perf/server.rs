//! Server processes, each on its own core.

use super::{
    bench::Process,
    machine::{CoreUse, Machine},
    scenario::{Beside, Scenario},
};
use crate::Failure;
use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

/// Time in which a server that does nothing uses no more CPU than [`IDLE_SECONDS`].
const IDLE_LOOK: Duration = Duration::from_millis(500);
/// Its background threads, and two ticks of the kernel's accounting.
const IDLE_SECONDS: f64 = 0.02;
const IDLE_LOOKS_MAX: u32 = 120;

/// A measured server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Server {
    Tidegate,
    /// tonic, returning a constant.
    Tonic,
    /// Bare hyper, returning a constant.
    Hyper,
    /// Limitador's server, with the same file of limits: at `TIDEGATE_LIMITADOR`.
    Limitador,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Tonic => "tonic",
            Self::Hyper => "hyper",
            Self::Limitador => "limitador",
        }
    }

    /// Whether it can be measured here.
    pub(super) fn is_here(self) -> bool {
        self != Self::Limitador || limitador().is_some()
    }
}

/// The program of Limitador's server, if there is one.
fn limitador() -> Option<PathBuf> {
    std::env::var_os("TIDEGATE_LIMITADOR").map(PathBuf::from)
}

/// Paths of the programs.
pub(super) struct Binaries {
    pub(super) tidegate: PathBuf,
    ceiling: PathBuf,
    pub(super) in_process: PathBuf,
    pub(super) quotas: PathBuf,
    /// Directory for rule files.
    pub(super) scratch: PathBuf,
}

impl Binaries {
    pub(super) fn in_folder(folder: &Path) -> Result<Self, Failure> {
        let file = |name: &str| {
            let path = folder.join(name);
            if path.is_file() { Ok(path) } else { Err(format!("{} was not built", path.display())) }
        };
        Ok(Self {
            tidegate: file("tidegate")?,
            ceiling: file("ceiling")?,
            in_process: file("in_process")?,
            quotas: file("quotas")?,
            scratch: folder.to_owned(),
        })
    }
}

impl Binaries {
    /// The rule file of the running server.
    pub(super) fn rules(&self) -> PathBuf {
        self.scratch.join("perf-rules.yaml")
    }

    /// The file with the token of a caller of the control API.
    pub(super) fn token(&self) -> PathBuf {
        self.scratch.join("perf-token")
    }

    /// Makes that token, and a file of tokens for the server; returns the path of the latter, and the token.
    fn make_token(&self) -> Result<(PathBuf, String), Failure> {
        let tokens = self.scratch.join("perf-tokens");
        // Of a former run.
        let _ = fs::remove_file(&tokens);
        let mut command = Command::new(&self.tidegate);
        command.args(["token", "perf", "--role", "read", "--file"]).arg(&tokens);
        let made = command.output().map_err(|error| format!("tidegate token cannot be run: {error}"))?;
        let token = String::from_utf8_lossy(&made.stdout).trim().to_owned();
        if !made.status.success() || token.is_empty() {
            return Err(format!("tidegate token failed: {}", String::from_utf8_lossy(&made.stderr)));
        }
        let path = self.token();
        fs::write(&path, &token).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok((tokens, token))
    }

    /// Writes a certificate for loopback and its key, both ECDSA P-256; returns their paths.
    fn certificate(&self) -> Result<(PathBuf, PathBuf), Failure> {
        let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
            .map_err(|error| format!("no certificate: {error}"))?;
        let write = |name: &str, text: String| {
            let path = self.scratch.join(name);
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
            Ok::<_, Failure>(path)
        };
        Ok((
            write("perf-tls.crt", pair.cert.pem())?,
            write("perf-tls.key", pair.signing_key.serialize_pem())?,
        ))
    }
}

/// A port that is free now. Another process, or a connection that is being closed, can have it before the server binds it.
pub(super) fn free_port() -> Result<SocketAddr, Failure> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("there is no free port: {error}"))
}

/// A running server.
pub(super) struct Running {
    process: Process,
    /// Address of the HTTP port, if there is one.
    pub(super) http: Option<SocketAddr>,
    /// The token of a caller of the control API, if it is called.
    pub(super) token: Option<String>,
}

impl Running {
    /// Starts the server on the first core and waits until it accepts connections. If it ends at once, it is started on another
    /// port.
    pub(super) fn start(
        server: Server,
        scenario: &Scenario,
        machine: &Machine,
        binaries: &Binaries,
    ) -> Result<Self, Failure> {
        let start = || Self::start_once(server, scenario, machine, binaries);
        start().or_else(|_| start()).or_else(|_| start())
    }

    /// Waits until it does nothing.
    pub(super) fn wait_until_idle(&self, machine: &Machine) -> Result<(), Failure> {
        let mut before = CoreUse::read(machine.core(0), self.pid())?;
        for _ in 0..IDLE_LOOKS_MAX {
            sleep(IDLE_LOOK);
            let now = CoreUse::read(machine.core(0), self.pid())?;
            if now.process_since(&before) <= IDLE_SECONDS {
                return Ok(());
            }
            before = now;
        }
        Err(format!("the server still works {:?} after the load has ended", IDLE_LOOK * IDLE_LOOKS_MAX))
    }

    fn start_once(
        server: Server,
        scenario: &Scenario,
        machine: &Machine,
        binaries: &Binaries,
    ) -> Result<Self, Failure> {
        let address = free_port()?;
        let has_http = matches!(scenario.beside, Beside::Scrapes) || scenario.has_control();
        let http = has_http.then(free_port).transpose()?;
        let token = scenario.has_control().then(|| binaries.make_token()).transpose()?;
        let rules = binaries.rules();
        fs::write(&rules, scenario.rules()).map_err(|error| format!("{}: {error}", rules.display()))?;
        let mut command = match server {
            Server::Tidegate => {
                let mut command = machine.on_core(0, &binaries.tidegate);
                command.args(["serve", "--threads", "1", "--listen"]).arg(address.to_string());
                command.arg("--rules").arg(rules).args(scenario.serve);
                if let Some(http) = http {
                    command.arg("--http-listen").arg(http.to_string());
                }
                if let Some((tokens, _)) = &token {
                    command.arg("--http-token-file").arg(tokens);
                }
                command
            }
            Server::Limitador => {
                let program = limitador().ok_or("TIDEGATE_LIMITADOR is not set")?;
                let mut command = machine.on_core(0, &program);
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                let http = free_port()?.port().to_string();
                command.args(["--rls-ip", &ip, "--rls-port", &port, "--http-ip", &ip, "--http-port", &http]);
                // As for the others: one worker on the core.
                command.arg(rules).arg("memory").env("TOKIO_WORKER_THREADS", "1");
                command
            }
            Server::Tonic | Server::Hyper => {
                let mut command = machine.on_core(0, &binaries.ceiling);
                command.arg(server.name()).arg(address.to_string());
                command
            }
        };
        if scenario.tls {
            let (cert, key) = binaries.certificate()?;
            command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
        }
        let process = Process::start(server.name(), command, address)?;
        Ok(Self { process, http, token: token.map(|(_, token)| token) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// Resident memory in MiB.
    pub(super) fn resident_mib(&self) -> Option<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        Some(kib / 1024.0)
    }
}
