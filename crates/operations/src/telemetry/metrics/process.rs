//! Figures of the process under the usual names of Prometheus clients. They are read from `/proc`: other systems have none.

use super::page::Page;
use std::{fmt, fs};

/// Clock ticks per second in `/proc`: 100 on every architecture that Linux supports today.
const TICKS: f64 = 100.0;

/// The figures.
#[derive(PartialEq, Debug, Default)]
struct Figures {
    cpu_seconds: f64,
    resident_bytes: u64,
    threads: u64,
    /// Start of the process since the boot.
    start_seconds: f64,
}

/// Memory of the process that is in RAM.
pub fn resident_bytes() -> Option<u64> {
    let read = |path| fs::read_to_string(path).ok();
    Some(figures(&read("/proc/self/stat")?, &read("/proc/self/status")?)?.resident_bytes)
}

impl Page<'_> {
    pub(super) fn process(&mut self) -> fmt::Result {
        let read = |path| fs::read_to_string(path).ok();
        let texts = (read("/proc/self/stat"), read("/proc/self/status"), read("/proc/stat"));
        let (Some(stat), Some(status), Some(machine)) = texts else { return Ok(()) };
        let Some(Figures { cpu_seconds, resident_bytes, threads, start_seconds }) = figures(&stat, &status)
        else {
            return Ok(());
        };
        self.value("process_cpu_seconds", cpu_seconds)?;
        self.value("process_resident_memory_bytes", resident_bytes)?;
        self.value("process_threads", threads)?;
        if let Some(boot) = boot(&machine) {
            self.value("process_start_time_seconds", boot + start_seconds)?;
        }
        let Ok(files) = fs::read_dir("/proc/self/fd") else { return Ok(()) };
        self.value("process_open_fds", files.count() as u64)?;
        let limits = read("/proc/self/limits");
        let Some(most) = limits.as_deref().and_then(files_max) else { return Ok(()) };
        self.value("process_max_fds", most)
    }
}

fn figures(stat: &str, status: &str) -> Option<Figures> {
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
    let of_status = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    Some(Figures {
        cpu_seconds: (ticks(11)? + ticks(12)?) / TICKS,
        resident_bytes: of_status("VmRSS")? * 1024,
        threads: of_status("Threads")?,
        start_seconds: ticks(19)? / TICKS,
    })
}

/// Unix time of the boot.
fn boot(machine: &str) -> Option<f64> {
    machine.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

fn files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_whatever_the_name_of_the_program() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 250 150 0 0 20 0 5 0 12345 1 2 3";
        let status = "Name:\ttidegate\nVmRSS:\t    2048 kB\nThreads:\t5\n";
        let expected =
            Figures { cpu_seconds: 4.0, resident_bytes: 2048 * 1024, threads: 5, start_seconds: 123.45 };
        assert_eq!(figures(stat, status), Some(expected));
        assert_eq!(figures("42 (a) S 1", status), None);
        assert_eq!(boot("cpu 1 2\nbtime 1700000000\n"), Some(1_700_000_000.0));
        assert_eq!(
            files_max("Max open files            1024                 524288               files\n"),
            Some(1024)
        );
    }
}
