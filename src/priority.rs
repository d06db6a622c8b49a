//! The priority of threads whose work must not delay decisions.

/// Niceness of such threads: on a busy processor, about a tenth of the share that a thread with decisions has.
const NICE: i32 = 10;

/// Lowers the priority of the calling thread; on Linux a priority belongs to a thread. Where the system refuses, the priority stays.
pub(crate) fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, NICE);
}
