//! A store in a process of its own.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Time limit of a start before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// `valkey-server` or `redis-server` on the PATH.
pub fn redis_binary() -> Option<&'static str> {
    ["redis-server", "valkey-server"]
        .into_iter()
        .find(|name| crate::peer::runs(Command::new(name).arg("--version")))
}

/// A running store, on a free port of loopback and on a Unix socket; killed when dropped.
pub struct RedisServer {
    child: Child,
    directory: TempDir,
}

impl RedisServer {
    /// Starts an empty store that writes nothing to disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with further arguments.
    pub fn start_with(args: &[&str]) -> Self {
        let port = free_port();
        Self::start_on(port, args)
    }

    /// The same on a given port.
    pub fn start_on(port: u16, args: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let child = Command::new(redis_binary().expect("the test declares its peer"))
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(directory.path().join("socket"))
            .arg("--dir")
            .arg(directory.path())
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the store starts");
        let store = Self { child, directory };
        let deadline = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() || !store.socket().exists() {
            assert!(Instant::now() < deadline, "the store does not listen");
            thread::sleep(Duration::from_millis(5));
        }
        store
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has the data of its primary, as a replica.
    pub fn wait_until_it_follows(&self) {
        wait_until("the replica does not follow", || {
            let info: String =
                redis::cmd("INFO").arg("replication").query(&mut self.connection()).expect("a text");
            info.contains("master_link_status:up")
        });
    }

    /// A blocking connection.
    pub fn connection(&self) -> redis::Connection {
        connection(&self.socket())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may have been killed by the test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Sentinel that watches one group, `main`; killed when dropped.
pub struct Sentinel {
    child: Child,
    _directory: TempDir,
    port: u16,
}

impl Sentinel {
    /// Starts it for the group of the primary on this port.
    pub fn start(primary: u16) -> Self {
        let (port, directory) = (free_port(), tempfile::tempdir().expect("a temporary directory"));
        let config = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds main 300\nsentinel failover-timeout main 2000\n"
        );
        fs::write(&config, text).expect("the config is written");
        let child = Command::new(redis_binary().expect("the test declares its peer"))
            .arg(config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the Sentinel starts");
        Self { child, _directory: directory, port }
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until it knows a replica.
    pub fn wait_for_replica(&self) {
        wait_until("the Sentinel knows no replica", || {
            let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.port)).expect("an address");
            let Ok(mut sentinel) = client.get_connection() else { return false };
            let replicas: redis::RedisResult<Vec<redis::Value>> =
                redis::cmd("SENTINEL").arg("REPLICAS").arg("main").query(&mut sentinel);
            replicas.is_ok_and(|replicas| replicas.len() == 1)
        });
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connection(socket: &Path) -> redis::Connection {
    let url = format!("unix://{}", socket.display());
    redis::Client::open(url).and_then(|client| client.get_connection()).expect("the store listens")
}

/// A port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

fn wait_until(otherwise: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{otherwise}");
        thread::sleep(Duration::from_millis(20));
    }
}
