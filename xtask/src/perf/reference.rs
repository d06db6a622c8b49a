//! The reference server, and the store that it counts in.

use super::{bench::Process, machine::Machine, server::free_port};
use crate::Failure;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The measured version of the reference server.
const REFERENCE: &str =
    "github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36";

/// The name of the program in it.
const REFERENCE_PROGRAM: &str = "service_cmd";

/// An empty store on the third core, if there are three; else on that of the load.
pub(super) struct Store(Process);

impl Store {
    pub(super) fn start(machine: &Machine) -> Result<Self, Failure> {
        let address = free_port()?;
        let mut command = machine.on_core(2, Path::new("redis-server"));
        command.args(["--bind", "127.0.0.1", "--port"]).arg(address.port().to_string());
        command.args(["--save", "", "--appendonly", "no"]);
        Process::start("redis-server", command, address).map(Self)
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.0.address)
    }

    pub(super) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Calls of scripts so far. What scripts call themselves is not counted.
    pub(super) fn calls(&self) -> Result<u64, Failure> {
        let failed = |error: redis::RedisError| format!("the store failed: {error}");
        let client = redis::Client::open(self.url()).map_err(failed)?;
        let mut connection = client.get_connection().map_err(failed)?;
        let info: String = redis::cmd("INFO").arg("commandstats").query(&mut connection).map_err(failed)?;
        let calls = |command: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(":calls="));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(calls("cmdstat_evalsha") + calls("cmdstat_eval"))
    }
}

/// The program of the reference server.
pub(super) struct Reference(PathBuf);

impl Reference {
    /// The given program, or one that is built with Go.
    pub(super) fn find(given: Option<&Path>, scratch: &Path) -> Result<Self, Failure> {
        if let Some(given) = given {
            return Ok(Self(given.to_owned()));
        }
        let program = scratch.join(REFERENCE_PROGRAM);
        if !program.is_file() {
            let mut go = Command::new("go");
            go.args(["install", REFERENCE]).env("GOBIN", scratch);
            let status = go.status().map_err(|error| format!("go cannot be run: {error}"))?;
            if !status.success() {
                return Err(format!("`go install {REFERENCE}` failed"));
            }
        }
        Ok(Self(program))
    }

    /// Starts it with these rules, with its defaults but for the metrics, which it does not send. `command` runs a program on its core.
    pub(super) fn start(
        &self,
        command: impl FnOnce(&Path) -> Command,
        (scratch, rules): (&Path, &str),
        store: &Store,
    ) -> Result<Process, Failure> {
        let root = scratch.join("perf-reference");
        let config = root.join("ratelimit/config");
        fs::create_dir_all(&config).map_err(|error| format!("{}: {error}", config.display()))?;
        write(&config.join("rules.yaml"), rules)?;
        let address = free_port()?;
        let mut command = command(&self.0);
        command
            .env("USE_STATSD", "false")
            .env("LOG_LEVEL", "error")
            .env("RUNTIME_ROOT", root)
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .env("RUNTIME_WATCH_ROOT", "false")
            .env("REDIS_SOCKET_TYPE", "tcp")
            .env("REDIS_URL", store.0.address.to_string())
            .env("GRPC_PORT", address.port().to_string())
            .env("PORT", free_port()?.port().to_string())
            .env("DEBUG_PORT", free_port()?.port().to_string())
            .env("GOMAXPROCS", "1");
        Process::start("the reference server", command, address)
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
