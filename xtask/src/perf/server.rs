//! Running servers, and their store.

use super::{Place, process::Process};
use anyhow::{Context as _, Result, bail};
use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    thread::sleep,
    time::Duration,
};
use tidegate_bench::ServerProcess;

/// Time in which an idle server uses no more CPU time than [`IDLE_SECONDS`].
const IDLE_LOOK: Duration = Duration::from_millis(500);
/// CPU time of its background threads.
const IDLE_SECONDS: f64 = 0.02;
const IDLE_LOOKS_MAX: u32 = 120;

/// A running server.
pub(super) struct Running {
    process: Process,
    pub(super) address: SocketAddr,
    /// The path that it listens on instead of the address, if it has one.
    pub(super) socket: Option<PathBuf>,
    /// Address of its HTTP port, if it has one.
    pub(super) http: SocketAddr,
}

/// A port that is free now. Another process, or a connection that is being closed, may occupy it before the server binds it.
fn free_port() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    Ok(listener.local_addr()?)
}

impl Running {
    /// Starts the server on a core and waits until it accepts connections. If it ends at once, it is started on other ports.
    pub(super) fn start(name: &str, core: usize, variables: &[(&str, &str)], place: &Place) -> Result<Self> {
        let start = || Self::start_once(name, core, variables, place);
        start().or_else(|_| start()).or_else(|_| start()).with_context(|| name.to_owned())
    }

    fn start_once(name: &str, core: usize, variables: &[(&str, &str)], place: &Place) -> Result<Self> {
        let (server, address, http) = (place.server(name)?, free_port()?, free_port()?);
        let mut command = place.shell(Some(core), &server.run);
        let socket = place.files.join(format!("{}.socket", address.port()));
        command.envs(variables.iter().copied()).env("SOCKET", &socket);
        let socket = server.has_socket.then_some(socket);
        let free = [("ADDRESS", address), ("HTTP", http), ("DEBUG", free_port()?)];
        for (variable, address) in free {
            command
                .env(variable, address.to_string())
                .env(format!("{variable}_PORT"), address.port().to_string());
        }
        let serves = || match &socket {
            Some(socket) => UnixStream::connect(socket).is_ok(),
            None => TcpStream::connect(address).is_ok(),
        };
        let log = place.files.join(format!("{name}-{}.log", address.port()));
        Ok(Self { process: Process::start(command, log, |_| serves())?, address, socket, http })
    }

    /// An empty store for a command that names a store: on the third core if there are three, or else on the core of the load.
    pub(super) fn store(command: &str, place: &Place) -> Result<Option<Self>> {
        command.contains("STORE").then(|| Self::start("store", 2, &[], place)).transpose()
    }

    /// The URL of a store, if there is one.
    pub(super) fn url(store: Option<&Self>) -> String {
        store.map_or_else(String::new, |store| format!("redis://{}", store.address))
    }

    /// Calls of scripts of a store so far. Commands that scripts call themselves are not counted.
    pub(super) fn store_calls(&self) -> Result<u64> {
        let (mut info, mut stream) = (String::new(), TcpStream::connect(self.address)?);
        stream.write_all(b"INFO commandstats\r\nQUIT\r\n")?;
        stream.read_to_string(&mut info)?;
        let calls = |command: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(command)?.strip_prefix(":calls="));
            line.and_then(|line| line.split(',').next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        Ok(calls("cmdstat_evalsha") + calls("cmdstat_eval"))
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// CPU time so far in seconds: the sum over the present threads, since none of these processes ends threads.
    pub(super) fn cpu(&self) -> Result<f64> {
        Ok(ServerProcess::new(self.pid()).cpu_nanos()? as f64 / 1e9)
    }

    pub(super) fn resident_mib(&self) -> Result<f64> {
        let status = procfs::process::Process::new(self.pid().cast_signed())?.status()?;
        Ok(status.vmrss.context("the server's memory cannot be read")? as f64 / 1024.0)
    }

    /// Waits until it does nothing.
    pub(super) fn wait_until_idle(&self) -> Result<()> {
        let mut before = self.cpu()?;
        for _ in 0..IDLE_LOOKS_MAX {
            sleep(IDLE_LOOK);
            let now = self.cpu()?;
            if now - before <= IDLE_SECONDS {
                return Ok(());
            }
            before = now;
        }
        bail!("the server still works {:?} after the load has ended", IDLE_LOOK * IDLE_LOOKS_MAX)
    }
}
