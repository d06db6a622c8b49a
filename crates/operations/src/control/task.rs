//! The background thread of the control API.

use super::Control;
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between two rounds.
const INTERVAL: Duration = Duration::from_secs(1);
/// Interval while decisions are streamed or recorded.
const WATCHED_INTERVAL: Duration = Duration::from_millis(50);
/// Added to the nice value of the thread: where cores are scarce, decisions have them first.
const NICE: i32 = 10;

/// The running thread.
pub struct ControlTask {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl ControlTask {
    /// Starts the thread.
    pub fn start(control: &Arc<Control>) -> io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let (of_thread, stopped) = (Arc::clone(control), Arc::clone(&stop));
        let run = move || {
            // On Linux a priority belongs to a thread. Without it, this work competes with decisions.
            let _ = rustix::process::setpriority_process(None, NICE);
            let control = of_thread;
            let (mut taken, mut collected) = (Vec::new(), control.now());
            while !stopped.load(Ordering::Relaxed) {
                let live = control.live();
                let is_watched = live.tail.is_watched() || live.recorder.is_on();
                thread::park_timeout(if is_watched { WATCHED_INTERVAL } else { INTERVAL });
                control.pass_on(&mut taken);
                if control.now().since(collected) >= INTERVAL {
                    collected = control.now();
                    control.each_second();
                }
            }
            control.audit_log().flush();
        };
        let thread = thread::Builder::new().name("control".into()).spawn(run)?;
        let _ = control.task.set(thread.thread().clone());
        Ok(Self { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
        // A panic was reported where it occurred.
        let _ = self.thread.join();
    }
}
