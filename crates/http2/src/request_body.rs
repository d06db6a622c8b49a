//! The body of a routed request.

use super::{
    body_memory::{BodyShare, HeldBytes},
    delivery::Delivery,
    task_event::{TaskEvent, TaskSender},
};
use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use tokio::sync::mpsc;

/// A piece of a request's body.
pub(super) enum Piece {
    Data(Bytes, HeldBytes),
    /// Data that was already returned to the flow-control windows.
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

    /// Delivery of the response to this request.
    pub fn delivery(&self) -> Delivery {
        Delivery::new(self.stream, self.to.clone())
    }

    /// The connection's share of the memory for incomplete requests. What is read of this body and kept counts there.
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
                // The reader charges what it keeps.
                drop(held);
                // The connection may have ended.
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
