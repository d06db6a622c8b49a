//! The body of an answer, whichever way it was made.

use http::{HeaderMap, HeaderValue};
use hyper::body::{Body, Bytes, Frame};
use std::{
    pin::Pin,
    sync::LazyLock,
    task::{Context, Poll},
};
use tonic::Status;

/// What ends every answer of the lean way: status OK.
static TRAILERS: LazyLock<HeaderMap> =
    LazyLock::new(|| HeaderMap::from_iter([(Status::GRPC_STATUS, HeaderValue::from_static("0"))]));

/// The body of an answer.
pub struct AnswerBody(Kind);

enum Kind {
    /// A framed message that is still to be sent, then the trailers.
    Message(Bytes),
    /// The trailers are still to be sent.
    Trailers,
    Sent,
    Routed(tonic::body::Body),
}

impl AnswerBody {
    /// A framed message, then status OK.
    pub(super) fn lean(framed: Bytes) -> Self {
        Self(Kind::Message(framed))
    }

    /// What tonic answers.
    pub(super) fn routed(body: tonic::body::Body) -> Self {
        Self(Kind::Routed(body))
    }
}

/// Its length is not told beforehand, as tonic's is not: hyper would add a header for it.
impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let (frame, rest) = match &mut self.0 {
            Kind::Message(framed) => (Frame::data(std::mem::take(framed)), Kind::Trailers),
            Kind::Trailers => (Frame::trailers(TRAILERS.clone()), Kind::Sent),
            Kind::Sent => return Poll::Ready(None),
            Kind::Routed(body) => return Pin::new(body).poll_frame(context),
        };
        self.0 = rest;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Message(_) | Kind::Trailers => false,
            Kind::Sent => true,
            Kind::Routed(body) => body.is_end_stream(),
        }
    }
}
