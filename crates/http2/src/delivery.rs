//! Confirmation that the client has received what was sent of a response.

use super::task_event::{TaskEvent, TaskSender};
use tokio::sync::oneshot;

/// Confirms that the client has received what was sent of a response.
#[derive(Clone, Debug)]
pub struct Delivery {
    stream: u32,
    to: TaskSender,
}

/// The stream ended before the client had received what was sent, or too many confirmations of the connection are due.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the receipt is not confirmed")]
pub struct Unconfirmed;

impl Delivery {
    pub(super) fn new(stream: u32, to: TaskSender) -> Self {
        Self { stream, to }
    }

    /// Completes once the client has received the pieces of the response's body that were sent before this call: its connection has
    /// acknowledged a PING after them. A piece was sent when the body is polled for the next one.
    pub fn confirmed(&self) -> impl Future<Output = Result<(), Unconfirmed>> + Send + use<> {
        let (task, received) = oneshot::channel();
        // The connection may have ended.
        let _ = self.to.send((self.stream, TaskEvent::Confirm(task)));
        async { received.await.map_err(|_| Unconfirmed) }
    }
}
