//! A request body that passes on whole messages only.
//!
//! The decoder behind it reserves the length that a message's prefix claims. A claim costs five bytes, so memory would be
//! bounded by claims and not by bytes received. Here a message takes as much memory as was received of it.

use super::PREFIX_BYTES;
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

/// A body with data frames that end where messages end.
///
/// A message longer than the bound is passed on as it is received: the decoder refuses it by its prefix.
pub(in crate::api) struct WholeMessages<B> {
    inner: B,
    message_bytes_max: usize,
    /// The start of a message that is not whole.
    partial: BytesMut,
    /// A frame to pass on after the cut-off message.
    next: Option<Frame<Bytes>>,
}

impl<B> WholeMessages<B> {
    pub(in crate::api) fn new(inner: B, message_bytes_max: usize) -> Self {
        Self { inner, message_bytes_max, partial: BytesMut::new(), next: None }
    }

    /// Adds data; returns the messages that are whole now.
    fn push(&mut self, data: Bytes) -> Option<Bytes> {
        if self.partial.is_empty() && self.whole(&data) == data.len() {
            // No copy in the common case of one whole message.
            return Some(data);
        }
        self.partial.extend_from_slice(&data);
        let whole = self.whole(&self.partial);
        (whole > 0).then(|| self.partial.split_to(whole).freeze())
    }

    /// Number of bytes that are passed on: up to the end of the last whole message, or all if one is too long.
    fn whole(&self, bytes: &[u8]) -> usize {
        let mut end = 0;
        while let Some(([_, length @ ..], _)) = bytes[end..].split_first_chunk::<PREFIX_BYTES>() {
            let length = u32::from_be_bytes(*length) as usize;
            if length > self.message_bytes_max {
                return bytes.len();
            }
            match end + PREFIX_BYTES + length {
                next if next <= bytes.len() => end = next,
                _ => break,
            }
        }
        end
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for WholeMessages<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(next) = this.next.take() {
                return Poll::Ready(Some(Ok(next)));
            }
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => Some(frame),
                None => None,
                error => return Poll::Ready(error),
            };
            let after = match frame.map(Frame::into_data) {
                Some(Ok(data)) => match this.push(data) {
                    Some(messages) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                    None => continue,
                },
                Some(Err(trailers)) => Some(trailers),
                None => None,
            };
            // The decoder reports a message that the end of the body cuts off.
            if this.partial.is_empty() {
                return Poll::Ready(after.map(Ok));
            }
            this.next = after;
            return Poll::Ready(Some(Ok(Frame::data(this.partial.split().freeze()))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.partial.is_empty() && self.next.is_none() && self.inner.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::VecDeque, convert::Infallible};

    struct Pieces(VecDeque<Bytes>);

    impl Body for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn message(length: u8) -> Vec<u8> {
        [&[0, 0, 0, 0, length][..], &vec![length; length.into()]].concat()
    }

    /// The data frames passed on for these, where messages may have ten bytes.
    fn passed_on(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        let mut body = WholeMessages::new(Pieces(pieces), 10);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
            let Ok(frame) = frame;
            found.push(frame.into_data().expect("data").to_vec());
        }
        assert!(matches!(Pin::new(&mut body).poll_frame(&mut context), Poll::Ready(None)));
        found
    }

    #[test]
    fn messages_are_passed_on_whole_however_they_are_cut() {
        let stream = [message(10), message(0), message(3)].concat();
        assert_eq!(passed_on(&[&stream]), std::slice::from_ref(&stream), "not copied, not cut");
        for cut in 1..stream.len() {
            let found = passed_on(&[&stream[..cut], &stream[cut..]]);
            assert_eq!(found.concat(), stream);
            assert!(
                found.iter().all(|frame| [15, 20, 28, 5, 13, 8].contains(&frame.len())),
                "{cut}: {found:?}"
            );
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(passed_on(&bytes), [message(10), message(0), message(3)]);
    }

    #[test]
    fn a_message_that_claims_too_much_is_passed_on_by_its_prefix() {
        assert_eq!(passed_on(&[&[0, 0, 0], &[0, 11]]), [[0, 0, 0, 0, 11]]);
    }

    #[test]
    fn a_message_that_is_cut_off_is_passed_on_at_the_end() {
        assert_eq!(passed_on(&[&message(9)[..7], &[]]), [&message(9)[..7]]);
    }
}
