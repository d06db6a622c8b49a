//! The machine: cores, their use, and its description in results.

use super::process::TICKS_PER_SECOND;
use anyhow::{Context as _, Result};
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
    pub(super) fn here() -> Result<Self> {
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
    pub(super) fn leave_the_servers_core(&self) -> Result<()> {
        pin_this_thread(self.core(1))
    }

    /// A command pinned to a core, or for all cores though this process may not use them.
    pub(super) fn on_cores(&self, core: Option<usize>, program: impl AsRef<OsStr>) -> Command {
        let cores = core.map_or_else(|| format!("0-{}", self.cores - 1), |core| self.core(core).to_string());
        let mut command = Command::new("taskset");
        command.args(["-c", &cores]).arg(program);
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
pub(super) fn move_beside_the_server(core: usize) -> Result<()> {
    pin_this_thread(core)?;
    let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy)
        .map_err(|error| anyhow::anyhow!("a thread cannot be put in the idle class: {error}"))
}

/// Pins the calling thread, and those that it starts, to a core.
fn pin_this_thread(core: usize) -> Result<()> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).context("a thread cannot be pinned to a core")
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("{path} (this needs Linux)"))
}

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).current_dir(super::root()).args(arguments).output();
    Ok(String::from_utf8_lossy(&output.with_context(|| program.to_owned())?.stdout).trim().to_owned())
}

/// Use of a core, or of all of them, since boot; in seconds.
pub(super) struct CoreUse {
    pub(super) total: f64,
    /// Busy with any process, or stolen by the hypervisor.
    pub(super) busy: f64,
    /// In which the hypervisor ran something else although there was work.
    pub(super) stolen: f64,
}

impl CoreUse {
    pub(super) fn of(core: usize) -> Result<Self> {
        Self::read(&format!("cpu{core}"))
    }

    pub(super) fn of_all() -> Result<Self> {
        Self::read("cpu")
    }

    fn read(name: &str) -> Result<Self> {
        let stat = read("/proc/stat")?;
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let line = line.with_context(|| format!("/proc/stat has no {name}"))?;
        // user nice system idle iowait irq softirq steal; guests are contained in user.
        let seconds =
            line.split_whitespace().filter_map(|field| Some(field.parse::<f64>().ok()? / TICKS_PER_SECOND));
        let seconds: Vec<f64> = seconds.take(8).collect();
        let [.., idle, iowait, _, _, stolen] = seconds[..] else {
            anyhow::bail!("/proc/stat has no stolen time")
        };
        let total = seconds.iter().sum();
        Ok(Self { total, busy: total - idle - iowait, stolen })
    }
}
