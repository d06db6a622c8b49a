//! Whether the client has received what was sent of a response.

use super::{
    request_body::BodyError,
    task_event::{TaskEvent, TaskSender},
};
use tokio::sync::oneshot;

/// Finds out whether the client has received what was sent of a response.
#[derive(Clone, Debug)]
pub struct Delivery {
    stream: u32,
    to: TaskSender,
}

impl Delivery {
    pub(super) fn new(stream: u32, to: TaskSender) -> Self {
        Self { stream, to }
    }

    /// Completes once the client has received the pieces of the response's body that were sent before: its connection has
    /// acknowledged a PING after them. A piece was sent when the body is polled for the next one. An error means that the stream
    /// has ended.
    pub fn confirmed(&self) -> impl Future<Output = Result<(), BodyError>> + Send + use<> {
        let (task, received) = oneshot::channel();
        // The connection may be gone.
        let _ = self.to.send((self.stream, TaskEvent::Confirm(task)));
        async { received.await.map_err(|_| BodyError) }
    }
}
