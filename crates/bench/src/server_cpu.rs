//! CPU time of a server process on this machine, from the kernel's accounting.

use std::{fs, io, path::PathBuf};

/// A server process.
#[derive(Clone, Debug)]
pub struct ServerProcess {
    threads: PathBuf,
    pid: u32,
}

/// The CPU time cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--pid {pid}: cannot read its CPU time (Linux only; is the process running?): {cause}")]
pub struct CpuError {
    pid: u32,
    #[source]
    cause: io::Error,
}

impl ServerProcess {
    /// The process of this id.
    pub fn new(pid: u32) -> Self {
        Self { threads: format!("/proc/{pid}/task").into(), pid }
    }

    /// CPU time of the live threads of the process, in nanoseconds.
    pub fn cpu_nanos(&self) -> Result<u64, CpuError> {
        self.read().map_err(|cause| CpuError { pid: self.pid, cause })
    }

    fn read(&self) -> io::Result<u64> {
        let mut total = 0;
        for thread in fs::read_dir(&self.threads)? {
            let path = thread?.path().join("schedstat");
            match fs::read_to_string(path) {
                Ok(text) => total += on_cpu(&text)?,
                // A thread may end between the listing and the reading.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(total)
    }
}

/// First number of a `schedstat` file: nanoseconds on a CPU.
fn on_cpu(schedstat: &str) -> io::Result<u64> {
    let first = schedstat.split_whitespace().next();
    first.and_then(|first| first.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_cpu_time() {
        assert_eq!(on_cpu("123456 789 10\n").ok(), Some(123_456));
        assert!(on_cpu("").is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_busy_process_uses_cpu_time_and_a_missing_one_is_an_error() {
        let this = ServerProcess::new(std::process::id());
        let before = this.cpu_nanos().expect("this process runs");
        let mut sum = 0_u64;
        while this.cpu_nanos().expect("still running") < before + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let error = ServerProcess::new(u32::MAX).cpu_nanos().expect_err("no such process");
        assert!(error.to_string().contains("--pid 4294967295"), "{error}");
    }
}
