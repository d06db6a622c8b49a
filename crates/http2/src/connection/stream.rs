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
    /// Bytes of the body that have not been received, if the request has a content-length.
    pub(super) content_left: Option<u64>,
    /// Time at which the stream was opened.
    pub(super) opened: Duration,
    /// Bytes of the response's body that may be sent.
    pub(super) send_window: StreamSendWindow,
    /// Frames to be sent once the windows allow.
    pub(super) send_queue: VecDeque<SendItem>,
    /// Why the queue cannot be sent; none while it can.
    pub(super) blocked_by: Option<BlockedBy>,
    /// Time since which a window blocks the first item of the queue, even if part of it was sent.
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
    /// The body is passed to the task. The held bytes are those of the request without its body.
    Routed(mpsc::UnboundedSender<Piece>, HeldBytes),
    /// The response is sent. The rest of the body is checked and discarded; the number is the bytes discarded so far.
    Discarding(usize),
    /// END_STREAM has been received.
    Ended,
}

/// A queued part of a response.
pub(super) enum SendItem {
    /// A piece of the body. The sender is dropped when all its bytes are sent.
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

    /// Whether the client has done its part: the request is complete, and the client does not block the response.
    pub(super) fn waits_for_server(&self) -> bool {
        self.has_whole_request() && self.blocked_by.is_none()
    }

    /// Whether nothing more of the request is waited for. A stream whose response starts before the request ends is bidirectional: its
    /// request may stay open until the response is complete.
    pub(super) fn has_whole_request(&self) -> bool {
        self.request_has_ended() || self.has_response && !self.is_discarding()
    }
}
