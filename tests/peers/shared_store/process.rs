//! A store in a process of its own.

use crate::support::eventually_blocking;
use std::{
    cell::OnceCell,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::LazyLock,
};
use tempfile::TempDir;

/// `valkey-server` or `redis-server` on the PATH.
pub fn redis_binary() -> Option<&'static str> {
    static FOUND: LazyLock<Option<&str>> = LazyLock::new(|| {
        ["redis-server", "valkey-server"]
            .into_iter()
            .find(|name| crate::peer::runs(Command::new(name).arg("--version")))
    });
    *FOUND
}

/// A running store, on a free port of loopback and on a Unix socket; killed when dropped.
pub struct RedisServer {
    child: Child,
    directory: TempDir,
    /// The port of the cluster's own protocol, if it is a node of a cluster.
    bus_port: OnceCell<u16>,
}

impl RedisServer {
    /// Starts an empty store that writes nothing to disk.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with further arguments.
    pub fn start_with(args: &[&str]) -> Self {
        on_free_ports(|port, _| Self::try_start_on(port, args)).1
    }

    /// The same on a given port.
    pub fn start_on(port: u16, args: &[&str]) -> Self {
        Self::try_start_on(port, args).expect("the port is free")
    }

    /// The same; none if the store ends, since another process has the port.
    fn try_start_on(port: u16, args: &[&str]) -> Option<Self> {
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
        let mut store = Self { child, directory, bus_port: OnceCell::new() };
        let has_started = eventually_blocking("the store listens", || {
            // By its own socket, since another process may listen on its port.
            let listens = try_connection(&store.socket()).is_ok();
            let has_ended = store.child.try_wait().expect("a child").is_some();
            (listens || has_ended).then_some(!has_ended)
        });
        has_started.then_some(store)
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    /// Its URL, by that socket.
    pub fn url(&self) -> String {
        format!("unix:{}", self.socket().display())
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has the data of its primary, as a replica.
    pub fn wait_until_it_follows(&self) {
        eventually_blocking("the replica follows", || {
            let info: String =
                redis::cmd("INFO").arg("replication").query(&mut self.connection()).expect("a text");
            info.contains("master_link_status:up")
        });
    }

    /// Waits until its replica has received a write: a replica whose link is up may not have received any.
    fn wait_until_it_replicates_to(&self, replica: &Self) {
        let () = redis::cmd("SET").arg("followed").arg(1).query(&mut self.connection()).expect("written");
        eventually_blocking("the replica gets writes", || -> bool {
            redis::cmd("EXISTS").arg("followed").query(&mut replica.connection()).expect("a number")
        });
        let () = redis::cmd("DEL").arg("followed").query(&mut self.connection()).expect("deleted");
    }

    /// A blocking connection.
    pub fn connection(&self) -> redis::Connection {
        connection(&self.socket())
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The test may have killed the process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A Sentinel that watches a single group, `main`; killed when dropped.
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
        // On a loaded machine a primary may not respond for some 100 ms, which must not have it replaced.
        let text = format!(
            "port {port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {primary} 1\n\
             sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 2000\n"
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
        let sentinel = Self { child, _directory: directory, port };
        eventually_blocking("the Sentinel listens", || sentinel.connection().is_ok());
        sentinel
    }

    fn connection(&self) -> redis::RedisResult<redis::Connection> {
        redis::Client::open(format!("redis://127.0.0.1:{}", self.port))?.get_connection()
    }

    /// Its port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits until it has found a replica.
    fn wait_for_replica(&self) {
        eventually_blocking("the Sentinel knows a replica", || {
            let Ok(mut sentinel) = self.connection() else { return false };
            let replicas: redis::RedisResult<Vec<redis::Value>> =
                redis::cmd("SENTINEL").arg("REPLICAS").arg("main").query(&mut sentinel);
            replicas.is_ok_and(|replicas| replicas.len() == 1)
        });
    }
}

/// A primary on this port, its replica, and a Sentinel that has found both.
pub fn watched_pair(port: u16) -> (RedisServer, RedisServer, Sentinel) {
    let primary = RedisServer::start_on(port, &["--repl-diskless-sync-delay", "0"]);
    let replica = RedisServer::start_with(&["--replicaof", &format!("127.0.0.1 {port}")]);
    replica.wait_until_it_follows();
    primary.wait_until_it_replicates_to(&replica);
    // A Sentinel looks for replicas when it starts, and then every ten seconds.
    let sentinel = Sentinel::start(port);
    sentinel.wait_for_replica();
    (primary, replica, sentinel)
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connection(socket: &Path) -> redis::Connection {
    try_connection(socket).expect("the store listens")
}

fn try_connection(socket: &Path) -> redis::RedisResult<redis::Connection> {
    redis::Client::open(format!("unix://{}", socket.display()))?.get_connection()
}

/// Starts a process on two ports that were free a moment ago; starts it again if another process took one of them in between.
fn on_free_ports<T>(start: impl Fn(u16, u16) -> Option<T>) -> ((u16, u16), T) {
    let tries = std::iter::repeat_with(|| (free_port(), free_port())).take(10);
    let mut started = tries.filter_map(|ports| Some((ports, start(ports.0, ports.1)?)));
    started.next().expect("ports that stay free")
}

/// A port of loopback that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it is bound").port()
}

/// A cluster on loopback: primaries, each with one replica, or without replicas.
pub struct RedisCluster {
    nodes: Vec<Option<RedisServer>>,
    ports: Vec<u16>,
}

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// Arguments of a node. A primary that does not respond for this time is replaced by its replica.
fn node_args(bus_port: &str) -> [&str; 10] {
    [
        "--cluster-enabled",
        "yes",
        "--cluster-port",
        bus_port,
        "--cluster-node-timeout",
        "1500",
        "--repl-diskless-sync-delay",
        "0",
        "--cluster-migration-barrier",
        "5",
    ]
}

impl RedisCluster {
    /// Starts three primaries, which have all slots, with as many replicas.
    pub fn start(has_replicas: bool) -> Self {
        let mut cluster = Self { nodes: Vec::new(), ports: Vec::new() };
        for _ in 0..if has_replicas { 6 } else { 3 } {
            cluster.add_node();
        }
        for primary in 0..3 {
            let (first, last) = (SLOTS * primary / 3, SLOTS * (primary + 1) / 3 - 1);
            cluster.command(primary, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            cluster.command(primary, &["CLUSTER", "SET-CONFIG-EPOCH", &(primary + 1).to_string()]);
        }
        for node in 1..cluster.nodes.len() {
            cluster.meet(node);
        }
        cluster.wait_until_complete();
        if has_replicas {
            for primary in 0..3 {
                cluster.command(primary + 3, &["CLUSTER", "REPLICATE", &cluster.id(primary)]);
            }
            for replica in 3..6 {
                cluster.node(replica).wait_until_it_follows();
            }
            eventually_blocking("the replicas are known", || {
                (0..3).all(|node| cluster.text(node, &["CLUSTER", "NODES"]).matches("slave").count() == 3)
            });
        }
        cluster
    }

    /// Starts a node that does not belong to the cluster yet; returns its index.
    pub fn add_node(&mut self) -> usize {
        let start = |port, bus: u16| RedisServer::try_start_on(port, &node_args(&bus.to_string()));
        let ((port, bus), node) = on_free_ports(start);
        node.bus_port.set(bus).expect("it is set once");
        self.nodes.push(Some(node));
        self.ports.push(port);
        self.nodes.len() - 1
    }

    /// Makes the node known to the cluster.
    pub fn meet(&self, node: usize) {
        let (port, bus) =
            (self.ports[node].to_string(), self.node(node).bus_port.get().expect("a node").to_string());
        self.command(0, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
    }

    /// Waits until every node has found all others and serves.
    pub fn wait_until_complete(&self) {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        eventually_blocking("the cluster is complete", || {
            (0..self.nodes.len()).all(|node| {
                let info = self.text(node, &["CLUSTER", "INFO"]);
                info.contains("cluster_state:ok") && info.contains(&known)
            })
        });
    }

    /// The URL of the cluster, with two of its nodes.
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.ports[1], self.ports[2])
    }

    /// Kills a node.
    pub fn kill(&mut self, node: usize) {
        drop(self.nodes[node].take());
    }

    /// Begins to move a slot to another node. Its keys stay for now.
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let slot = slot.to_string();
        self.command(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]);
        self.command(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]);
    }

    /// Moves keys of a slot that is being moved.
    pub fn move_keys(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.ports[to].to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        self.command(from, &[&migrate[..], keys].concat());
    }

    /// Moves a slot with its keys to another node, while it is used.
    pub fn move_slot(&self, slot: u16, from: usize, to: usize) {
        self.begin_to_move(slot, from, to);
        let (slot, target) = (slot.to_string(), self.id(to));
        loop {
            let mut keys_in_slot = redis::cmd("CLUSTER");
            let keys_in_slot = keys_in_slot.arg("GETKEYSINSLOT").arg(&slot).arg(100);
            let keys: Vec<String> = keys_in_slot.query(&mut self.node(from).connection()).expect("keys");
            if keys.is_empty() {
                break;
            }
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            self.move_keys(&keys, from, to);
        }
        for node in [to, from] {
            self.command(node, &["CLUSTER", "SETSLOT", &slot, "NODE", &target]);
        }
    }

    /// The slot of a key.
    pub fn slot(&self, key: &str) -> u16 {
        let mut slot = redis::cmd("CLUSTER");
        slot.arg("KEYSLOT").arg(key).query(&mut self.node(0).connection()).expect("a slot")
    }

    /// All keys of a node.
    pub fn keys(&self, node: usize) -> Vec<String> {
        redis::cmd("KEYS").arg("*").query(&mut self.node(node).connection()).expect("keys")
    }

    fn id(&self, node: usize) -> String {
        self.text(node, &["CLUSTER", "MYID"])
    }

    /// A running node.
    pub fn node(&self, node: usize) -> &RedisServer {
        self.nodes[node].as_ref().expect("the node runs")
    }

    fn text(&self, node: usize, words: &[&str]) -> String {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        command.query(&mut self.node(node).connection()).expect("a text")
    }

    /// A command whose reply does not matter.
    pub fn command(&self, node: usize, words: &[&str]) {
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        let _: redis::Value = command.query(&mut self.node(node).connection()).expect("the store obeys");
    }
}
