//! The processor time that a server on this machine has used, as its kernel accounts for it.

use std::{fs, io, path::PathBuf};

/// A process whose processor time is watched.
#[derive(Clone, Debug)]
pub(super) struct ServerProcess {
    threads: PathBuf,
    pid: u32,
}

/// The process's accounts cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("--pid {pid}: its processor time cannot be read (Linux only; is the process still there?): {cause}")]
pub(super) struct CpuError {
    pid: u32,
    #[source]
    cause: io::Error,
}

impl ServerProcess {
    pub(super) fn new(pid: u32) -> Self {
        Self { threads: format!("/proc/{pid}/task").into(), pid }
    }

    /// Nanoseconds that the process's threads, those alive now, have spent on a processor.
    pub(super) fn cpu_nanos(&self) -> Result<u64, CpuError> {
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

/// The first number of a `schedstat`: nanoseconds on a processor.
fn on_cpu(schedstat: &str) -> io::Result<u64> {
    let first = schedstat.split_whitespace().next();
    first.and_then(|first| first.parse().ok()).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_time_on_a_processor() {
        assert_eq!(on_cpu("123456 789 10\n").ok(), Some(123_456));
        assert!(on_cpu("").is_err());
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_process_that_works_uses_time_and_one_that_is_not_there_is_an_error() {
        let this = ServerProcess::new(std::process::id());
        let before = this.cpu_nanos().expect("this process is there");
        let mut sum = 0_u64;
        while this.cpu_nanos().expect("still there") < before + 1_000_000 {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let error = ServerProcess::new(u32::MAX).cpu_nanos().expect_err("no such process");
        assert!(error.to_string().contains("--pid 4294967295"), "{error}");
    }
}
