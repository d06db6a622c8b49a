//! The processes of a measurement: one Envoy per row, and a Tidegate server.

use super::{Row, client::Client, config};
use crate::{
    Failure,
    perf::{
        bench::Process as Listening,
        machine::Machine,
        reference::{Reference, Store},
        root,
        server::free_port,
    },
};
use serde_json::Value as Json;
use std::{
    fs::{self, File},
    net::SocketAddr,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const START_POLLS: u32 = 1_000;
const START_POLL: Duration = Duration::from_millis(20);

/// The programs, and a folder for their files.
pub(super) struct Programs {
    envoy: PathBuf,
    /// As Envoy prints it.
    pub(super) envoy_version: String,
    tidegate: PathBuf,
    /// The folder of `libtidegate.so`.
    module: PathBuf,
    scratch: PathBuf,
}

impl Programs {
    pub(super) fn find(envoy: &Path, folder: Option<&Path>) -> Result<Self, Failure> {
        let version = Command::new(envoy).arg("--version").output();
        let version = version.map_err(|error| format!("{} cannot be run: {error}", envoy.display()))?;
        let version = String::from_utf8_lossy(&version.stdout);
        // `envoy  version: HASH/1.40.0/Clean/RELEASE/BoringSSL`
        let number = version.split("version: ").nth(1).and_then(|version| version.split('/').nth(1));
        let number = number.ok_or("Envoy prints no version")?;
        let folder = folder.map_or_else(build, |folder| Ok(folder.to_owned()))?;
        let folder = fs::canonicalize(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for name in ["tidegate", "libtidegate.so"] {
            if !folder.join(name).is_file() {
                return Err(format!("{} was not built", folder.join(name).display()));
            }
        }
        let scratch = folder.join("perf-envoy");
        fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
        write(&scratch.join("rules.yaml"), config::RULES)?;
        Ok(Self {
            envoy: envoy.to_owned(),
            envoy_version: format!("Envoy {number}"),
            tidegate: folder.join("tidegate"),
            module: folder,
            scratch,
        })
    }

    fn rules(&self) -> PathBuf {
        self.scratch.join("rules.yaml")
    }
}

fn build() -> Result<PathBuf, Failure> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["build", "--profile", "dist", "--locked"]);
    // With a program named, no library is built unless it is named too.
    cargo.args(["--package", "tidegate", "--bin", "tidegate", "--package", "tidegate-envoy", "--lib"]);
    if !cargo.status().map_err(|error| format!("cargo cannot be run: {error}"))?.success() {
        return Err("the build with the profile dist failed".to_owned());
    }
    let this =
        std::env::current_exe().map_err(|error| format!("cannot find the path of this program: {error}"))?;
    let target = this.ancestors().nth(2).ok_or("this program is not in a target directory")?;
    Ok(target.join("dist"))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A process that is killed when dropped.
struct Process(Child);

impl Process {
    fn start(name: &str, mut command: Command, log: &Path) -> Result<Self, Failure> {
        let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        command.spawn().map(Self).map_err(|error| format!("{name} cannot be started: {error}"))
    }

    /// Waits until an attempt succeeds, or the process has ended.
    fn wait(&mut self, log: &Path, mut attempt: impl FnMut() -> Option<()>) -> Result<(), Failure> {
        for _ in 0..START_POLLS {
            if let Ok(Some(status)) = self.0.try_wait() {
                let log = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("it ended at once with {status}:\n{log}"));
            }
            if attempt().is_some() {
                return Ok(());
            }
            sleep(START_POLL);
        }
        Err(format!("it does not serve; see {}", log.display()))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A Tidegate server on the core of the load.
pub(super) struct Server {
    process: Process,
    pub(super) socket: String,
}

impl Server {
    pub(super) fn start(machine: &Machine, programs: &Programs) -> Result<Self, Failure> {
        let path = programs.scratch.join("tidegate.socket");
        let socket = path.to_string_lossy().into_owned();
        let mut command = machine.on_core(1, &programs.tidegate);
        command.args(["serve", "--threads", "1", "--leases", "--listen"]).arg(format!("unix:{socket}"));
        command.arg("--rules").arg(programs.rules());
        let log = programs.scratch.join("tidegate.log");
        let mut process = Process::start("tidegate", command, &log)?;
        process
            .wait(&log, || UnixStream::connect(&path).ok().map(drop))
            .map_err(|failure| format!("tidegate: {failure}"))?;
        Ok(Self { process, socket })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// The reference server and its store, on the core of the load.
pub(super) struct ReferenceServer {
    store: Store,
    server: Listening,
}

impl ReferenceServer {
    pub(super) fn start(
        machine: &Machine,
        programs: &Programs,
        given: Option<&Path>,
    ) -> Result<Self, Failure> {
        let program = Reference::find(given, &programs.scratch)?;
        let store = Store::start(machine)?;
        let on_core = |program: &Path| machine.on_core(1, program);
        let server = program.start(on_core, (&programs.scratch, config::RULES), &store)?;
        Ok(Self { store, server })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(super) fn pids(&self) -> [u32; 2] {
        [self.server.pid(), self.store.pid()]
    }
}

/// An Envoy on the first core.
pub(super) struct Envoy {
    process: Process,
    pub(super) address: SocketAddr,
}

impl Envoy {
    pub(super) fn start(
        row: Row,
        machine: &Machine,
        programs: &Programs,
        server: &Json,
    ) -> Result<Self, Failure> {
        let (address, name) = (free_port()?, row.name().replace(' ', "-"));
        let file = |ending: &str| programs.scratch.join(format!("{name}.{ending}"));
        let application = file("socket");
        let config = config::bootstrap(row, address, &application.to_string_lossy(), server);
        write(&file("json"), &config.to_string())?;
        let mut command = machine.on_core(0, &programs.envoy);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "warning"]);
        command.arg("--config-path").arg(file("json"));
        command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", &programs.module);
        command.env("TIDEGATE_RULES", programs.rules());
        let mut process = Process::start("Envoy", command, &file("log"))?;
        process
            .wait(&file("log"), || Client::open(address).ok()?.one_by_one(1).ok().map(drop))
            .map_err(|failure| format!("Envoy with {}: {failure}", row.name()))?;
        Ok(Self { process, address })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// CPU time of a process so far, by the kernel's scheduler: of the threads that it has, which none of these processes ends.
pub(super) fn cpu_nanos(pid: u32) -> Result<u64, Failure> {
    let tasks = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error} (this needs Linux)"))?;
    let mut sum = 0;
    for thread in threads.flatten() {
        let text = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(sum)
}
