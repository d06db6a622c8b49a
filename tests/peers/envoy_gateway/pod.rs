//! The rate limit deployment of Envoy Gateway, without Kubernetes: its environment variables and no others, its command, user and paths, a
//! read-only root, no capabilities.

use super::{Killed, network::Network};
use crate::chroot::image;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};
use tempfile::TempDir;

/// Variables that Envoy Gateway 1.9 sets in its deployment, with Prometheus on and tracing off, which are the defaults.
pub const ENVIRONMENT: [(&str, &str); 23] = [
    ("RUNTIME_ROOT", "/data"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("RUNTIME_IGNOREDOTFILES", "true"),
    ("RUNTIME_WATCH_ROOT", "false"),
    ("LOG_LEVEL", "info"),
    ("USE_STATSD", "false"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway:18001"),
    ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
    ("GRPC_SERVER_USE_TLS", "true"),
    ("GRPC_SERVER_TLS_CERT", "/certs/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/certs/tls.key"),
    ("GRPC_SERVER_TLS_CA_CERT", "/certs/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
    ("FORCE_START_WITHOUT_INITIAL_CONFIG", "true"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_URL", "unused:0"),
    ("USE_PROMETHEUS", "true"),
    ("PROMETHEUS_ADDR", ":19001"),
    // The file is an optional volume.
    ("PROMETHEUS_MAPPER_YAML", "/etc/statsd-exporter/conf.yaml"),
];

/// Mounts what the deployment mounts, and starts its command.
const SCRIPT: &str = r#"
    set -e
    mount --bind "$ROOT" "$ROOT"
    mount -t proc proc "$ROOT/proc"
    mount --bind "$CERTS" "$ROOT/certs"
    mount -o remount,ro,bind "$ROOT/certs"
    mount -o remount,ro,bind "$ROOT"
    exec "$(command -v env)" -i "$@" \
        "$(command -v setpriv)" --no-new-privs --bounding-set=-all,+sys_chroot,+setuid,+setgid \
        "$(command -v chroot)" --groups= --userspec=65534:65534 "$ROOT" /bin/ratelimit
"#;

/// The running container; killed when dropped.
pub struct Pod {
    process: Killed,
    log: PathBuf,
}

impl Pod {
    /// Starts the container, with `/certs` as given, and with further variables.
    pub fn start(
        network: &Network,
        folder: &TempDir,
        certs: &Path,
        hosts: &Path,
        more: &[(&str, &str)],
    ) -> Self {
        let root = image(folder, "/bin/ratelimit");
        fs::create_dir(root.join("certs")).unwrap();
        fs::copy(hosts, root.join("etc/hosts")).unwrap();
        // Without this file, glibc queries name servers first.
        fs::write(root.join("etc/nsswitch.conf"), "hosts: files\n").unwrap();
        let log = folder.path().join("ratelimit.log");
        let variables = ENVIRONMENT.iter().chain(more);
        let mut command = network.command("sh");
        command.args(["-c", SCRIPT, "sh"]).args(variables.map(|(name, value)| format!("{name}={value}")));
        command.envs([("ROOT", &*root), ("CERTS", certs)]).stderr(File::create(&log).unwrap());
        Self { process: Killed(command.spawn().unwrap()), log }
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// A field of the process's status, as `/proc` shows it.
    pub fn status(&self, field: &str) -> String {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// A path as the process sees it.
    pub fn path(&self, path: &str) -> PathBuf {
        format!("/proc/{}/root{path}", self.process.0.id()).into()
    }

    /// The names of the process's environment variables.
    pub fn variables(&self) -> Vec<String> {
        let environment = fs::read(format!("/proc/{}/environ", self.process.0.id())).unwrap();
        let environment = String::from_utf8(environment).unwrap();
        let variables = environment.split_terminator('\0');
        variables.map(|variable| variable.split('=').next().unwrap().to_owned()).collect()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of the rate limit server:\n{}", self.log());
        }
    }
}
