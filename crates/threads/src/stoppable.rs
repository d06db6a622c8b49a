//! Threads that end when their owner drops them.

use super::{BackgroundThread, Priority, StartError};
use std::{
    any::Any,
    sync::mpsc::{self, RecvTimeoutError},
    time::Duration,
};

/// A thread that is stopped when this is dropped. The drop waits for its end.
#[derive(Debug)]
pub struct StoppableThread(Option<(Box<dyn Any + Send + Sync>, BackgroundThread)>);

impl BackgroundThread {
    /// Ends the thread when the result is dropped, and waits for that. The work must return once `stop` is dropped.
    pub fn stopped_by(self, stop: impl Any + Send + Sync) -> StoppableThread {
        StoppableThread(Some((Box::new(stop), self)))
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
}

impl Drop for StoppableThread {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.0.take() {
            drop(stop);
            thread.join();
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
}
