//! Runs of `tidegate bench`, and what all measurements share: processes that listen, and the length of a measurement.

use super::{machine::Machine, results::Figure};
use crate::Failure;
use clap::Args;
use serde_json::Value;
use std::{
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const START_POLLS: u32 = 2_000;
const START_POLL: Duration = Duration::from_millis(10);

/// The number and the length of measurements, and the programs.
#[derive(Args)]
pub(super) struct Length {
    /// Rounds over all measurements.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u32,
    /// One short round as a smoke test: writes nothing, and no bar can fail.
    #[arg(long)]
    pub(super) quick: bool,
    /// Folder with built programs, instead of a release build.
    #[arg(long, value_name = "FOLDER")]
    pub(super) programs: Option<PathBuf>,
}

impl Length {
    pub(super) fn rounds(&self) -> u32 {
        if self.quick { 1 } else { self.rounds.max(1) }
    }

    pub(super) fn seconds(&self) -> u32 {
        if self.quick { 1 } else { self.seconds.max(1) }
    }
}

/// A running process that listens on a port of loopback; killed when dropped.
pub(super) struct Process {
    child: Child,
    pub(super) address: SocketAddr,
}

impl Process {
    /// Starts the command, and waits until it listens.
    pub(super) fn start(name: &str, mut command: Command, address: SocketAddr) -> Result<Self, Failure> {
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{name} cannot be started: {error}"))?;
        let mut process = Self { child, address };
        for _ in 0..START_POLLS {
            if TcpStream::connect(address).is_ok() {
                return Ok(process);
            }
            if let Ok(Some(status)) = process.child.try_wait() {
                return Err(format!("{name} ended at once: {status}"));
            }
            sleep(START_POLL);
        }
        Err(format!("{name} does not listen"))
    }

    /// The process: `taskset` has replaced itself by it.
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

/// The report of a run.
pub(super) struct Report(Value);

impl Report {
    /// Runs `tidegate bench` on the second core against a server, with the CPU of one process.
    pub(super) fn of(
        machine: &Machine,
        tidegate: &Path,
        (address, pid): (SocketAddr, u32),
        load: &[&[&str]],
    ) -> Result<Self, Failure> {
        let mut command = machine.on_core(1, tidegate);
        command.arg("bench").arg(address.to_string()).args(load.concat());
        command.args(["--domain", "edge", "--json", "--timeout", "5s", "--pid", &pid.to_string()]);
        let output = command.output().map_err(|error| format!("tidegate bench cannot be run: {error}"))?;
        if !output.status.success() {
            return Err(format!("tidegate bench failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        let report = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("tidegate bench printed no JSON: {error}"))?;
        let report = Self(report);
        match report.number("/errors")? > 0.0 {
            true => Err(format!("calls failed: {}", report.0["errors_by_kind"])),
            false => Ok(report),
        }
    }

    pub(super) fn number(&self, pointer: &str) -> Result<f64, Failure> {
        let number = self.0.pointer(pointer).and_then(Value::as_f64);
        number.ok_or_else(|| format!("the report lacks {pointer}"))
    }

    /// The figures of a server: requests a second, CPU and latencies.
    pub(super) fn figures(&self) -> Result<Vec<(Figure, f64)>, Failure> {
        let named = [
            (Figure::PerSecond, "/per_second"),
            (Figure::CpuMicros, "/server_cpu_us_per_request"),
            (Figure::P50Micros, "/latency_us/p50"),
            (Figure::P99Micros, "/latency_us/p99"),
        ];
        named.into_iter().map(|(figure, pointer)| Ok((figure, self.number(pointer)?))).collect()
    }
}
