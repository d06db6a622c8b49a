//! The events that a task sends to its connection.

use super::deferred::{DeferredResponse, OnReset};
use bytes::Bytes;
use http::{HeaderMap, response};
use tokio::sync::{mpsc, oneshot};

/// Sends a task's events to its connection, each with its stream.
pub(super) type TaskSender = mpsc::UnboundedSender<(u32, TaskEvent)>;

/// An event of a task, for its connection.
pub(super) enum TaskEvent {
    /// Number of bytes of the request's body that were read.
    Read(usize),
    /// The head of the response.
    Head {
        head: Box<response::Parts>,
        /// Whether the response ends here.
        is_end: bool,
    },
    /// A piece of the response's body. The sender is dropped once the piece was sent, for which the task waits.
    Data(Bytes, oneshot::Sender<()>),
    /// The whole body of the response, and its end.
    Body(Bytes),
    /// A task to notify once the client has received the pieces sent before.
    Confirm(oneshot::Sender<()>),
    /// The whole response to a call of the fast path.
    FastPath(DeferredResponse),
    /// The end of the response, with trailers.
    Trailers(HeaderMap),
    /// The end of the response, without trailers.
    End,
    /// The task ended before its response did.
    Failed,
}

impl TaskEvent {
    /// Whether it is the last event of its task. Every task sends one.
    pub(super) fn is_last(&self) -> bool {
        match self {
            Self::Head { is_end, .. } => *is_end,
            Self::FastPath(_) | Self::Trailers(_) | Self::End | Self::Failed => true,
            Self::Read(_) | Self::Data(..) | Self::Body(_) | Self::Confirm(_) => false,
        }
    }

    /// Runs the hook of a response that is not written, because its stream or its connection has ended.
    pub(super) fn run_hook(&self) {
        let hook = match self {
            Self::Head { head, .. } => head.extensions.get::<OnReset>(),
            Self::FastPath(response) => response.on_reset.as_ref(),
            _ => None,
        };
        if let Some(hook) = hook {
            hook.run();
        }
    }
}
