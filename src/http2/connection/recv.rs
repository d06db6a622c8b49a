//! Requests as they come: HEADERS, CONTINUATION, DATA.

use super::{Batch, Connection, Input, Phase};
use crate::http2::{
    ConnectionError, ErrorCode, PartialHeaderBlock, RequestBody, Service,
    flow_control::SendWindow,
    frame::{self, Frame},
    request_headers::{Decoded, RequestHeaders},
    routed::Piece,
    stream::{RecvState, Stream},
};
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use tokio::sync::mpsc::UnboundedSender;

/// The longest body of a call that is answered at once, if it does not follow its head right away in one frame. A longer
/// one is routed.
const COLLECTED_MAX: usize = 16 * 1024;

impl<S: Service> Connection<S> {
    #[inline]
    pub(super) fn on_headers(
        &mut self,
        frame: &Frame<'_>,
        input: &mut Input<'_, '_, S>,
    ) -> Result<(), ConnectionError> {
        if frame.stream.is_multiple_of(2) {
            return Err(ConnectionError::protocol("a request has a stream of the server's"));
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
        // What it says may be longer, but not what it takes to say it.
        let bytes_max = self.settings.header_bytes_max as usize + frame::PAYLOAD_MAX;
        match PartialHeaderBlock::extend(&mut self.partial_block, frame, bytes_max)? {
            Some(block) => self.on_block(block.stream, &block.bytes, block.ends_stream, input),
            None => Ok(()),
        }
    }

    /// A whole header block: of a new request, or the trailers of one that is under way.
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
        let Decoded { headers: head, .. } = self.heads.decode(block, input.service)?;
        if self.phase == Phase::GoingAway {
            return Ok(());
        }
        self.last_stream = id;
        self.budget.request();
        let is_full = self.streams.len() >= self.settings.streams_max as usize;
        if let RequestHeaders::Valid { fast_path: Some(fast_path), content_length } = head
            && !ends_stream
            && !is_full
            && let Some(body) = self.body_in(input, id, content_length)?
        {
            self.call(id, fast_path, body, input);
            return Ok(());
        }
        // Whatever else is said, is said after the answers to the calls before it.
        self.respond_to_batch(&mut input.batch, input.service);
        match head {
            _ if is_full => self.reset(id, ErrorCode::RefusedStream),
            RequestHeaders::Valid { fast_path: Some(fast_path), content_length } if !ends_stream => {
                self.collect(id, fast_path, content_length);
            }
            RequestHeaders::Valid { content_length, .. }
                if ends_stream && content_length.is_some_and(|length| length > 0) =>
            {
                self.reset(id, ErrorCode::Protocol);
            }
            RequestHeaders::Valid { content_length, .. } => self.route_head(id, content_length, ends_stream),
            RequestHeaders::Malformed => self.reset(id, ErrorCode::Protocol),
            RequestHeaders::TooLarge => {
                self.refuse(id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ends_stream)
            }
        }
        Ok(())
    }

    /// The whole body of a request, if it is what follows its head. It is taken off what is left.
    #[inline]
    fn body_in<'b>(
        &mut self,
        input: &mut Input<'_, 'b, S>,
        id: u32,
        content_length: Option<u64>,
    ) -> Result<Option<&'b [u8]>, ConnectionError> {
        let mut after = input.rest;
        // If what follows is broken, that is seen when its turn comes.
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
        self.recv_window.receive(data.payload.len())?;
        if let Some(raise) = self.recv_window.release(data.payload.len()) {
            self.respond_to_batch(&mut input.batch, input.service);
            frame::write_window_update(0, raise, &mut self.outgoing);
        }
        input.rest = after;
        Ok(Some(body))
    }

    /// All of a call has come, and its head was the last that was read: it is answered with others, or routed.
    #[inline]
    fn call<'b>(&mut self, id: u32, fast_path: S::FastPath, body: &'b [u8], input: &mut Input<'_, 'b, S>) {
        let send_window = SendWindow::new(self.stream_outbound);
        if input.batch.add(input.service, (id, send_window), fast_path, body) {
            return;
        }
        self.respond_to_batch(&mut input.batch, input.service);
        match self.heads.request() {
            Some(head) => self.route_whole(id, head, body, send_window),
            None => self.reset(id, ErrorCode::Protocol),
        }
    }

    /// The head of a call has come, but not yet all of its body.
    fn collect(&mut self, id: u32, fast_path: S::FastPath, content_length: Option<u64>) {
        match self.heads.request() {
            Some(head) => {
                let request = RecvState::Buffering { fast_path, head: Box::new(head), body: Vec::new() };
                let send_window = SendWindow::new(self.stream_outbound);
                self.open(id, request, send_window).content_left = content_length;
            }
            None => self.reset(id, ErrorCode::Protocol),
        }
    }

    pub(super) fn open(
        &mut self,
        id: u32,
        request: RecvState<S::FastPath>,
        send_window: SendWindow,
    ) -> &mut Stream<S::FastPath> {
        let stream = Stream::new(request, self.settings.stream_window, send_window, self.now());
        self.streams.entry(id).insert(stream).into_mut()
    }

    /// Routes a request whose head was the last that was read.
    fn route_head(&mut self, id: u32, content_length: Option<u64>, ends_stream: bool) {
        let Some(head) = self.heads.request() else { return self.reset(id, ErrorCode::Protocol) };
        let pieces = self.route(id, head);
        let request = if ends_stream {
            // Its receiver is kept in `to_route`.
            let _ = pieces.send(Piece::End);
            RecvState::Ended
        } else {
            RecvState::Routed(pieces)
        };
        let send_window = SendWindow::new(self.stream_outbound);
        self.open(id, request, send_window).content_left = content_length;
    }

    /// Routes a request that was to be answered at once, and that has come whole. Its body no longer holds a window.
    fn route_whole(&mut self, id: u32, head: Request<()>, body: &[u8], send_window: SendWindow) {
        let pieces = self.route(id, head);
        // Its receiver is kept in `to_route`.
        let _ = pieces.send(Piece::Collected(Bytes::copy_from_slice(body)));
        let _ = pieces.send(Piece::End);
        self.open(id, RecvState::Ended, send_window);
    }

    fn route(&mut self, id: u32, head: Request<()>) -> UnboundedSender<Piece> {
        let (pieces, body) = RequestBody::new(id, &self.tasks);
        self.to_route.push_back((id, head.map(|()| body)));
        pieces
    }

    /// Responses with nothing but a status.
    fn refuse(&mut self, id: u32, status: StatusCode, ends_stream: bool) {
        self.answers.write_head(id, status.as_u16(), &HeaderMap::new(), true, &mut self.outgoing);
        if !ends_stream {
            self.reset(id, ErrorCode::No);
        }
    }

    fn on_trailers(&mut self, id: u32, block: &[u8], ends_stream: bool) -> Result<(), ConnectionError> {
        let trailers = self.heads.trailers(block)?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            return Err(ConnectionError::new(
                ErrorCode::StreamClosed,
                "HEADERS come on a stream that has ended",
            ));
        };
        let is_short = stream.content_left.is_some_and(|left| left > 0);
        let Some(trailers) = trailers.filter(|_| ends_stream && !is_short) else {
            self.reset(id, ErrorCode::Protocol);
            return Ok(());
        };
        if let RecvState::Buffering { .. } = stream.request {
            self.route_collected(id);
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && let RecvState::Routed(pieces) = std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            let _ = pieces.send(Piece::Trailers(trailers));
        }
        Ok(())
    }

    pub(super) fn on_data(&mut self, frame: &Frame<'_>, service: &S) -> Result<(), ConnectionError> {
        let (id, ends_stream) = (frame.stream, frame.has(frame::END_STREAM));
        if id.is_multiple_of(2) || id > self.last_stream && self.phase != Phase::GoingAway {
            return Err(ConnectionError::protocol("DATA come on a stream that was never opened"));
        }
        let (content, whole) = (frame.content()?, frame.payload.len());
        self.recv_window.receive(whole)?;
        if content.is_empty() && !ends_stream {
            self.budget.control_frame(&self.settings)?;
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            self.release_window(whole);
            self.budget.control_frame(&self.settings)?;
            self.reset(id, ErrorCode::StreamClosed);
            return Ok(());
        };
        let fits = stream.recv_window.receive(whole);
        let left = stream.content_left.map(|left| left.checked_sub(content.len() as u64));
        self.release_window(whole - content.len());
        if fits.is_err() {
            self.reset(id, ErrorCode::FlowControl);
            return Ok(());
        }
        match left {
            None => {}
            Some(Some(left)) if left == 0 || !ends_stream => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.content_left = Some(left);
                }
            }
            Some(_) => {
                self.reset(id, ErrorCode::Protocol);
                return Ok(());
            }
        }
        self.take_content(id, content, whole, ends_stream, service);
        Ok(())
    }

    /// What came of a body goes to where the request is.
    fn take_content(&mut self, id: u32, content: &[u8], whole: usize, ends_stream: bool, service: &S) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.request {
            RecvState::Buffering { body, .. } => {
                body.extend_from_slice(content);
                let is_too_long = body.len() > COLLECTED_MAX;
                // It is bounded by that, and so need not wait for who reads it.
                let raise = stream.recv_window.release(whole).filter(|_| !ends_stream);
                self.release_window(content.len());
                self.write_stream_window(id, raise);
                if is_too_long {
                    self.route_collected(id);
                    self.end_routed(id, ends_stream);
                } else if ends_stream {
                    self.finish_collected(id, service);
                }
            }
            RecvState::Routed(pieces) => {
                if !content.is_empty() {
                    stream.unreleased += content.len();
                    // Nobody may be input any more: what is held is given back with the stream.
                    let _ = pieces.send(Piece::Data(Bytes::copy_from_slice(content)));
                }
                let raise = stream.recv_window.release(whole - content.len()).filter(|_| !ends_stream);
                self.write_stream_window(id, raise);
                self.end_routed(id, ends_stream);
            }
            RecvState::Ended => {}
        }
    }

    pub(super) fn write_stream_window(&mut self, id: u32, raise: Option<u32>) {
        if let Some(raise) = raise {
            frame::write_window_update(id, raise, &mut self.outgoing);
        }
    }

    fn end_routed(&mut self, id: u32, ends_stream: bool) {
        if ends_stream
            && let Some(stream) = self.streams.get_mut(&id)
            && let RecvState::Routed(pieces) = std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            let _ = pieces.send(Piece::End);
        }
    }

    /// A request that was to be answered at once is not, before all of it has come: what has is routed.
    fn route_collected(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let RecvState::Buffering { head, body, .. } =
            std::mem::replace(&mut stream.request, RecvState::Ended)
        {
            let pieces = self.route(id, *head);
            let _ = pieces.send(Piece::Collected(body.into()));
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.request = RecvState::Routed(pieces);
            }
        }
    }

    /// All of a call has come, piece by piece.
    fn finish_collected(&mut self, id: u32, service: &S) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.time.request_ended();
        let RecvState::Buffering { fast_path, head, body } = stream.request else { return };
        let mut batch = Batch::new();
        if batch.add(service, (id, stream.send_window), fast_path, &body) {
            self.respond_to_batch(&mut batch, service);
        } else {
            self.route_whole(id, *head, &body, stream.send_window);
        }
    }
}
