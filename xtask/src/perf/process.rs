//! Processes: those that serve until they are dropped, and those that run to their end.

use anyhow::{Context as _, Result, bail, ensure};
use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
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
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the command, and waits until it is ready.
    pub(super) fn start(
        mut command: Command,
        log: &Path,
        mut is_ready: impl FnMut() -> bool,
    ) -> Result<Self> {
        let file = File::create(log).with_context(|| log.display().to_string())?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn();
        let mut process = Self { child: child.context("taskset")?, log: log.to_owned() };
        for _ in 0..START_POLLS {
            process.has_not_failed()?;
            if is_ready() {
                return Ok(process);
            }
            sleep(START_POLL);
        }
        bail!("it is not ready:\n{}", process.log());
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails if the process has ended with a failure.
    pub(super) fn has_not_failed(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) if !status.success() => bail!("it ended with {status}:\n{}", self.log()),
            _ => Ok(()),
        }
    }

    /// The process: `taskset` and the shell have replaced themselves by it.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
pub(super) fn run(command: &mut Command) -> Result<(Usage, String)> {
    let (before, start) = (ended_children()?, Instant::now());
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut stdout = child.stdout.take().context("it has no output")?;
    let output = thread::spawn(move || {
        let mut output = String::new();
        stdout.read_to_string(&mut output).map(|_| output)
    });
    let mut peak_mib: f64 = 0.0;
    let status = loop {
        peak_mib = peak_mib.max(memory_mib(child.id(), "VmHWM").unwrap_or_default());
        match child.try_wait()? {
            Some(status) => break status,
            None => sleep(MEMORY_POLL),
        }
    };
    let wall = start.elapsed().as_secs_f64();
    let output = output.join().ok().context("its output was not read")??;
    ensure!(status.success(), "{status}");
    let [user, system] = ended_children()?;
    Ok((Usage { wall, user: user - before[0], system: system - before[1], peak_mib }, output))
}

/// User and system time of all children of this process that have ended.
fn ended_children() -> Result<[f64; 2]> {
    let stat = fs::read_to_string("/proc/self/stat").context("/proc/self/stat")?;
    // The process name, in parentheses, may contain anything; cutime and cstime are the 14th and 15th field after it.
    let mut fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().skip(13);
    let mut seconds = || fields.next()?.parse::<f64>().ok().map(|ticks| ticks / TICKS_PER_SECOND);
    seconds().zip(seconds()).map(<[f64; 2]>::from).context("/proc/self/stat has no times")
}
