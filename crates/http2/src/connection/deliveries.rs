//! PINGs whose acknowledgement shows that the client has received what was written of a response.
//!
//! Invariants: at most one such PING is unacknowledged, and requests for it meanwhile share the next PING. A bounded number of tasks waits,
//! as the connection ends if a PING stays unacknowledged.

use crate::frame;
use std::time::Duration;
use tokio::sync::oneshot;

/// Payload of the PING.
const DELIVERY_PING: &[u8; 8] = b"received";

/// The most tasks that share a PING.
const TASKS_MAX: usize = 1024;

/// The tasks that wait for an acknowledgement.
#[derive(Default)]
pub(super) struct Deliveries {
    unacknowledged: Option<Ping>,
    /// Tasks that wait for the next PING, because their bytes were written after the first.
    next: Vec<oneshot::Sender<()>>,
}

/// A PING that is not acknowledged yet.
struct Ping {
    /// The tasks that wait for it.
    tasks: Vec<oneshot::Sender<()>>,
    /// Number of bytes of the connection up to its end.
    end: u64,
    /// Time of the first tick after it was written.
    written: Option<Duration>,
}

impl Deliveries {
    /// Notifies a task once the client has received all that is in `outgoing` now, which `removed` bytes of the connection precede. If too
    /// many tasks wait, drops the task's sender.
    pub(super) fn add(&mut self, task: oneshot::Sender<()>, removed: u64, outgoing: &mut Vec<u8>) {
        if self.next.len() < TASKS_MAX {
            self.next.push(task);
            self.ping(removed, outgoing);
        }
    }

    /// Notifies the tasks if the acknowledged PING is theirs.
    pub(super) fn on_acknowledged(&mut self, payload: &[u8], removed: u64, outgoing: &mut Vec<u8>) {
        if payload == DELIVERY_PING {
            for task in self.unacknowledged.take().into_iter().flat_map(|ping| ping.tasks) {
                // The stream may have ended.
                let _ = task.send(());
            }
            self.ping(removed, outgoing);
        }
    }

    /// Time since which the client could have acknowledged the PING, if it has not. `written` bytes of the connection are written.
    pub(super) fn unacknowledged_since(&mut self, written: u64, now: Duration) -> Option<Duration> {
        let ping = self.unacknowledged.as_mut()?;
        if ping.end <= written {
            ping.written.get_or_insert(now);
        }
        ping.written
    }

    fn ping(&mut self, removed: u64, outgoing: &mut Vec<u8>) {
        if self.unacknowledged.is_none() && !self.next.is_empty() {
            frame::write(frame::PING, 0, 0, DELIVERY_PING, outgoing);
            let (tasks, end) = (std::mem::take(&mut self.next), removed + outgoing.len() as u64);
            self.unacknowledged = Some(Ping { tasks, end, written: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_ping_at_a_time_notifies_those_that_wait_for_what_was_written_before_it() {
        let (mut deliveries, mut outgoing) = (Deliveries::default(), Vec::new());
        let add = |deliveries: &mut Deliveries, outgoing: &mut Vec<u8>| {
            let (task, received) = oneshot::channel();
            deliveries.add(task, 0, outgoing);
            received
        };
        let mut first = add(&mut deliveries, &mut outgoing);
        let mut others = [(); 3].map(|()| add(&mut deliveries, &mut outgoing));
        let ping = outgoing.len();
        assert_eq!(&outgoing[ping - 8..], DELIVERY_PING);
        deliveries.on_acknowledged(b"alive?  ", 0, &mut outgoing);
        assert!(first.try_recv().is_err() && outgoing.len() == ping);
        deliveries.on_acknowledged(DELIVERY_PING, 0, &mut outgoing);
        assert!(first.try_recv().is_ok() && others.iter_mut().all(|other| other.try_recv().is_err()));
        assert_eq!(outgoing.len(), 2 * ping, "one more PING for all three");
        deliveries.on_acknowledged(DELIVERY_PING, 0, &mut outgoing);
        deliveries.on_acknowledged(DELIVERY_PING, 0, &mut outgoing);
        assert!(others.iter_mut().all(|other| other.try_recv().is_ok()));
        assert_eq!(outgoing.len(), 2 * ping);
    }

    #[test]
    fn tasks_beyond_the_bound_are_not_notified() {
        let (mut deliveries, mut outgoing) = (Deliveries::default(), Vec::new());
        let mut tasks: Vec<_> = (0..TASKS_MAX + 2)
            .map(|_| {
                let (task, received) = oneshot::channel();
                deliveries.add(task, 0, &mut outgoing);
                received
            })
            .collect();
        let mut last = tasks.pop().expect("a task");
        assert_eq!(last.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        (0..2).for_each(|_| deliveries.on_acknowledged(DELIVERY_PING, 0, &mut outgoing));
        assert!(tasks.iter_mut().all(|task| task.try_recv().is_ok()));
    }
}
