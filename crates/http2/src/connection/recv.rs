//! Receives requests: HEADERS, CONTINUATION and DATA.

use super::{
    Batch, Connection, Input, Phase, budget,
    stream::{RecvState, Stream},
};
use crate::{
    ConnectionError, ErrorCode, PartialHeaderBlock, RequestBody, Service, StreamRefusal,
    flow_control::StreamSendWindow,
    frame::{self, Frame},
    request_body::Piece,
    request_headers::{Decoded, RequestHeaders},
    steps,
};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc::UnboundedSender;

/// The most bytes of a body that are buffered for the fast path, unless the body follows its headers at once in one frame. A request with a
/// longer body is routed.
const BUFFERED_MAX: usize = 16 * 1024;

/// A stream is reset when this many bytes of a body were received after the response. Far less than a stream's window.
const DISCARDED_MAX: usize = 16 * 1024;

/// Memory of an incomplete request beside its headers and its body: for its stream, and for its task if it is routed.
const BUFFERING_BYTES: usize = 512;
const ROUTED_BYTES: usize = 6 * 1024;
/// Memory of a field of the headers beside its name and its value.
const FIELD_BYTES: usize = 64;

impl<S: Service> Connection<S> {
    #[inline]
    pub(super) fn on_headers(
        &mut self,
        frame: &Frame<'_>,
        input: &mut Input<'_, '_, S>,
    ) -> Result<(), ConnectionError> {
        if frame.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol("HEADERS on a stream id reserved for the server"));
        }
        let block = frame.content()?;
        if frame.depends_on_itself() {
            return Err(ConnectionError::protocol("a stream depends on itself"));
        }
        if frame.has(frame::END_HEADERS) {
            return self.on_block(frame.stream, block, frame.has(frame::END_STREAM), input);
        }
        self.partial_block = Some(PartialHeaderBlock::start(frame, block));
        Ok(())
    }

    pub(super) fn on_continuation(
        &mut self,
        frame: &Frame<'_>,
        input: &mut Input<'_, '_, S>,
    ) -> Result<(), ConnectionError> {
        self.budget.control_frame(&self.settings)?;
        // The encoded block may be somewhat longer than the list of fields.
        let bytes_max = self.settings.header_bytes_max as usize + frame::PAYLOAD_MAX;
        match PartialHeaderBlock::extend(&mut self.partial_block, frame, bytes_max)? {
            Some(block) => self.on_block(block.stream, &block.bytes, block.ends_stream, input),
            None => Ok(()),
        }
    }

    /// Handles a whole header block: of a new request, or trailers.
    #[inline]
    fn on_block(
        &mut self,
        id: u32,
        block: &[u8],
        ends_stream: bool,
        input: &mut Input<'_, '_, S>,
    ) -> Result<(), ConnectionError> {
        if id <= self.last_stream {
            self.respond_to_batch(&mut input.batch, input.service);
            return self.on_trailers(id, block, ends_stream);
        }
        let Decoded { headers, steps } = self.request_decoder.decode(block, input.service)?;
        let exchange = if ends_stream { budget::HEADERS_AND_RESPONSE } else { budget::CALL };
        self.budget.headers(exchange, steps, block.len(), &self.settings)?;
        if self.phase == Phase::GoingAway {
            return Ok(());
        }
        self.closed.on_open(self.last_stream, id);
        self.last_stream = id;
        self.events.streams += 1;
        let is_full = self.streams.len() >= self.settings.streams_max as usize;
        if let RequestHeaders::Valid { fast_path: Some(fast_path), content_length } = headers
            && !ends_stream
            && !is_full
            && let Some(body) = self.body_in(input, id, content_length)?
        {
            self.budget.request();
            self.call(id, fast_path, body, input);
            return Ok(());
        }
        // Frames written from here follow the responses to earlier calls.
        self.respond_to_batch(&mut input.batch, input.service);
        match headers {
            _ if is_full => self.refuse_stream(id, StreamRefusal::Streams, ErrorCode::RefusedStream),
            RequestHeaders::Valid { content_length, .. }
                if ends_stream && content_length.is_some_and(|length| length > 0) =>
            {
                self.refuse_stream(id, StreamRefusal::Malformed, ErrorCode::Protocol)
            }
            RequestHeaders::Valid { fast_path, content_length } => {
                self.budget.request();
                match fast_path.filter(|_| !ends_stream) {
                    Some(fast_path) => self.buffer(id, fast_path, content_length),
                    None => self.route_headers(id, content_length, ends_stream),
                }
            }
            RequestHeaders::Malformed => {
                self.refuse_stream(id, StreamRefusal::Malformed, ErrorCode::Protocol)
            }
            RequestHeaders::TooLarge => {
                self.refuse(id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ends_stream)
            }
        }
    }

    /// Takes the whole body of a request off the input, if it is the next frame.
    #[inline(always)]
    fn body_in<'b>(
        &mut self,
        input: &mut Input<'_, 'b, S>,
        id: u32,
        content_length: Option<u64>,
    ) -> Result<Option<&'b [u8]>, ConnectionError> {
        let mut after = input.rest;
        // An error in the next frame is reported when that frame is processed.
        let Ok(Some(data)) = Frame::take(&mut after) else { return Ok(None) };
        if data.kind != frame::DATA || data.stream != id || !data.has(frame::END_STREAM) {
            return Ok(None);
        }
        let body = data.content()?;
        if data.payload.len() > self.settings.stream_window as usize
            || content_length.is_some_and(|length| length != body.len() as u64)
        {
            return Ok(None);
        }
        steps::add(steps::FRAME);
        self.budget.body(data.payload.len());
        self.recv_window.receive(data.payload.len())?;
        if let Some(increment) = self.recv_window.release(data.payload.len()) {
            self.respond_to_batch(&mut input.batch, input.service);
            frame::write_window_update(0, increment, &mut self.outgoing);
        }
        input.rest = after;
        Ok(Some(body))
    }

    /// Adds a complete call, whose headers were decoded last, to the batch, or routes it.
    #[inline]
    fn call<'b>(&mut self, id: u32, fast_path: S::FastPath, body: &'b [u8], input: &mut Input<'_, 'b, S>) {
        let send_window = StreamSendWindow::default();
        if input.batch.add(input.service, (id, send_window), fast_path, body) {
            return;
        }
        self.respond_to_batch(&mut input.batch, input.service);
        match self.request_decoder.request() {
            Some(head) => self.route_whole(id, head, body, send_window),
            None => self.reset(id, ErrorCode::Protocol),
        }
    }

    /// Opens a stream for a call of the fast path with an incomplete body.
    fn buffer(
        &mut self,
        id: u32,
        fast_path: S::FastPath,
        content_length: Option<u64>,
    ) -> Result<(), ConnectionError> {
        let Some(head) = self.request_decoder.request() else {
            return self.reset_for(id, ErrorCode::Protocol);
        };
        let Ok(held) = self.share.hold(BUFFERING_BYTES + head_bytes(&head)) else {
            return self.refuse_stream(id, StreamRefusal::Memory, ErrorCode::EnhanceYourCalm);
        };
        let request = RecvState::Buffering { fast_path, head: Box::new(head), body: Vec::new(), held };
        self.open(id, request, StreamSendWindow::default()).content_left = content_length;
        Ok(())
    }

    pub(super) fn open(
        &mut self,
        id: u32,
        request: RecvState<S::FastPath>,
        send_window: StreamSendWindow,
    ) -> &mut Stream<S::FastPath> {
        let stream = Stream::new(request, self.settings.stream_window, send_window, self.now());
        self.streams.entry(id).insert(stream).into_mut()
    }

    /// Routes the request whose headers were decoded last.
    fn route_headers(
        &mut self,
        id: u32,
        content_length: Option<u64>,
        ends_stream: bool,
    ) -> Result<(), ConnectionError> {
        let Some(head) = self.request_decoder.request() else {
            return self.reset_for(id, ErrorCode::Protocol);
        };
        let bytes = if ends_stream { 0 } else { ROUTED_BYTES + head_bytes(&head) };
        let Ok(held) = self.share.hold(bytes) else {
            return self.refuse_stream(id, StreamRefusal::Memory, ErrorCode::EnhanceYourCalm);
        };
        let pieces = self.route(id, head);
        let request = if ends_stream {
            // The receiver is kept in `to_route`.
            let _ = pieces.send(Piece::End);
            RecvState::Ended
        } else {
            RecvState::Routed(pieces, held)
        };
        self.open(id, request, StreamSendWindow::default()).content_left = content_length;
        Ok(())
    }

    /// Routes a complete request that the fast path does not take. Its body no longer counts against a window.
    fn route_whole(&mut self, id: u32, head: Request<()>, body: &[u8], send_window: StreamSendWindow) {
        let pieces = self.route(id, head);
        // The request is complete, and its task takes it at once: no memory is charged.
        if let Ok(held) = self.share.hold(0) {
            // The receiver is kept in `to_route`.
            let _ = pieces.send(Piece::Collected(Bytes::copy_from_slice(body), held));
        }
        let _ = pieces.send(Piece::End);
        self.open(id, RecvState::Ended, send_window);
    }

    fn route(&mut self, id: u32, head: Request<()>) -> UnboundedSender<Piece> {
        let (pieces, body) = RequestBody::new(id, &self.tasks, &self.share);
        self.to_route.push_back((id, head.map(|()| body)));
        pieces
    }

    /// Responds with only a status.
    fn refuse(&mut self, id: u32, status: StatusCode, ends_stream: bool) -> Result<(), ConnectionError> {
        self.events.refused(StreamRefusal::HeaderBytes);
        self.response_encoder.write_head(id, status.as_u16(), &HeaderMap::new(), true, &mut self.outgoing);
        if ends_stream {
            return self.budget.reset(&self.settings);
        }
        self.reset_for(id, ErrorCode::No)
    }

    fn on_trailers(&mut self, id: u32, block: &[u8], ends_stream: bool) -> Result<(), ConnectionError> {
        let trailers = self.request_decoder.trailers(block)?;
        let steps = self.request_decoder.decoded_steps();
        self.budget.headers(budget::TRAILERS, steps, block.len(), &self.settings)?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            return self.on_late_headers(id);
        };
        let is_short = stream.content_left.is_some_and(|left| left > 0);
        let Some(trailers) = trailers.filter(|_| ends_stream && !is_short) else {
            return self.refuse_stream(id, StreamRefusal::Malformed, ErrorCode::Protocol);
        };
        match stream.request {
            RecvState::Discarding(_) => {
                self.close(id);
                return Ok(());
            }
            RecvState::Buffering { .. } => self.route_buffered(id),
            RecvState::Routed(..) | RecvState::Ended => {}
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && let RecvState::Routed(pieces, _) = std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            let _ = pieces.send(Piece::Trailers(trailers));
        }
        Ok(())
    }

    /// Handles HEADERS on a stream after the end of its request, or on a stream that was never opened.
    fn on_late_headers(&mut self, id: u32) -> Result<(), ConnectionError> {
        if self.closed.was_reset(id) {
            return self.budget.control_frame(&self.settings);
        }
        if self.closed.was_skipped(id) {
            return Err(ConnectionError::protocol("a new stream id is below an earlier one"));
        }
        Err(ConnectionError::new(ErrorCode::StreamClosed, "HEADERS on a stream that has ended"))
    }

    pub(super) fn on_data(&mut self, frame: &Frame<'_>, service: &S) -> Result<(), ConnectionError> {
        let (id, ends_stream) = (frame.stream, frame.has(frame::END_STREAM));
        let is_beyond = id > self.last_stream;
        if id.is_multiple_of(2) || is_beyond && self.phase != Phase::GoingAway {
            return Err(ConnectionError::protocol("DATA on an idle stream"));
        }
        let (content, whole) = (frame.content()?, frame.payload.len());
        self.recv_window.receive(whole)?;
        self.budget.body(whole);
        if content.is_empty() && !ends_stream {
            self.budget.control_frame(&self.settings)?;
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            self.release_window(whole);
            self.budget.control_frame(&self.settings)?;
            // The client sent this before it received the reset, or the GOAWAY.
            if is_beyond || self.closed.was_reset(id) {
                return Ok(());
            }
            return self.reset_for(id, ErrorCode::StreamClosed);
        };
        let fits = stream.recv_window.receive(whole);
        let left = stream.content_left.map(|left| left.checked_sub(content.len() as u64));
        self.release_window(whole - content.len());
        if fits.is_err() {
            self.release_window(content.len());
            return self.reset_for(id, ErrorCode::FlowControl);
        }
        match left {
            None => {}
            Some(Some(left)) if left == 0 || !ends_stream => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.content_left = Some(left);
                }
            }
            Some(_) => {
                self.release_window(content.len());
                return self.refuse_stream(id, StreamRefusal::Malformed, ErrorCode::Protocol);
            }
        }
        self.take_content(id, content, whole, ends_stream, service)
    }

    /// Hands the content of a DATA frame to the request.
    fn take_content(
        &mut self,
        id: u32,
        content: &[u8],
        whole: usize,
        ends_stream: bool,
        service: &S,
    ) -> Result<(), ConnectionError> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        match &mut stream.request {
            RecvState::Buffering { body, held, .. } => {
                let before = body.capacity();
                body.extend_from_slice(content);
                if held.add(body.capacity() - before).is_err() {
                    self.release_window(content.len());
                    return self.refuse_stream(id, StreamRefusal::Memory, ErrorCode::EnhanceYourCalm);
                }
                let is_too_long = body.len() > BUFFERED_MAX;
                // The buffer has its own bound, so that the windows are returned at once.
                let increment = stream.recv_window.release(whole).filter(|_| !ends_stream);
                self.release_window(content.len());
                self.write_stream_window(id, increment);
                if is_too_long {
                    self.route_buffered(id);
                    self.end_routed(id, ends_stream);
                } else if ends_stream {
                    self.finish_buffered(id, service);
                }
            }
            RecvState::Routed(pieces, _) => {
                if !content.is_empty() {
                    let Ok(held) = self.share.hold(content.len()) else {
                        self.release_window(content.len());
                        return self.refuse_stream(id, StreamRefusal::Memory, ErrorCode::EnhanceYourCalm);
                    };
                    stream.unreleased += content.len();
                    // If the receiver is dropped, the window is returned with the stream.
                    let _ = pieces.send(Piece::Data(Bytes::copy_from_slice(content), held));
                }
                let increment = stream.recv_window.release(whole - content.len()).filter(|_| !ends_stream);
                self.write_stream_window(id, increment);
                self.end_routed(id, ends_stream);
            }
            RecvState::Discarding(discarded) => {
                *discarded += content.len();
                let is_long = *discarded > DISCARDED_MAX;
                self.release_window(content.len());
                if ends_stream {
                    self.close(id);
                } else if is_long {
                    // The rest of the request is not needed (RFC 9113, section 8.1).
                    self.reset(id, ErrorCode::No);
                }
            }
            RecvState::Ended => {}
        }
        Ok(())
    }

    pub(super) fn write_stream_window(&mut self, id: u32, increment: Option<u32>) {
        if let Some(increment) = increment {
            frame::write_window_update(id, increment, &mut self.outgoing);
        }
    }

    fn end_routed(&mut self, id: u32, ends_stream: bool) {
        if ends_stream
            && let Some(stream) = self.streams.get_mut(&id)
            && let RecvState::Routed(pieces, held) = std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            drop(held);
            let _ = pieces.send(Piece::End);
        }
    }

    /// Routes a request that was buffered for the fast path, before its body is complete.
    fn route_buffered(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let RecvState::Buffering { head, body, held, .. } =
            std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            let Ok(of_request) = self.share.hold(ROUTED_BYTES + head_bytes(&head)) else {
                self.events.refused(StreamRefusal::Memory);
                return self.reset(id, ErrorCode::EnhanceYourCalm);
            };
            let pieces = self.route(id, *head);
            let _ = pieces.send(Piece::Collected(body.into(), held));
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.request = RecvState::Routed(pieces, of_request);
            }
        }
    }

    /// Responds to a buffered call with a complete body.
    fn finish_buffered(&mut self, id: u32, service: &S) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.time.request_ended();
        let RecvState::Buffering { fast_path, head, body, .. } = stream.request else { return };
        let mut batch = Batch::new();
        if batch.add(service, (id, stream.send_window), fast_path, &body) {
            self.respond_to_batch(&mut batch, service);
        } else {
            self.route_whole(id, *head, &body, stream.send_window);
        }
    }
}

/// Memory of a request's headers.
fn head_bytes(head: &Request<()>) -> usize {
    let of_fields =
        head.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    let of_path = head.uri().path_and_query().map_or(0, |path| path.as_str().len());
    of_path + of_fields.sum::<usize>()
}
