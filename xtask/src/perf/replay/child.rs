//! A command that runs to its end, and what it used.

use crate::Failure;
use std::{
    fs,
    io::Read,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

/// Ticks per second of the kernel's accounting in /proc (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;
/// Time between two readings of the memory.
const POLL: Duration = Duration::from_millis(20);

/// Time in seconds, and memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    pub(super) wall: f64,
    pub(super) user: f64,
    pub(super) system: f64,
    /// The most resident memory in MiB, as read while it ran.
    pub(super) peak_mib: f64,
}

impl Usage {
    /// CPU time of all threads.
    pub(super) fn cpu(&self) -> f64 {
        self.user + self.system
    }
}

/// Runs a command that must succeed; returns its standard output too, if that is piped.
#[expect(clippy::disallowed_methods, reason = "measures the time that a program takes")]
pub(super) fn run(command: &mut Command) -> Result<(Usage, Vec<u8>), Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let (before, start) = (ended_children()?, Instant::now());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let stdout = child.stdout.take();
    let output = thread::spawn(move || {
        let mut output = Vec::new();
        stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut output)).map(|_| output)
    });
    let mut peak_mib: f64 = 0.0;
    let status = loop {
        peak_mib = peak_mib.max(peak(&child));
        match child.try_wait().map_err(|error| failed(&error))? {
            Some(status) => break status,
            None => thread::sleep(POLL),
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

/// The most memory that was resident so far, in MiB; zero once the process has ended.
fn peak(child: &Child) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<f64>().ok());
    kib.unwrap_or_default() / 1024.0
}
