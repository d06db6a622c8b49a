//! A request body that passes on whole messages only, as many as its call may have.
//!
//! The decoder behind it reserves the length that a message's prefix claims. A claim costs five bytes, so memory would be
//! bounded by claims and not by bytes received. Here a message takes as much memory as was received of it.

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};
use tidegate_http2::{BodyShare, HeldBytes, NoRoom, grpc::PREFIX_BYTES};
use tonic::Status;

/// The messages that the body of a call may have.
#[derive(Clone, Copy)]
pub(in crate::api) enum OfCall {
    /// One, for a unary call. The call fails with UNIMPLEMENTED, the status for a wrong number of messages, when bytes follow it.
    One,
    /// Any number, each of which passes this check.
    Stream(fn(&[u8]) -> Result<(), Status>),
}

/// A body with data frames that end where messages end.
///
/// A message longer than the bound is passed on as it is received: the decoder refuses it by its prefix.
pub(in crate::api) struct WholeMessages<B> {
    inner: B,
    messages: OfCall,
    message_bytes_max: usize,
    /// The start of a message that is not whole.
    partial: BytesMut,
    /// Its part of the connection's memory for incomplete requests.
    share: BodyShare,
    held: Option<HeldBytes>,
    /// Whether the only message was passed on.
    is_over: bool,
    /// A frame to pass on after the cut-off message.
    next: Option<Frame<Bytes>>,
}

impl<B> WholeMessages<B> {
    pub(in crate::api) fn new(
        inner: B,
        messages: OfCall,
        message_bytes_max: usize,
        share: BodyShare,
    ) -> Self {
        let (partial, held, is_over, next) = (BytesMut::new(), None, false, None);
        Self { inner, messages, message_bytes_max, partial, share, held, is_over, next }
    }

    /// Adds data; returns the messages that are whole now, or why the call fails.
    fn push(&mut self, data: Bytes) -> Result<Option<Bytes>, Status> {
        let is_more = self.is_over && !data.is_empty();
        // No copy in the common case of one whole message.
        let messages = if self.partial.is_empty() && self.whole(&data) == data.len() {
            data
        } else {
            self.partial.extend_from_slice(&data);
            self.partial.split_to(self.whole(&self.partial)).freeze()
        };
        match self.messages {
            OfCall::One => self.is_over |= !messages.is_empty(),
            OfCall::Stream(check) => each_message(&messages).try_for_each(check)?,
        }
        if is_more || self.is_over && !self.partial.is_empty() {
            return Err(Status::unimplemented("the method takes one message; more bytes follow the first"));
        }
        let bytes = self.partial.capacity();
        match &mut self.held {
            // Its memory is that of the messages, which are decoded at once.
            _ if self.partial.is_empty() => (self.partial, self.held) = (BytesMut::new(), None),
            Some(held) => held.set(bytes).map_err(no_memory)?,
            None => self.held = Some(self.share.hold(bytes).map_err(no_memory)?),
        }
        Ok((!messages.is_empty()).then_some(messages))
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
            if matches!(self.messages, OfCall::One) {
                break;
            }
        }
        end
    }
}

/// The messages in a piece of a body.
fn each_message(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let ([_, length @ ..], rest) = data.split_first_chunk::<PREFIX_BYTES>()?;
        let length = u32::from_be_bytes(*length) as usize;
        let (message, rest) = rest.split_at(length.min(rest.len()));
        data = rest;
        Some(message)
    })
}

fn no_memory(no_room: NoRoom) -> Status {
    Status::resource_exhausted(no_room.to_string())
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> Body for WholeMessages<B> {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            if let Some(next) = this.next.take() {
                return Poll::Ready(Some(Ok(next)));
            }
            let frame = match ready!(Pin::new(&mut this.inner).poll_frame(context)) {
                Some(Ok(frame)) => Some(frame),
                None => None,
                Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            };
            let after = match frame.map(Frame::into_data) {
                Some(Ok(data)) => match this.push(data) {
                    Ok(Some(messages)) => return Poll::Ready(Some(Ok(Frame::data(messages)))),
                    Ok(None) => continue,
                    Err(status) => {
                        (this.partial, this.held) = (BytesMut::new(), None);
                        return Poll::Ready(Some(Err(status.into())));
                    }
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
    use tidegate_http2::BodyMemory;
    use tonic::Code;

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

    fn body(messages: OfCall, pieces: &[&[u8]]) -> WholeMessages<Pieces> {
        let pieces = pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect();
        WholeMessages::new(Pieces(pieces), messages, 10, BodyShare::unlimited())
    }

    /// The data frames passed on for these, where messages may have ten bytes.
    fn passed_on(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut body = body(OfCall::Stream(|_| Ok(())), pieces);
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut found = Vec::new();
        while let Poll::Ready(Some(frame)) = Pin::new(&mut body).poll_frame(&mut context) {
            let frame = frame.expect("these bodies do not fail");
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

    /// 900 connections, each with unfinished messages, took 965 MiB.
    #[test]
    fn a_message_for_which_there_is_no_memory_is_refused_and_its_memory_returns() {
        let memory = BodyMemory::new(9_000);
        let mut body = WholeMessages::new(Pieces(VecDeque::new()), OfCall::One, 100_000, memory.share());
        let start = [&[0, 0, 0, 100, 0][..], &[7; 700]].concat();
        assert!(matches!(body.push(start.into()), Ok(None)));
        assert!(memory.used() >= 705);
        let refused = body.push(vec![7; 3_000].into()).map_err(|status| status.code());
        assert_eq!(refused, Err(Code::ResourceExhausted));
        drop(body);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn bytes_after_the_only_message_are_found_however_the_stream_is_cut() {
        for length in [0, 1, 3] {
            let one = message(length);
            let more = [&one[..], &[0]].concat();
            let passes = |bytes: &[u8], cut| {
                let mut body = body(OfCall::One, &[]);
                let pushed =
                    [&bytes[..cut], &bytes[cut..]].map(|piece| body.push(Bytes::copy_from_slice(piece)));
                pushed.into_iter().all(|pushed| pushed.is_ok())
            };
            for cut in 0..=one.len() {
                assert!(passes(&one, cut), "{length}, cut at {cut}");
                assert!(!passes(&more, cut), "{length} and one more, cut at {cut}");
            }
        }
    }

    #[test]
    fn each_message_of_a_stream_is_checked() {
        let check = |message: &[u8]| match message {
            [9] => Err(Status::resource_exhausted("a nine")),
            _ => Ok(()),
        };
        let mut body = body(OfCall::Stream(check), &[]);
        let [good, bad] = [[2, 2], [2, 9]]
            .map(|[first, second]| Bytes::from(vec![0, 0, 0, 0, 1, first, 0, 0, 0, 0, 1, second]));
        assert!(body.push(good).is_ok());
        assert_eq!(body.push(bad).map_err(|status| status.code()), Err(Code::ResourceExhausted));
    }
}
