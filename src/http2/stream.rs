//! One stream: a request on its way in, and its answer on its way out.

use super::{
    flow::{Inbound, Outbound},
    routed::{Piece, Task},
};
use bytes::Bytes;
use http::{HeaderMap, Request};
use std::{collections::VecDeque, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// A stream that is under way.
pub(super) struct Stream<Q> {
    pub(super) request: Incoming<Q>,
    /// How much of the request's body may come.
    pub(super) inbound: Inbound,
    /// Bytes of the body that came and were not yet read: they keep their place in the connection's window.
    pub(super) held: usize,
    /// What is to come of the body, if the request said.
    pub(super) content_left: Option<u64>,
    /// When it was opened.
    pub(super) opened: Duration,
    /// How much of the answer's body may be sent.
    pub(super) outbound: Outbound,
    /// What is to be sent, once the windows let it.
    pub(super) outgoing: VecDeque<Outgoing>,
    /// Since when nothing of it could be sent.
    pub(super) blocked_since: Option<Duration>,
    /// Who makes the answer. Dropped with the stream, which ends it.
    pub(super) task: Option<Task>,
}

/// A request whose head has come.
pub(super) enum Incoming<Q> {
    /// It may be answered at once when all of it is there.
    Collecting { quick: Q, head: Box<Request<()>>, body: Vec<u8> },
    /// Its body goes to whom it was routed to.
    Routed(mpsc::UnboundedSender<Piece>),
    /// All of it has come.
    Ended,
}

/// A part of an answer that waits for its turn.
pub(super) enum Outgoing {
    /// The sender is dropped when all of it was sent.
    Data(Bytes, Option<oneshot::Sender<()>>),
    /// What ends a quick answer.
    QuickTrailers,
    Trailers(HeaderMap),
    End,
}

impl<Q> Stream<Q> {
    pub(super) fn new(request: Incoming<Q>, inbound: u32, outbound: Outbound, opened: Duration) -> Self {
        Self {
            request,
            inbound: Inbound::new(inbound),
            held: 0,
            content_left: None,
            opened,
            outbound,
            outgoing: VecDeque::new(),
            blocked_since: None,
            task: None,
        }
    }

    pub(super) fn request_has_ended(&self) -> bool {
        matches!(self.request, Incoming::Ended)
    }
}
