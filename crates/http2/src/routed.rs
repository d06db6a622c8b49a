//! Tasks of requests off the fast path, and of responses that it defers.

use super::{
    deferred::DeferredBody,
    request_body::RequestBody,
    service::Service,
    task_event::{TaskEvent, TaskSender},
};
use http::{Request, Response};
use http_body::Body as _;
use std::{future::poll_fn, pin::pin, sync::Arc};
use tokio::{sync::oneshot, task::AbortHandle};

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
