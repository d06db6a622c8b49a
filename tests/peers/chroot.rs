//! The image of `deploy/docker`, as far as it can be run without a container runtime: its layout in a chroot with a read-only root, with
//! its user, without privileges, as the first process of a PID namespace, and under the denials of Docker's default seccomp profile.

use crate::support::Client;
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};
use tempfile::TempDir;
use tidegate::api::pb::service::rate_limit_service_client::RateLimitServiceClient;

/// The user of the image.
const USER: u32 = 65534;
const RULES: &str =
    "{ domain: demo, descriptors: [{ key: api_key, rate_limit: { unit: day, requests_per_unit: 2 } }] }";

/// Whether this process may make namespaces, which takes root.
pub fn is_here() -> bool {
    let tools = ["setpriv", "ldd", "chroot"];
    let have_tools = tools.iter().all(|tool| crate::peer::runs(Command::new(tool).arg("--version")));
    have_tools && crate::peer::runs(Command::new("unshare").args(["--mount", "--pid", "--fork", "true"]))
}

/// Whether Python's package `seccomp` is there, as `/usr/bin/python3` has it on Debian.
pub fn has_seccomp() -> bool {
    crate::peer::runs(Command::new("/usr/bin/python3").args(["-c", "import seccomp"]))
}

/// Instructions of the last stage of the Dockerfile.
fn instructions(name: &str) -> Vec<String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/docker/Dockerfile");
    let text = fs::read_to_string(file).expect("the Dockerfile");
    let last_stage = text.rsplit("\nFROM ").next().expect("a stage").to_owned();
    let prefix = format!("{name} ");
    last_stage.lines().filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned())).collect()
}

/// The only instruction with that name.
fn instruction(name: &str) -> String {
    let found = instructions(name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0].clone()
}

/// The words of an instruction in the JSON form.
fn words(name: &str) -> Vec<String> {
    serde_json::from_str(&instruction(name)).expect("a JSON list")
}

/// The root of a container: the image's binary and its libraries, and the directories that a container runtime makes.
pub fn image(folder: &TempDir, entry_point: &str) -> PathBuf {
    let root = folder.path().join("root");
    for directory in ["proc", "etc/tidegate/rules", "var/lib/tidegate"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    let binary = env!("CARGO_BIN_EXE_tidegate");
    let libraries = Command::new("ldd").arg(binary).output().expect("ldd runs").stdout;
    let libraries = String::from_utf8(libraries).expect("text");
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    let copies = paths.map(|path| (path, path)).chain([(binary, entry_point)]);
    for (from, to) in copies {
        let to = root.join(to.trim_start_matches('/'));
        fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
        fs::copy(from, to).expect("a copy");
    }
    fs::write(root.join("etc/tidegate/rules/demo.yaml"), RULES).expect("the rules");
    root
}

/// A running container; killed when dropped.
struct Container {
    /// `unshare`; its only child is the first process of the namespace, and dies with it.
    unshare: Child,
    address: String,
}

impl Container {
    /// Starts the image without a seccomp filter.
    fn start(root: &Path, data: &Path) -> Self {
        Self::start_in(root, data, "chroot --groups= --userspec=\"$IDS\" \"$ROOT\"")
    }

    fn start_under_seccomp(root: &Path, data: &Path) -> Self {
        Self::start_in(root, data, "/usr/bin/python3 \"$SECCOMP\" \"$ROOT\" \"$IDS\"")
    }

    /// Starts the image's program by a command that changes the root and the user.
    fn start_in(root: &Path, data: &Path, change_root: &str) -> Self {
        // Like `docker run --read-only --cap-drop ALL --security-opt no-new-privileges`.
        let script = r#"
            set -e
            mount --bind "$ROOT" "$ROOT"
            mount --bind "$DATA" "$ROOT/var/lib/tidegate"
            mount -o remount,ro,bind "$ROOT"
            mount -t proc proc "$ROOT/proc"
            exec setpriv --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid \
                CHANGE_ROOT "$@"
        "#;
        let script = script.replace("CHANGE_ROOT", change_root);
        let environment = instructions("ENV").into_iter().map(|variable| {
            let (name, value) = variable.split_once('=').expect("NAME=value");
            (name.to_owned(), value.to_owned())
        });
        let unshare = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script, "sh"])
            .args(words("ENTRYPOINT"))
            .args(words("CMD"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").expect("a PATH"))
            .envs(environment)
            // Tests stay on loopback, on a free port.
            .env("TIDEGATE_LISTEN", "127.0.0.1:0")
            .envs([("TIDEGATE_RULES", "/etc/tidegate/rules"), ("TIDEGATE_DATA", "/var/lib/tidegate")])
            .env("TIDEGATE_LOG_FORMAT", "json")
            .env("IDS", instruction("USER"))
            .envs([("ROOT", root), ("DATA", data)])
            .env("SECCOMP", Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/under_seccomp.py"))
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        // The process is killed and waited for when this is dropped.
        let mut server = Self { unshare, address: String::new() };
        let mut log = Vec::new();
        let lines = BufReader::new(server.unshare.stderr.take().expect("piped")).lines();
        let mut address = None;
        for line in lines.map_while(Result::ok) {
            let parsed: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
            log.push(line);
            if parsed["message"] == "listening" {
                address = parsed["address"].as_str().map(str::to_owned);
            } else if parsed["message"] == "serving" {
                server.address = address.expect("it listens before it serves");
                return server;
            }
        }
        // The server is dropped here, which waits for the process: its log has ended.
        panic!("the server does not serve: {log:#?}");
    }

    /// The first process of the namespace, seen from outside.
    fn first_process(&self) -> rustix::process::Pid {
        let id = self.unshare.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("procfs");
        let child = children.trim().parse().expect("one child");
        rustix::process::Pid::from_raw(child).expect("an id")
    }

    /// The line of the first process's status, as `/proc` shows it.
    fn status(&self, field: &str) -> String {
        let path = format!("/proc/{}/status", self.first_process().as_raw_nonzero());
        let status = fs::read_to_string(path).expect("procfs");
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.expect("a field").split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// The codes of this many calls for one key.
    async fn calls(&self, count: usize) -> Vec<i32> {
        let address = format!("http://{}", self.address);
        let mut client = Client(RateLimitServiceClient::connect(address).await.expect("it listens"));
        let mut codes = Vec::new();
        for _ in 0..count {
            let answer = client.hit("demo", &[("api_key", "a")]).await;
            codes.push(answer.expect("an answer").overall_code);
        }
        codes
    }

    /// Stops it as a container runtime does: SIGTERM to the first process.
    fn terminate(mut self) -> ExitStatus {
        rustix::process::kill_process(self.first_process(), rustix::process::Signal::TERM).expect("it runs");
        self.unshare.wait().expect("a child")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
    }
}

async fn the_image_runs_unprivileged_on_a_read_only_root_and_keeps_its_counters() {
    let folder = tempfile::tempdir().expect("a directory");
    let root = image(&folder, &words("ENTRYPOINT")[0]);
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a directory");
    chown(&data, Some(USER), Some(USER)).expect("root may");
    let container = Container::start(&root, &data);
    assert_eq!(container.status("NSpid").split(' ').next_back(), Some("1"), "it is the first process");
    let ids = [USER.to_string(), USER.to_string(), USER.to_string(), USER.to_string()].join(" ");
    assert_eq!((container.status("Uid"), container.status("Gid")), (ids.clone(), ids));
    for capabilities in ["CapEff", "CapPrm", "CapInh", "CapAmb"] {
        assert_eq!(container.status(capabilities), "0000000000000000", "{capabilities}");
    }
    assert_eq!(container.status("NoNewPrivs"), "1");
    assert_eq!(container.calls(1).await, [1]);
    assert!(container.terminate().success());
    let restarted = Container::start(&root, &data);
    assert_eq!(restarted.calls(2).await, [1, 2], "the first call is remembered");
    assert!(restarted.terminate().success());
}

/// Snapshots, threads, sockets, timers and signals of the server need no system call that the profile denies.
async fn the_image_runs_under_the_denials_of_dockers_seccomp_profile() {
    let folder = tempfile::tempdir().expect("a directory");
    let root = image(&folder, &words("ENTRYPOINT")[0]);
    let data = folder.path().join("data");
    fs::create_dir(&data).expect("a directory");
    chown(&data, Some(USER), Some(USER)).expect("root may");
    let container = Container::start_under_seccomp(&root, &data);
    assert_eq!(container.status("Seccomp"), "2", "a filter is in force");
    let ids = [USER.to_string(), USER.to_string(), USER.to_string(), USER.to_string()].join(" ");
    assert_eq!((container.status("Uid"), container.status("CapEff")), (ids, "0000000000000000".into()));
    assert_eq!(container.calls(1).await, [1]);
    assert!(container.terminate().success());
    let restarted = Container::start_under_seccomp(&root, &data);
    assert_eq!(restarted.calls(2).await, [1, 2], "the first call is remembered");
    assert!(restarted.terminate().success());
}

/// Tests that need a profile.
pub mod seccomp {
    use super::the_image_runs_under_the_denials_of_dockers_seccomp_profile;
    crate::tests_with! { CHROOT, SECCOMP: the_image_runs_under_the_denials_of_dockers_seccomp_profile }
}

crate::tests_with! { CHROOT: the_image_runs_unprivileged_on_a_read_only_root_and_keeps_its_counters }
