//! The machine: cores, their use, and its description in results.

use super::process::TICKS_PER_SECOND;
use crate::Failure;
use std::{ffi::OsStr, fmt, fs, process::Command};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Machine, date and commit of results.
pub(super) struct Machine {
    /// Year-month-day, UTC.
    pub(super) date: String,
    /// Measured commit, with `-dirty` if the work tree differs.
    pub(super) commit: String,
    pub(super) cpu: String,
    pub(super) cores: usize,
    pub(super) kernel: String,
}

impl Machine {
    pub(super) fn here() -> Result<Self, Failure> {
        let cpuinfo = read("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
        let changes = output("git", &["status", "--porcelain", "--untracked-files=no"])?;
        let commit = output("git", &["rev-parse", "--short", "HEAD"])?;
        Ok(Self {
            date: output("date", &["-u", "+%F"])?,
            commit: if changes.is_empty() { commit } else { format!("{commit}-dirty") },
            cpu: model.trim_start_matches([' ', '\t', ':']).to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        })
    }

    /// The given core, or the last one.
    pub(super) fn core(&self, core: usize) -> usize {
        core.min(self.cores - 1)
    }

    /// Pins this process to the core of the load: what it does beside a load takes nothing of the server's core. The programs that it
    /// starts are pinned by themselves.
    pub(super) fn leave_the_servers_core(&self) -> Result<(), Failure> {
        pin_this_thread(self.core(1))
            .map_err(|error| format!("this process cannot be pinned to a core: {error}"))
    }

    /// A command that may use all cores, though this process may not.
    pub(super) fn on_all_cores(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(format!("0-{}", self.cores - 1)).arg(program);
        command
    }

    /// A command pinned to a core.
    pub(super) fn on_core(&self, core: usize, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("taskset");
        command.arg("-c").arg(self.core(core).to_string()).arg(program);
        command
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, commit, cpu, cores, kernel } = self;
        write!(f, "{date}, commit {commit}, {cpu}, {cores} cores, Linux {kernel}")
    }
}

/// Moves the calling thread to the server's core, where it has the time that nothing else needs. On the core of the load, which has no
/// such time, each of its runs would delay calls.
pub(super) fn move_beside_the_server(core: usize) -> Result<(), Failure> {
    pin_this_thread(core).map_err(|error| format!("a thread cannot be pinned to a core: {error}"))?;
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
        .map_err(|error| format!("a thread cannot be put in the idle class: {error}"))
}

/// Pins the calling thread, and those that it starts, to a core.
fn pin_this_thread(core: usize) -> rustix::io::Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores)
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error} (this needs Linux)"))
}

fn output(program: &str, arguments: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).current_dir(super::root()).args(arguments).output();
    let output = output.map_err(|error| format!("{program} cannot be run: {error}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Use of a core since boot, in seconds.
pub(super) struct CoreUse {
    total: f64,
    /// Busy with any process, or stolen by the hypervisor.
    busy: f64,
    /// Busy with the measured process.
    process: f64,
}

impl CoreUse {
    pub(super) fn read(core: usize, pid: u32) -> Result<Self, Failure> {
        let stat = read("/proc/stat")?;
        let name = format!("cpu{core} ");
        let line = stat.lines().find_map(|line| line.strip_prefix(&name));
        let ticks = ticks(line.ok_or_else(|| format!("/proc/stat has no core {core}"))?);
        // user nice system idle iowait irq softirq steal; guests are contained in user.
        let total: f64 = ticks.iter().take(8).sum();
        let idle: f64 = ticks.iter().skip(3).take(2).sum();

        let process = read(&format!("/proc/{pid}/stat"))?;
        // The process name, in parentheses, may contain anything; utime and stime are the 12th and 13th field after it.
        let after_name = process.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = after_name.split_whitespace().collect();
        let process: f64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
        Ok(Self {
            total: total / TICKS_PER_SECOND,
            busy: (total - idle) / TICKS_PER_SECOND,
            process: process / TICKS_PER_SECOND,
        })
    }

    /// CPU time of the measured process since `before`, in seconds.
    pub(super) fn process_since(&self, before: &Self) -> f64 {
        self.process - before.process
    }

    /// Share of the core that other processes used since `before`.
    pub(super) fn others_since(&self, before: &Self) -> f64 {
        let others = (self.busy - before.busy) - self.process_since(before);
        (others / (self.total - before.total).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0)
    }
}

/// Time since boot in which the hypervisor ran something else although a core had work, of all cores, in seconds.
pub(super) fn stolen() -> Result<f64, Failure> {
    let stat = read("/proc/stat")?;
    let ticks = ticks(stat.lines().next().unwrap_or_default());
    ticks
        .get(7)
        .map(|stolen| stolen / TICKS_PER_SECOND)
        .ok_or_else(|| "/proc/stat has no stolen time".to_owned())
}

fn ticks(line: &str) -> Vec<f64> {
    line.split_whitespace().filter_map(|field| field.parse().ok()).collect()
}
