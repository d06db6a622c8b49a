//! The request body of a unary call: exactly one message.

use bytes::Bytes;
use http_body::{Body, Frame};
use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tidegate_http2::grpc::PREFIX_BYTES;
use tonic::Status;

/// A body that fails with UNIMPLEMENTED, the status for a wrong number of messages, when bytes follow the first message.
pub(in crate::api) struct OneMessage<B> {
    inner: B,
    progress: Progress,
}

/// Position in the stream of bytes.
#[derive(Clone, Copy)]
enum Progress {
    /// In the prefix of the message: its bytes so far.
    Prefix { bytes: [u8; PREFIX_BYTES], read: usize },
    /// In the message: bytes still to be received. Zero means that it is complete.
    Message { left: u64 },
}

impl<B> OneMessage<B> {
    pub(in crate::api) fn new(inner: B) -> Self {
        Self { inner, progress: Progress::Prefix { bytes: [0; PREFIX_BYTES], read: 0 } }
    }
}

impl Progress {
    /// Moves on by this data. False if it has bytes that follow the message.
    fn advance(&mut self, mut data: &[u8]) -> bool {
        if let Self::Prefix { bytes, read } = self {
            let taken = data.len().min(PREFIX_BYTES - *read);
            bytes[*read..*read + taken].copy_from_slice(&data[..taken]);
            *read += taken;
            data = &data[taken..];
            if *read < PREFIX_BYTES {
                return true;
            }
            let [_, length @ ..] = *bytes;
            *self = Self::Message { left: u32::from_be_bytes(length).into() };
        }
        let Self::Message { left } = self else { return true };
        match left.checked_sub(data.len() as u64) {
            Some(rest) => {
                *left = rest;
                true
            }
            None => false,
        }
    }
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> Body for OneMessage<B> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            None => return Poll::Ready(None),
        };
        if frame.data_ref().is_some_and(|data| !self.progress.advance(data)) {
            let status = Status::unimplemented("the method takes one message; more bytes follow the first");
            return Poll::Ready(Some(Err(status.into())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_after_the_first_message_are_found_however_the_stream_is_cut() {
        for length in [0, 1, 3] {
            let one = [&[0, 0, 0, 0, length][..], &vec![7; length.into()]].concat();
            let more = [&one[..], &[0]].concat();
            for cut in 0..=one.len() {
                let passes = |bytes: &[u8]| {
                    let mut body = OneMessage::new(());
                    body.progress.advance(&bytes[..cut]) && body.progress.advance(&bytes[cut..])
                };
                assert!(passes(&one), "{length}, cut at {cut}");
                assert!(!passes(&more), "{length} and one more, cut at {cut}");
            }
        }
    }
}
