//! PINGs whose acknowledgement shows that the client has received what was written of a response.
//!
//! Invariant: at most one such PING is unacknowledged. Requests for it meanwhile share the next PING.

use crate::frame;
use tokio::sync::oneshot;

/// Payload of the PING.
const DELIVERY_PING: &[u8; 8] = b"received";

/// The tasks that wait for an acknowledgement.
#[derive(Default)]
pub(super) struct Deliveries {
    /// Tasks that wait for the PING that was written. None if it was acknowledged.
    waiting: Option<Vec<oneshot::Sender<()>>>,
    /// Tasks that wait for the next PING, because their bytes were written after the first.
    next: Vec<oneshot::Sender<()>>,
}

impl Deliveries {
    /// Notifies a task once the client has received all that is written now.
    pub(super) fn add(&mut self, task: oneshot::Sender<()>, outgoing: &mut Vec<u8>) {
        self.next.push(task);
        self.ping(outgoing);
    }

    /// Notifies the tasks if the acknowledged PING is theirs.
    pub(super) fn on_acknowledged(&mut self, payload: &[u8], outgoing: &mut Vec<u8>) {
        if payload == DELIVERY_PING {
            for task in self.waiting.take().into_iter().flatten() {
                // The stream may have ended.
                let _ = task.send(());
            }
            self.ping(outgoing);
        }
    }

    fn ping(&mut self, outgoing: &mut Vec<u8>) {
        if self.waiting.is_none() && !self.next.is_empty() {
            self.waiting = Some(std::mem::take(&mut self.next));
            frame::write(frame::PING, 0, 0, DELIVERY_PING, outgoing);
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
            deliveries.add(task, outgoing);
            received
        };
        let mut first = add(&mut deliveries, &mut outgoing);
        let mut others = [(); 3].map(|()| add(&mut deliveries, &mut outgoing));
        let ping = outgoing.len();
        assert_eq!(&outgoing[ping - 8..], DELIVERY_PING);
        deliveries.on_acknowledged(b"alive?  ", &mut outgoing);
        assert!(first.try_recv().is_err() && outgoing.len() == ping);
        deliveries.on_acknowledged(DELIVERY_PING, &mut outgoing);
        assert!(first.try_recv().is_ok() && others.iter_mut().all(|other| other.try_recv().is_err()));
        assert_eq!(outgoing.len(), 2 * ping, "one more PING for all three");
        deliveries.on_acknowledged(DELIVERY_PING, &mut outgoing);
        deliveries.on_acknowledged(DELIVERY_PING, &mut outgoing);
        assert!(others.iter_mut().all(|other| other.try_recv().is_ok()));
        assert_eq!(outgoing.len(), 2 * ping);
    }
}
