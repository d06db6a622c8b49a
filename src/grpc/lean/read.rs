//! From a request's body: its one message, or the body as if nothing had been read of it.

use hyper::body::{Body, Bytes, Frame};
use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll},
};

/// Before a message: a flag for compression, and the length in four bytes.
pub(super) const PREFIX_BYTES: usize = 5;

/// What the body turned out to be.
pub(super) enum Read<E> {
    /// One message that is not compressed, with its prefix, and then nothing.
    Whole(Bytes),
    /// Anything else.
    Other(Reread<E>),
}

/// The message after its prefix.
pub(super) fn message(framed: &Bytes) -> &[u8] {
    &framed[PREFIX_BYTES..]
}

/// Reads a body whose first data frame holds all of its one message, which is how clients send a message that fits a
/// frame: no byte is copied. Stops at the first thing that is different.
pub(super) async fn one_message<B>(body: &mut B, bytes_max: usize) -> Read<B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut framed = Bytes::new();
    while !body.is_end_stream() {
        let frame = match poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            None => break,
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Read::Other(Reread { data: framed, then: Some(Err(error)) }),
        };
        match frame.into_data() {
            // The end of the stream may come in an empty frame of its own.
            Ok(data) if data.is_empty() => {}
            Ok(data) if framed.is_empty() && is_one_message(&data, bytes_max) => framed = data,
            Ok(data) => return Read::Other(Reread { data: framed, then: Some(Ok(Frame::data(data))) }),
            Err(trailers) => return Read::Other(Reread { data: framed, then: Some(Ok(trailers)) }),
        }
    }
    if framed.is_empty() { Read::Other(Reread::whole(framed)) } else { Read::Whole(framed) }
}

fn is_one_message(data: &Bytes, bytes_max: usize) -> bool {
    match data.split_first_chunk::<PREFIX_BYTES>() {
        Some(([0, length @ ..], message)) => {
            message.len() <= bytes_max && u32::from_be_bytes(*length) as usize == message.len()
        }
        _ => false,
    }
}

/// What has been read of a body, to be read once more.
pub(super) struct Reread<E> {
    data: Bytes,
    then: Option<Result<Frame<Bytes>, E>>,
}

impl<E> Reread<E> {
    /// Data alone.
    pub(super) fn whole(data: Bytes) -> Self {
        Self { data, then: None }
    }

    /// The body as it was before it was read.
    pub(super) fn before<B>(self, rest: B) -> Untouched<B, E> {
        Untouched { reread: self, rest }
    }
}

/// A body that starts with what had been read of it.
pub(super) struct Untouched<B, E> {
    reread: Reread<E>,
    rest: B,
}

impl<B> Body for Untouched<B, B::Error>
where
    B: Body<Data = Bytes, Error: Unpin> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Reread { data, then } = &mut self.reread;
        if !data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(data)))));
        }
        match then.take() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.reread.data.is_empty() && self.reread.then.is_none() && self.rest.is_end_stream()
    }
}
