//! The commands of `docs/operations.md`, run in order, on paths and ports of the test's own. systemd does not run the machine of a test, so
//! `tests/peers/handbook/systemctl` stands in for it.

use std::{
    env, fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tempfile::TempDir;

const HANDBOOK: &str = include_str!("../../docs/operations.md");
/// Blocks with this command run a server in the foreground; `tests/peers/tls.rs` runs those.
const IN_FOREGROUND: &str = "tidegate serve ";

pub fn has_curl() -> bool {
    crate::peer::runs(Command::new("curl").arg("--version"))
}

/// The blocks of shell commands.
fn blocks() -> Vec<&'static str> {
    let blocks = HANDBOOK.split("```sh\n").skip(1);
    blocks.map(|rest| rest.split_once("```").expect("the end of a block").0).collect()
}

/// A directory that stands for the root and for the sources, and free ports.
struct Sandbox {
    folder: TempDir,
    grpc_port: u16,
    http_port: u16,
}

impl Sandbox {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
        let path = |name: &str| folder.path().join(name);
        for directory in ["target/release", "bin", "etc", "var/lib", "usr/local/bin"] {
            fs::create_dir_all(path(directory)).expect("a directory");
        }
        symlink(env!("CARGO_BIN_EXE_tidegate"), path("target/release/tidegate")).expect("a link");
        symlink(env!("CARGO_BIN_EXE_tidegate"), path("bin/tidegate")).expect("a link");
        symlink(sources.join("deploy"), path("deploy")).expect("a link");
        for program in ["systemctl", "journalctl", "pidof"] {
            symlink(sources.join("tests/peers/handbook").join(program), path("bin").join(program))
                .expect("a link");
        }
        for file in ["alerts.yaml", "alerts_test.yaml"] {
            fs::copy(sources.join("deploy/prometheus").join(file), path(file)).expect("a copy");
        }
        // Free at this moment, and used by the server right after.
        let free = [TcpListener::bind("127.0.0.1:0"), TcpListener::bind("127.0.0.1:0")];
        let [grpc_port, http_port] =
            free.map(|socket| socket.and_then(|socket| socket.local_addr()).expect("a port").port());
        Self { folder, grpc_port, http_port }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The commands with paths and ports of the sandbox.
    fn script(&self, block: &str) -> String {
        let root = self.folder.path().display();
        let mut script = block.to_owned();
        for build in ["new", "former"] {
            script = script.replace(&format!("/path/of/{build}/tidegate"), env!("CARGO_BIN_EXE_tidegate"));
        }
        // Paths in settings of the unit are replaced when it starts.
        for directory in ["/etc/", "/var/lib/", "/usr/local/bin/"] {
            script = script.replace(&format!(" {directory}"), &format!(" {root}{directory}"));
        }
        script
            .replace(":8081", &format!(":{}", self.grpc_port))
            .replace(":8082", &format!(":{}", self.http_port))
    }

    /// Runs the commands; returns their output.
    fn run(&self, block: &str) -> String {
        let path = env::join_paths(
            [self.path("bin")].into_iter().chain(env::split_paths(&env::var_os("PATH").expect("a PATH"))),
        );
        let ran = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &self.script(block)])
            .current_dir(self.folder.path())
            .env("PATH", path.expect("paths"))
            .env("SANDBOX", self.folder.path())
            .env("GRPC_PORT", self.grpc_port.to_string())
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let text = String::from_utf8_lossy(&[&*ran.stdout, &*ran.stderr].concat()).into_owned();
        assert!(ran.status.success(), "{block}\n{text}");
        text
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.path("pid")).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            // The process may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

async fn the_commands_of_the_handbook_succeed_in_order() {
    let sandbox = Sandbox::new();
    let (mut ran, mut outputs) = (0, String::new());
    for block in blocks() {
        if !block.contains(IN_FOREGROUND) {
            ran += 1;
            outputs += &sandbox.run(block);
        }
    }
    assert!(ran >= 10, "only {ran} blocks were run");
    for expected in [
        "tidegate_requests_total",
        "\"generation\":",
        " serving\n",
        "api-key: 20 per minute",
        "1 counters exported",
    ] {
        assert!(outputs.contains(expected), "no {expected} in\n{outputs}");
    }
    let exported = fs::read_to_string(sandbox.path("counters.jsonl")).expect("the export");
    assert!(exported.contains("\"counter\""), "the call of the handbook was counted: {exported}");
    assert!(sandbox.path("var/lib/tidegate.restored").is_dir());
    let at_boot = sandbox.path("etc/systemd/system/multi-user.target.wants/tidegate.service");
    assert!(at_boot.exists(), "the service does not start with the machine");
}

crate::tests_with! { CURL, OPENSSL, PROMETHEUS: the_commands_of_the_handbook_succeed_in_order }
