//! Threads of Linux's idle class (`SCHED_IDLE`): any other thread that becomes ready preempts them at once.

#[cfg(all(feature = "server", target_os = "linux"))]
use thread_priority::{
    NormalThreadSchedulePolicy::{self, Idle, Other},
    ThreadId, ThreadPriority,
    ThreadSchedulePolicy::Normal,
    unix,
};

#[cfg(all(feature = "server", target_os = "linux"))]
const LOWEST: i32 = 19;

/// A thread of the idle class that may leave it: its number in the system's library.
pub(super) struct IdleThread(usize);

#[cfg(all(feature = "server", target_os = "linux"))]
impl IdleThread {
    /// The calling thread, which has this niceness once it has left; none where the system refuses that, or the class.
    /// Its priority must be lower before: raising it needs the same permission as leaving the class, and none beside it.
    pub(super) fn enter(nice: i32) -> Option<Self> {
        rustix::process::setpriority_process(None, nice).ok()?;
        Self::enter_permitted(nice)
    }

    /// The same where it [may leave](may_leave) the class.
    pub(super) fn enter_permitted(nice: i32) -> Option<Self> {
        // Sets the lowest priority as well.
        if !set_policy(unix::thread_native_id(), Idle) {
            return None;
        }
        // The one that counts once it has left.
        let _ = rustix::process::setpriority_process(None, nice);
        Some(Self(unix::thread_native_id() as usize))
    }

    /// To be called by another thread, while this one has not ended.
    pub(super) fn leave(self) {
        // On a thread of its own, since the priority of the calling one is set too.
        let leave = move || set_policy(self.0 as _, Other);
        if let Ok(thread) = std::thread::Builder::new().name("leave-idle".into()).spawn(leave) {
            let _ = thread.join();
        }
    }

    /// To be called by this thread, with the niceness for which it entered.
    pub(super) fn leave_here(self, nice: i32) {
        set_policy(self.0 as _, Other);
        let _ = rustix::process::setpriority_process(None, nice);
    }
}

/// Whether threads of the idle class may leave it for this niceness, as far as a thread can find out that stays outside: one that tries it
/// has the lowest priority afterwards if it may not.
#[cfg(all(feature = "server", target_os = "linux"))]
pub(super) fn may_leave(nice: i32) -> bool {
    let raise = move || {
        let priority = |nice| rustix::process::setpriority_process(None, nice);
        priority(LOWEST).and_then(|()| priority(nice)).is_ok()
    };
    std::thread::Builder::new()
        .name("raise-priority".into())
        .spawn(raise)
        .is_ok_and(|thread| thread.join().unwrap_or(false))
}

/// Sets the class of a thread, and the priority of the calling thread to the lowest. Returns whether the system permits it.
#[cfg(all(feature = "server", target_os = "linux"))]
fn set_policy(thread: ThreadId, policy: NormalThreadSchedulePolicy) -> bool {
    unix::set_thread_priority_and_policy(thread, ThreadPriority::Min, Normal(policy)).is_ok()
}

/// Puts the calling thread in the idle class for ever. Returns whether the system permits it.
#[cfg(feature = "server")]
pub(super) fn enter_for_ever() -> bool {
    #[cfg(target_os = "linux")]
    return set_policy(unix::thread_native_id(), Idle);
    #[cfg(not(target_os = "linux"))]
    false
}

#[cfg(not(all(feature = "server", target_os = "linux")))]
impl IdleThread {
    pub(super) fn enter(_nice: i32) -> Option<Self> {
        None
    }

    pub(super) fn enter_permitted(_nice: i32) -> Option<Self> {
        None
    }

    pub(super) fn leave(self) {}

    pub(super) fn leave_here(self, _nice: i32) {}
}

#[cfg(not(all(feature = "server", target_os = "linux")))]
pub(super) fn may_leave(_nice: i32) -> bool {
    false
}
