//! Requests off the fast path, and responses that it defers: their bodies, their tasks, and the events that tasks send to the
//! connection.

use super::{BodyShare, DeferredBody, DeferredResponse, HeldBytes, OnReset, Service};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, response};
use http_body::{Body, Frame};
use std::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
};
use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
};

/// Sends a task's events to its connection, each with its stream.
pub(super) type TaskSender = mpsc::UnboundedSender<(u32, TaskEvent)>;

/// An event of a task, for its connection.
pub(super) enum TaskEvent {
    /// Number of bytes of the request's body that were read.
    Read(usize),
    /// The head of the response.
    Head {
        head: Box<response::Parts>,
        /// Nothing follows it.
        is_end: bool,
    },
    /// A piece of the response's body. The sender is dropped once the piece was sent; the task waits for that.
    Data(Bytes, oneshot::Sender<()>),
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
    /// Runs the hook of a response whose stream the client has reset before.
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

/// A piece of a request's body.
pub(super) enum Piece {
    Data(Bytes, HeldBytes),
    /// Data already returned to the flow-control windows.
    Collected(Bytes, HeldBytes),
    Trailers(HeaderMap),
    End,
}

/// The body of a routed request. Bytes that are not read stay charged to the flow-control windows.
pub struct RequestBody {
    pieces: mpsc::UnboundedReceiver<Piece>,
    stream: u32,
    to: TaskSender,
    share: BodyShare,
    is_ended: bool,
}

/// The connection ended before the body did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the connection ended before the request's body")]
pub struct BodyError;

impl RequestBody {
    /// The body of a stream's request, and the sender of its pieces.
    pub(super) fn new(
        stream: u32,
        to: &TaskSender,
        share: &BodyShare,
    ) -> (mpsc::UnboundedSender<Piece>, Self) {
        let (pieces, received) = mpsc::unbounded_channel();
        (pieces, Self { pieces: received, stream, to: to.clone(), share: share.clone(), is_ended: false })
    }

    /// The share of the connection in the memory for incomplete requests: what is read of this body and kept belongs there.
    pub fn share(&self) -> BodyShare {
        self.share.clone()
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        Poll::Ready(match ready!(self.pieces.poll_recv(context)) {
            Some(Piece::Data(data, held)) => {
                // The reader keeps what it needs.
                drop(held);
                // The connection may be gone.
                let _ = self.to.send((self.stream, TaskEvent::Read(data.len())));
                Some(Ok(Frame::data(data)))
            }
            Some(Piece::Collected(data, held)) => {
                drop(held);
                Some(Ok(Frame::data(data)))
            }
            Some(Piece::Trailers(trailers)) => {
                self.is_ended = true;
                Some(Ok(Frame::trailers(trailers)))
            }
            Some(Piece::End) => {
                self.is_ended = true;
                None
            }
            None => {
                self.is_ended = true;
                Some(Err(BodyError))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended
    }
}

/// A task that ends with its stream.
pub(super) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Starts the task that responds to a request.
pub(super) fn start<S: Service>(
    service: &Arc<S>,
    stream: u32,
    request: Request<RequestBody>,
    to: &TaskSender,
) -> Task {
    let responding = respond(Arc::clone(service), stream, request, to.clone());
    Task(tokio::spawn(responding).abort_handle())
}

/// Starts the task that responds to a call of the fast path.
pub(super) fn start_deferred(stream: u32, body: DeferredBody, to: &TaskSender) -> Task {
    let sender = ResponseSender { stream, to: to.clone(), has_ended: false };
    let responding = async move {
        let body = body.await;
        sender.end(TaskEvent::FastPath(body));
    };
    Task(tokio::spawn(responding).abort_handle())
}

/// Sends a task's events, and [`TaskEvent::Failed`] if the task ends without an end of its response.
struct ResponseSender {
    stream: u32,
    to: TaskSender,
    has_ended: bool,
}

impl ResponseSender {
    fn send(&self, event: TaskEvent) {
        // A connection that is gone has aborted the task, or is about to.
        let _ = self.to.send((self.stream, event));
    }

    fn end(mut self, event: TaskEvent) {
        self.send(event);
        self.has_ended = true;
    }
}

impl Drop for ResponseSender {
    fn drop(&mut self) {
        if !self.has_ended {
            self.send(TaskEvent::Failed);
        }
    }
}

async fn respond<S: Service>(service: Arc<S>, stream: u32, request: Request<RequestBody>, to: TaskSender) {
    let sender = ResponseSender { stream, to, has_ended: false };
    let response: Response<S::Body> = service.route(request).await;
    let (head, body) = response.into_parts();
    let mut body = pin!(body);
    let head = Box::new(head);
    if body.is_end_stream() {
        return sender.end(TaskEvent::Head { head, is_end: true });
    }
    sender.send(TaskEvent::Head { head, is_end: false });
    loop {
        let frame = match poll_fn(|context| body.as_mut().poll_frame(context)).await {
            None => return sender.end(TaskEvent::End),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                let error: Box<dyn std::error::Error + Send + Sync> = error.into();
                tracing::debug!(error, "response body failed");
                return;
            }
        };
        match frame.into_data() {
            Ok(data) => {
                let (sent, is_sent) = oneshot::channel();
                sender.send(TaskEvent::Data(data, sent));
                // Nothing is sent through it: it closes.
                let _ = is_sent.await;
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    return sender.end(TaskEvent::Trailers(trailers));
                }
            }
        }
    }
}
