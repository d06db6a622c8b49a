//! Threads that end when their owner drops them.

use super::{BackgroundThread, Priority, StartError};
use std::{
    any::Any,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

/// A thread that is stopped when this is dropped. The drop waits for its end.
#[derive(Debug)]
pub struct StoppableThread {
    /// What stops the thread when it is dropped, and the thread. None once it was stopped.
    running: Option<(Box<dyn Any + Send + Sync>, BackgroundThread)>,
    /// The longest wait for its end. None if nothing bounds it.
    wait_max: Option<Duration>,
}

impl BackgroundThread {
    /// Ends the thread when the result is dropped, and waits for that. The work must return once `stop` is dropped.
    pub fn stopped_by(self, stop: impl Any + Send + Sync) -> StoppableThread {
        StoppableThread { running: Some((Box::new(stop), self)), wait_max: None }
    }
}

impl StoppableThread {
    /// Starts a thread that does a round of its work after each interval.
    pub fn start_periodic(
        name: &str,
        priority: Priority,
        interval: Duration,
        mut round: impl FnMut() + Send + 'static,
    ) -> Result<Self, StartError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let run = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                round();
            }
        };
        Ok(BackgroundThread::start(name, priority, run)?.stopped_by(stop))
    }

    /// Bounds the time that the drop waits, for a thread that waits for a disk: a disk that does not respond then delays no stop, and the
    /// thread ends with the process.
    pub fn awaited_within(mut self, time: Duration) -> Self {
        self.wait_max = Some(time);
        self
    }
}

impl Drop for StoppableThread {
    fn drop(&mut self) {
        let Some((stop, thread)) = self.running.take() else { return };
        drop(stop);
        let Some(wait_max) = self.wait_max else { return thread.join() };
        let name = thread.handle().name().unwrap_or_default().to_owned();
        if !thread.join_within(wait_max) {
            tracing::warn!(
                thread = name,
                ?wait_max,
                "a thread still waits for its disk; stopping without it"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_periodic_thread_does_rounds_until_it_is_stopped() {
        let (rounds, round) = mpsc::channel();
        let send = move || _ = rounds.send(());
        let thread =
            StoppableThread::start_periodic("rounds", Priority::Full, Duration::from_millis(1), send);
        assert_eq!([round.recv(), round.recv()], [Ok(()), Ok(())]);
        drop(thread.expect("a thread"));
        while round.try_recv().is_ok() {}
        assert_eq!(round.try_recv(), Err(mpsc::TryRecvError::Disconnected), "its work was dropped");
    }

    #[test]
    fn a_thread_that_waits_for_its_disk_is_awaited_for_a_bounded_time() {
        let (disk, responds) = mpsc::channel::<()>();
        let thread = BackgroundThread::start("disk", Priority::Full, move || _ = responds.recv());
        drop(thread.expect("a thread").stopped_by(()).awaited_within(Duration::from_millis(1)));
        drop(disk);
    }
}
