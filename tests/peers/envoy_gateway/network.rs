//! Network namespaces, so that programs have the ports and host names of a cluster.

use super::Killed;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::{
    fs::{self, File},
    os::fd::AsFd as _,
    path::Path,
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

/// A network namespace and a mount namespace, which exist while this value exists. Loopback is up.
pub struct Network(Killed);

impl Network {
    pub fn new(hosts: &Path) -> Self {
        let mut holder = Command::new("unshare");
        holder.args(["--net", "--mount", "sleep", "infinity"]).stdin(Stdio::null());
        let network = Self(Killed(holder.spawn().unwrap()));
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        // `unshare` has made its namespaces when it has become `sleep`.
        let is_made = || {
            let name = fs::read_to_string(format!("/proc/{}/comm", network.id()));
            name.is_ok_and(|name| name.trim() == "sleep")
        };
        while !is_made() {
            thread::sleep(Duration::from_millis(2));
        }
        assert_ne!(fs::read_link(format!("/proc/{}/ns/mnt", network.id())).unwrap(), own);
        network.run(&["ip", "link", "set", "lo", "up"]);
        network.run(&["mount", "--bind", hosts.to_str().unwrap(), "/etc/hosts"]);
        network
    }

    fn id(&self) -> u32 {
        self.0.0.id()
    }

    /// A command that runs in the namespaces; its process is the program itself.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let of = |kind: &str| format!("/proc/{}/ns/{kind}", self.id());
        command.args([format!("--net={}", of("net")), format!("--mount={}", of("mnt"))]);
        command.arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, words: &[&str]) {
        let output = self.command(words[0]).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Connects this namespace, as 10.89.0.1, with another namespace, as 10.89.0.2.
    pub fn link(&self, other: &Self) {
        let id = other.id().to_string();
        self.run(&["ip", "link", "add", "pod0", "type", "veth", "peer", "name", "eth0", "netns", &id]);
        self.run(&["ip", "addr", "add", "10.89.0.1/24", "dev", "pod0"]);
        other.run(&["ip", "addr", "add", "10.89.0.2/24", "dev", "eth0"]);
        self.run(&["ip", "link", "set", "pod0", "up"]);
        other.run(&["ip", "link", "set", "eth0", "up"]);
    }

    /// Runs a function on a thread whose sockets are in the namespace.
    pub fn spawn<T: Send + 'static>(&self, function: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.id())).unwrap();
        thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            function()
        })
    }

    /// The result of a future whose sockets are in the namespace.
    pub fn block_on<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(future)
        };
        self.spawn(run).join().unwrap()
    }
}
