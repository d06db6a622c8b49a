//! Memory available to this process: the machine's, or the cgroup's limit if that is less. Freed memory is returned to it.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Bytes available to this process, and the source of the figure; none if there is no source.
pub fn available() -> Option<(u64, &'static str)> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limit_of = |path: PathBuf| fs::read_to_string(Path::new("/sys/fs/cgroup").join(path)).ok();
    least(machine(&meminfo), cgroup_limit(&cgroup, limit_of))
}

/// Bytes of a block that has pages of its own in mimalloc.
const OWN_PAGES: usize = 4 << 20;

/// Returns memory to the system that has been free for a second. mimalloc does so only when a thread frees pages, which an idle server does
/// not: after 900 connections with 900 MiB of incomplete messages were closed, 860 MiB stayed.
pub(super) fn return_freed() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(OWN_PAGES)));
}

/// A cgroup limit counts if it is below the machine's memory: version 1 writes "no limit" as a huge number.
fn least(machine: Option<u64>, cgroup: Option<u64>) -> Option<(u64, &'static str)> {
    match (machine, cgroup) {
        (Some(machine), Some(cgroup)) if cgroup < machine => Some((cgroup, "the cgroup's limit")),
        (Some(machine), _) => Some((machine, "the machine's memory")),
        (None, Some(cgroup)) => Some((cgroup, "the cgroup's limit")),
        (None, None) => None,
    }
}

/// The line `MemTotal:  1234 kB`.
fn machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit of the process's groups and all above them. `/proc/self/cgroup` has lines `0::/path` (version 2) and
/// `7:memory:/path` (version 1); a container may see its own group as the root instead.
fn cgroup_limit(groups: &str, limit_of: impl Fn(PathBuf) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        let (mount, path, file) = match *line.splitn(3, ':').collect::<Vec<_>>().as_slice() {
            ["0", "", path] => ("", path, "memory.max"),
            [_, controllers, path] if controllers.split(',').any(|name| name == "memory") => {
                ("memory", path, "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        let group = Path::new(path.trim_start_matches('/'));
        group.ancestors().map(|group| Path::new(mount).join(group).join(file)).collect()
    });
    limits.filter_map(|path| limit_of(path)?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_memory_is_parsed() {
        assert_eq!(machine("MemFree: 1 kB\nMemTotal:       24684096 kB\n"), Some(24_684_096 * 1024));
        assert_eq!(machine(""), None);
        assert_eq!(machine("MemTotal: much\n"), None);
    }

    #[test]
    fn the_least_limit_of_all_groups_counts() {
        let files = |path: PathBuf| match path.to_str()? {
            "memory.max" => Some("max\n".into()),
            "pod/memory.max" => Some("1000\n".into()),
            "pod/box/memory.max" => Some("2000\n".into()),
            "memory/old/memory.limit_in_bytes" => Some("700\n".into()),
            "memory/memory.limit_in_bytes" => Some("9223372036854771712\n".into()),
            _ => None,
        };
        assert_eq!(cgroup_limit("0::/pod/box\n", files), Some(1000));
        assert_eq!(cgroup_limit("5:cpu,cpuacct:/x\n3:memory:/old\n", files), Some(700));
        assert_eq!(cgroup_limit("0::/\n", files), None);
        assert_eq!(cgroup_limit("nonsense", files), None);
    }

    #[test]
    fn a_limit_above_the_machines_memory_is_ignored() {
        assert_eq!(least(Some(100), Some(200)), Some((100, "the machine's memory")));
        assert_eq!(least(Some(100), Some(20)), Some((20, "the cgroup's limit")));
        assert_eq!(least(None, None), None);
    }
}
