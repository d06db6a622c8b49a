//! One stream: a request on its way in, and its answer on its way out.

use super::{
    flow_control::{RecvWindow, SendWindow},
    routed::{Piece, Task},
};
use bytes::Bytes;
use http::{HeaderMap, Request};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// A stream that is under way.
pub(super) struct Stream<Q> {
    pub(super) request: RecvState<Q>,
    /// How much of the request's body may come.
    pub(super) recv_window: RecvWindow,
    /// Bytes of the body that came and were not yet read: they keep their place in the connection's window.
    pub(super) unreleased: usize,
    /// What is to come of the body, if the request said.
    pub(super) content_left: Option<u64>,
    /// When it was opened.
    pub(super) opened: Duration,
    /// How much of the answer's body may be sent.
    pub(super) send_window: SendWindow,
    /// What is to be sent, once the windows let it.
    pub(super) send_queue: VecDeque<SendItem>,
    /// Since when the first piece of it waits for a window, however much of that piece was sent meanwhile.
    pub(super) blocked_since: Option<Duration>,
    /// Whether the head of a routed response was sent.
    pub(super) has_response: bool,
    /// Who makes the answer. Dropped with the stream, which ends it.
    pub(super) task: Option<Task>,
}

/// A request whose head has come.
pub(super) enum RecvState<Q> {
    /// It may be answered at once when all of it is there.
    Buffering { fast_path: Q, head: Box<Request<()>>, body: Vec<u8> },
    /// Its body goes to whom it was routed to.
    Routed(mpsc::UnboundedSender<Piece>),
    /// All of it has come.
    Ended,
}

/// A part of an answer that waits for its turn.
pub(super) enum SendItem {
    /// The sender is dropped when all of it was sent.
    Data(Bytes, Option<oneshot::Sender<()>>),
    /// What ends a fast-path response.
    FastPathTrailers,
    Trailers(HeaderMap),
    End,
}

impl<Q> Stream<Q> {
    pub(super) fn new(
        request: RecvState<Q>,
        recv_window: u32,
        send_window: SendWindow,
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
            blocked_since: None,
            has_response: false,
            task: None,
        }
    }

    pub(super) fn request_has_ended(&self) -> bool {
        matches!(self.request, RecvState::Ended)
    }

    /// Whether no more of the request is waited for. A response that starts before the request's end makes it a
    /// bidirectional stream, whose request may stay open.
    pub(super) fn has_whole_request(&self) -> bool {
        self.request_has_ended() || self.has_response
    }
}
