//! One stream: a request being received and its response being sent.

use super::send_queues::BlockedBy;
use crate::{
    body_memory::HeldBytes,
    flow_control::{RecvWindow, StreamSendWindow},
    request_body::Piece,
    routed::Task,
};
use bytes::Bytes;
use http::{HeaderMap, Request};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// An open stream.
pub(super) struct Stream<Q> {
    pub(super) request: RecvState<Q>,
    /// Bytes of the request's body that may be received.
    pub(super) recv_window: RecvWindow,
    /// Bytes of the body received and not yet read by the task: they use the connection's window.
    pub(super) unreleased: usize,
    /// Bytes of the body still to be received, if the request has a content-length.
    pub(super) content_left: Option<u64>,
    /// Time at which the stream was opened.
    pub(super) opened: Duration,
    /// Bytes of the response's body that may be sent.
    pub(super) send_window: StreamSendWindow,
    /// Frames to be sent once the windows allow.
    pub(super) send_queue: VecDeque<SendItem>,
    /// Why the queue cannot be sent; none while it can.
    pub(super) blocked_by: Option<BlockedBy>,
    /// Since when the first item of the queue has been blocked by a window, however much of it was sent meanwhile.
    pub(super) blocked_since: Option<Duration>,
    /// Whether the headers of a routed response are sent.
    pub(super) has_response: bool,
    /// The task that makes the response. Dropped with the stream, which cancels it.
    pub(super) task: Option<Task>,
}

/// State of a request after its headers.
pub(super) enum RecvState<Q> {
    /// The body is buffered for the fast path.
    Buffering { fast_path: Q, head: Box<Request<()>>, body: Vec<u8>, held: HeldBytes },
    /// The body is passed to the task. Held are the bytes of the request but for its body.
    Routed(mpsc::UnboundedSender<Piece>, HeldBytes),
    /// The response is sent; the rest of the body is checked and discarded. So many bytes of it have been.
    Discarding(usize),
    /// END_STREAM has been received.
    Ended,
}

/// A queued part of a response.
pub(super) enum SendItem {
    /// The sender is dropped when all bytes are sent.
    Data(Bytes, Option<oneshot::Sender<()>>),
    /// The trailers of a fast-path response.
    FastPathTrailers,
    Trailers(HeaderMap),
    End,
}

impl<Q> Stream<Q> {
    pub(super) fn new(
        request: RecvState<Q>,
        recv_window: u32,
        send_window: StreamSendWindow,
        opened: Duration,
    ) -> Self {
        Self {
            request,
            recv_window: RecvWindow::new(recv_window),
            unreleased: 0,
            content_left: None,
            opened,
            send_window,
            send_queue: VecDeque::new(),
            blocked_by: None,
            blocked_since: None,
            has_response: false,
            task: None,
        }
    }

    pub(super) fn is_discarding(&self) -> bool {
        matches!(self.request, RecvState::Discarding(_))
    }

    pub(super) fn request_has_ended(&self) -> bool {
        matches!(self.request, RecvState::Ended)
    }

    /// Whether the client has done its part: the request is complete, and the response does not wait to be read.
    pub(super) fn waits_for_server(&self) -> bool {
        self.has_whole_request() && self.blocked_by.is_none()
    }

    /// Whether no more of the request is waited for. A response that starts before the request's end makes it a
    /// bidirectional stream: the request may stay open until the response is complete.
    pub(super) fn has_whole_request(&self) -> bool {
        self.request_has_ended() || self.has_response && !self.is_discarding()
    }
}
