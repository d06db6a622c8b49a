//! Tasks of routed requests, and of deferred responses.

use super::{
    deferred::DeferredBody,
    request_body::RequestBody,
    service::Service,
    task_event::{TaskEvent, TaskSender},
};
use http::{Request, Response};
use http_body::Body as _;
use std::{convert::Infallible, future::poll_fn, pin::pin, sync::Arc};
use tokio::sync::oneshot;

/// A task that ends with its stream, but is polled at least once before. What a request changes at its first poll is thus done even if its
/// stream or its connection has ended since it was read.
pub(super) struct Task {
    /// Dropped with the stream, which cancels the task.
    _stream: oneshot::Sender<Infallible>,
}

impl Task {
    fn start(responding: impl Future<Output = ()> + Send + 'static) -> Self {
        let (stream, ended) = oneshot::channel();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = responding => {}
                _ = ended => {}
            }
        });
        Self { _stream: stream }
    }
}

/// Starts the task that responds to a request.
pub(super) fn start<S: Service>(
    service: &Arc<S>,
    stream: u32,
    request: Request<RequestBody>,
    to: &TaskSender,
) -> Task {
    Task::start(respond(Arc::clone(service), stream, request, to.clone()))
}

/// Starts the task that responds to a call of the fast path.
pub(super) fn start_deferred(stream: u32, body: DeferredBody, to: &TaskSender) -> Task {
    let sender = ResponseSender { stream, to: to.clone(), has_ended: false };
    Task::start(async move {
        let body = body.await;
        sender.end(TaskEvent::FastPath(body));
    })
}

/// Sends the events of a task. Sends [`TaskEvent::Failed`] if the task ends before its response does.
struct ResponseSender {
    stream: u32,
    to: TaskSender,
    has_ended: bool,
}

impl ResponseSender {
    fn send(&self, event: TaskEvent) {
        // If the connection has ended, it has cancelled the task or is about to.
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
                // Nothing is sent through the channel: it closes.
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
