//! The machine: cores, their use, and its description in results.

use anyhow::{Context as _, Result, ensure};
use procfs::{CpuInfo, Current as _, CurrentSI as _, KernelStats};
use std::{ffi::OsStr, fmt, process::Command};

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
        Ok(Self {
            date: output("date", &["-u", "+%F"])?,
            commit: output("git", &["describe", "--always", "--dirty", "--exclude", "*"])?,
            cpu: CpuInfo::current()?.model_name(0).unwrap_or_default().to_owned(),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get()),
            kernel: output("uname", &["-r"])?,
        })
    }

    /// The given core, or the last core.
    pub(super) fn core(&self, core: usize) -> usize {
        core.min(self.cores - 1)
    }

    /// Pins this process to the core of the load: its work beside a load takes no time of the server's core. The programs that it
    /// starts are pinned by themselves.
    pub(super) fn leave_the_servers_core(&self) -> Result<()> {
        let (core, this) = (self.core(1).to_string(), std::process::id().to_string());
        output("taskset", &["--all-tasks", "--cpu-list", "--pid", &core, &this]).map(|_| ())
    }

    /// A command pinned to a core, or allowed on all cores although this process may not use them.
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

fn output(program: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program).current_dir(super::root()).args(arguments).output();
    let output = output.with_context(|| program.to_owned())?;
    ensure!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Use of the first core and of the machine since boot, in seconds.
pub(super) struct CoreUse {
    total: f64,
    /// Time in which the core was busy with any process, or taken by the hypervisor.
    busy: f64,
    /// Time of all cores in which the hypervisor ran something else although there was work.
    stolen: f64,
    /// CPU time of the server, which runs on the first core.
    of_server: f64,
}

impl CoreUse {
    pub(super) fn read(of_server: f64) -> Result<Self> {
        let stat = KernelStats::current()?;
        let core = stat.cpu_time.first().context("/proc/stat has no cores")?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        let stolen = |time: &procfs::CpuTime| time.steal.unwrap_or(0);
        let interrupts = core.irq.unwrap_or(0) + core.softirq.unwrap_or(0);
        let busy = core.user + core.nice + core.system + interrupts + stolen(core);
        let total = seconds(busy + core.idle + core.iowait.unwrap_or(0));
        Ok(Self { total, busy: seconds(busy), stolen: seconds(stolen(&stat.total)), of_server })
    }

    /// Shares since `before`: of the core, the share of processes other than the server; of all cores, the share that the hypervisor took.
    pub(super) fn disturbances_since(&self, before: &Self) -> (f64, f64) {
        let total = (self.total - before.total).max(f64::MIN_POSITIVE);
        let others = (self.busy - before.busy) - (self.of_server - before.of_server);
        ((others / total).clamp(0.0, 1.0), (self.stolen - before.stolen) / total)
    }
}
