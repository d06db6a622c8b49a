//! Processes: those that serve until they are dropped, and those that run to their end.

use crate::Failure;
use std::{
    fs::{self, File},
    io::Read,
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread::{self, sleep},
    time::{Duration, Instant},
};

const START_POLLS: u32 = 2_000;
const START_POLL: Duration = Duration::from_millis(10);
/// Time between two readings of the memory.
const MEMORY_POLL: Duration = Duration::from_millis(20);
/// Ticks per second of the kernel's accounting in /proc (USER_HZ).
pub(super) const TICKS_PER_SECOND: f64 = 100.0;

/// A running process; killed when dropped.
pub(super) struct Process(Child);

impl Process {
    /// Starts the command, and waits until it is ready.
    pub(super) fn start(
        name: &str,
        mut command: Command,
        log: &Path,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Self, Failure> {
        let file = File::create(log).map_err(|error| format!("{}: {error}", log.display()))?;
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let mut process = Self(child);
        for _ in 0..START_POLLS {
            if let Ok(Some(status)) = process.0.try_wait() {
                let log = fs::read_to_string(log).unwrap_or_default();
                return Err(format!("{name} ended at once with {status}:\n{log}"));
            }
            if is_ready() {
                return Ok(process);
            }
            sleep(START_POLL);
        }
        Err(format!("{name} does not serve; see {}", log.display()))
    }

    /// Starts a command that listens on this address.
    pub(super) fn listening(
        name: &str,
        command: Command,
        log: &Path,
        address: SocketAddr,
    ) -> Result<Self, Failure> {
        Self::start(name, command, log, || TcpStream::connect(address).is_ok())
    }

    /// The process: `taskset` has replaced itself by it.
    pub(super) fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now. Another process, or a connection that is being closed, can have it before the server binds it.
pub(super) fn free_port() -> Result<SocketAddr, Failure> {
    TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("there is no free port: {error}"))
}

/// Memory of a process in MiB, by a field of its status.
pub(super) fn memory_mib(pid: u32, field: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// What a command used that ran to its end: time in seconds, and memory.
pub(super) struct Usage {
    pub(super) wall: f64,
    pub(super) user: f64,
    pub(super) system: f64,
    /// The most resident memory in MiB, as read while it ran.
    pub(super) peak_mib: f64,
}

/// Runs a command that must succeed. Returns its output too.
#[expect(clippy::disallowed_methods, reason = "measures the time that a program takes")]
pub(super) fn run(name: &str, command: &mut Command) -> Result<(Usage, Vec<u8>), Failure> {
    let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let (before, start) = (ended_children()?, Instant::now());
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|error| failed(&error))?;
    let mut stdout = child.stdout.take().ok_or_else(|| failed(&"it has no output"))?;
    let output = thread::spawn(move || {
        let mut output = Vec::new();
        stdout.read_to_end(&mut output).map(|_| output)
    });
    let mut peak_mib: f64 = 0.0;
    let status = loop {
        peak_mib = peak_mib.max(memory_mib(child.id(), "VmHWM").unwrap_or_default());
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) => break status,
            None => sleep(MEMORY_POLL),
        }
    };
    let wall = start.elapsed().as_secs_f64();
    let output = output.join().map_err(|_| failed(&"its output was not read"))?;
    let output = output.map_err(|error| failed(&error))?;
    if !status.success() {
        return Err(failed(&status));
    }
    let [user, system] = ended_children()?;
    Ok((Usage { wall, user: user - before[0], system: system - before[1], peak_mib }, output))
}

/// User and system time of all children of this process that have ended.
fn ended_children() -> Result<[f64; 2], Failure> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    // The process name, in parentheses, may contain anything; cutime and cstime are the 14th and 15th field after it.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(13);
    let mut seconds = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SECOND);
    seconds().zip(seconds()).map(<[f64; 2]>::from).ok_or_else(|| "/proc/self/stat has no times".to_owned())
}

/// CPU time of a process so far in microseconds, by the kernel's scheduler: of the threads that it has, which none of these processes
/// ends.
pub(super) fn cpu_micros(pid: u32) -> Result<f64, Failure> {
    let tasks = format!("/proc/{pid}/task");
    let threads = fs::read_dir(&tasks).map_err(|error| format!("{tasks}: {error} (this needs Linux)"))?;
    let nanos = |path: &Path| {
        let text = fs::read_to_string(path.join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    };
    Ok(threads.flatten().filter_map(|thread| nanos(&thread.path())).sum::<f64>() / 1_000.0)
}
