//! A process that runs until it is dropped.

use anyhow::{Context as _, Result, bail};
use std::{
    fs::{self, File},
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread::sleep,
    time::Duration,
};

const START_POLLS: u32 = 6_000;
const START_POLL: Duration = Duration::from_millis(10);

/// A running process; killed when dropped.
pub(super) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the command, whose output is the log, and waits until it is ready.
    pub(super) fn start(
        mut command: Command,
        log: PathBuf,
        mut is_ready: impl FnMut(&Self) -> bool,
    ) -> Result<Self> {
        // Programs that a former process started may still write to its own log.
        let _ = fs::remove_file(&log);
        let file = File::create(&log).with_context(|| log.display().to_string())?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let mut process = Self { child: command.spawn().context("taskset")?, log };
        for _ in 0..START_POLLS {
            process.has_not_failed()?;
            if is_ready(&process) {
                return Ok(process);
            }
            sleep(START_POLL);
        }
        bail!("it is not ready:\n{}", process.log());
    }

    pub(super) fn log(&self) -> String {
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
