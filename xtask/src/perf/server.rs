//! Servers and their store, each on its own core.

use super::{
    Place,
    machine::CoreUse,
    process::{Process, free_port, memory_mib},
    suite::{Beside, Load},
};
use crate::Failure;
use serde::Deserialize;
use std::{
    env, fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::Command,
    thread::sleep,
    time::Duration,
};

/// Time in which a server that does nothing uses no more CPU than [`IDLE_SECONDS`].
const IDLE_LOOK: Duration = Duration::from_millis(500);
/// Its background threads, and two ticks of the kernel's accounting.
const IDLE_SECONDS: f64 = 0.02;
const IDLE_LOOKS_MAX: u32 = 120;

/// The measured version of the reference server, and the name of the program in it.
const REFERENCE: &str =
    "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36";
const REFERENCE_PROGRAM: &str = "service_cmd";

/// A measured server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Server {
    Tidegate,
    /// tonic, returning a constant.
    Tonic,
    /// Bare hyper, returning a constant.
    Hyper,
    /// Limitador's server, with the same file of limits: at `TIDEGATE_LIMITADOR`.
    Limitador,
    /// The reference server, with a store.
    Reference,
}

impl Server {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Tidegate => "tidegate",
            Self::Tonic => "tonic",
            Self::Hyper => "hyper",
            Self::Limitador => "limitador",
            Self::Reference => "reference",
        }
    }

    /// Its program. The reference server is built with Go, unless it is given.
    pub(super) fn program(self, place: &Place) -> Result<PathBuf, Failure> {
        match self {
            Self::Tidegate => Ok(place.program("tidegate")),
            Self::Tonic | Self::Hyper => Ok(place.program("ceiling")),
            Self::Limitador => {
                let program = env::var_os("TIDEGATE_LIMITADOR").ok_or("TIDEGATE_LIMITADOR is not set")?;
                Ok(program.into())
            }
            Self::Reference => {
                if let Some(given) = &place.options.reference {
                    return Ok(given.clone());
                }
                let program = place.program(REFERENCE_PROGRAM);
                if !program.is_file() {
                    let mut go = Command::new("go");
                    go.args(["install", REFERENCE]).env("GOBIN", &place.programs);
                    let status = go.status().map_err(|error| format!("go cannot be run: {error}"))?;
                    if !status.success() {
                        return Err(format!("`go install {REFERENCE}` failed"));
                    }
                }
                Ok(program)
            }
        }
    }
}

/// An empty store on the third core, if there are three; else on that of the load.
pub(super) struct Store {
    process: Process,
    address: SocketAddr,
}

impl Store {
    pub(super) fn start(place: &Place) -> Result<Self, Failure> {
        let address = free_port()?;
        let mut command = place.machine.on_core(2, "redis-server");
        command.args(["--bind", "127.0.0.1", "--port"]).arg(address.port().to_string());
        command.args(["--save", "", "--appendonly", "no"]);
        let process = Process::listening("redis-server", command, &place.file("perf-store.log"), address)?;
        Ok(Self { process, address })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Calls of scripts so far. What scripts call themselves is not counted.
    pub(super) fn calls(&self) -> Result<u64, Failure> {
        let mut info = String::new();
        let read = TcpStream::connect(self.address).and_then(|mut stream| {
            stream.write_all(b"INFO commandstats\r\nQUIT\r\n")?;
            stream.read_to_string(&mut info)
        });
        read.map_err(|error| format!("the store failed: {error}"))?;
        let calls = |command: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(":calls="));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(calls("cmdstat_evalsha") + calls("cmdstat_eval"))
    }
}

/// The command of a reference server with these rules: with its defaults but for the metrics, which it does not send.
pub(super) fn reference(
    place: &Place,
    core: usize,
    rules: &str,
    store: &Store,
    address: SocketAddr,
) -> Result<Command, Failure> {
    let root = place.file("perf-reference");
    let config = root.join("ratelimit/config");
    fs::create_dir_all(&config).map_err(|error| format!("{}: {error}", config.display()))?;
    place.write("perf-reference/ratelimit/config/rules.yaml", rules)?;
    let mut command = place.machine.on_core(core, Server::Reference.program(place)?);
    command
        .env("USE_STATSD", "false")
        .env("LOG_LEVEL", "error")
        .env("RUNTIME_ROOT", root)
        .env("RUNTIME_SUBDIRECTORY", "ratelimit")
        .env("RUNTIME_WATCH_ROOT", "false")
        .env("REDIS_SOCKET_TYPE", "tcp")
        .env("REDIS_URL", store.address.to_string())
        .env("GRPC_PORT", address.port().to_string())
        .env("PORT", free_port()?.port().to_string())
        .env("DEBUG_PORT", free_port()?.port().to_string())
        .env("GOMAXPROCS", "1");
    Ok(command)
}

/// A running server.
pub(super) struct Running {
    process: Process,
    pub(super) address: SocketAddr,
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
        load: &Load,
        store: Option<&Store>,
        place: &Place,
    ) -> Result<Self, Failure> {
        let start = || Self::start_once(server, load, store, place);
        start().or_else(|_| start()).or_else(|_| start())
    }

    fn start_once(
        server: Server,
        load: &Load,
        store: Option<&Store>,
        place: &Place,
    ) -> Result<Self, Failure> {
        let address = free_port()?;
        let has_http = load.beside == Beside::Scrapes || load.has_control();
        let http = has_http.then(free_port).transpose()?;
        let token = load.has_control().then(|| make_token(place)).transpose()?;
        let rules = place.write("perf-rules.yaml", &load.rules())?;
        let mut command = place.machine.on_core(0, server.program(place)?);
        match server {
            Server::Tidegate => {
                let serve = load.serve.replace("STORE", &store.map_or_else(String::new, Store::url));
                command.args(["serve", "--threads", "1", "--listen"]).arg(address.to_string());
                command.arg("--rules").arg(rules).args(serve.split_whitespace());
                if let Some(http) = http {
                    command.arg("--http-listen").arg(http.to_string());
                }
                if token.is_some() {
                    command.arg("--http-token-file").arg(place.file(TOKENS));
                }
            }
            Server::Limitador => {
                let (ip, port) = (address.ip().to_string(), address.port().to_string());
                let http = free_port()?.port().to_string();
                command.args(["--rls-ip", &ip, "--rls-port", &port, "--http-ip", &ip, "--http-port", &http]);
                // As for the others: one worker on the core.
                command.arg(rules).arg("memory").env("TOKIO_WORKER_THREADS", "1");
            }
            Server::Tonic | Server::Hyper => _ = command.arg(server.name()).arg(address.to_string()),
            Server::Reference => {
                let store = store.ok_or("the reference server needs a store")?;
                command = reference(place, 0, &load.rules(), store, address)?;
            }
        }
        if load.tls {
            let (cert, key) = certificate(place)?;
            command.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key);
        }
        let log = place.file(&format!("perf-{}-{}.log", server.name(), address.port()));
        let process = Process::listening(server.name(), command, &log, address)?;
        // Of no use once it serves.
        let _ = fs::remove_file(log);
        Ok(Self { process, address, http, token })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    pub(super) fn resident_mib(&self) -> Result<f64, Failure> {
        memory_mib(self.pid(), "VmRSS").ok_or_else(|| "the server's memory cannot be read".to_owned())
    }

    /// Waits until it does nothing.
    pub(super) fn wait_until_idle(&self, place: &Place) -> Result<(), Failure> {
        let mut before = CoreUse::read(place.machine.core(0), self.pid())?;
        for _ in 0..IDLE_LOOKS_MAX {
            sleep(IDLE_LOOK);
            let now = CoreUse::read(place.machine.core(0), self.pid())?;
            if now.process_since(&before) <= IDLE_SECONDS {
                return Ok(());
            }
            before = now;
        }
        Err(format!("the server still works {:?} after the load has ended", IDLE_LOOK * IDLE_LOOKS_MAX))
    }
}

/// The file of tokens of the server, and that with the token of a caller.
const TOKENS: &str = "perf-tokens";
pub(super) const TOKEN: &str = "perf-token";

/// Makes a token of a caller of the control API, and the file of tokens for the server.
fn make_token(place: &Place) -> Result<String, Failure> {
    let tokens = place.file(TOKENS);
    // Of a former run.
    let _ = fs::remove_file(&tokens);
    let mut command = Command::new(place.program("tidegate"));
    command.args(["token", "perf", "--role", "read", "--file"]).arg(&tokens);
    let made = command.output().map_err(|error| format!("tidegate token cannot be run: {error}"))?;
    let token = String::from_utf8_lossy(&made.stdout).trim().to_owned();
    if !made.status.success() || token.is_empty() {
        return Err(format!("tidegate token failed: {}", String::from_utf8_lossy(&made.stderr)));
    }
    place.write(TOKEN, &token)?;
    Ok(token)
}

/// Writes a certificate for loopback and its key, both ECDSA P-256; returns their paths.
fn certificate(place: &Place) -> Result<(PathBuf, PathBuf), Failure> {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])
        .map_err(|error| format!("no certificate: {error}"))?;
    let key = pair.signing_key.serialize_pem();
    Ok((place.write("perf-tls.crt", &pair.cert.pem())?, place.write("perf-tls.key", &key)?))
}
