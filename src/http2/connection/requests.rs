//! Requests as they come: HEADERS, CONTINUATION, DATA.

use super::{Calls, Connection, Phase, Reading};
use crate::http2::{
    Broken, ErrorCode, OpenBlock, RequestBody, Service,
    flow::Outbound,
    frame::{self, Frame},
    head::Head,
    routed::Piece,
    stream::{Incoming, Stream},
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
        reading: &mut Reading<'_, '_, S>,
    ) -> Result<(), Broken> {
        if frame.stream.is_multiple_of(2) {
            return Err(Broken::protocol("a request has a stream of the server's"));
        }
        let block = frame.content()?;
        if frame.depends_on_itself() {
            return Err(Broken::protocol("a stream depends on itself"));
        }
        if frame.has(frame::END_HEADERS) {
            return self.on_block(frame.stream, block, frame.has(frame::END_STREAM), reading);
        }
        self.open_block = Some(OpenBlock::start(frame, block));
        Ok(())
    }

    pub(super) fn on_continuation(
        &mut self,
        frame: &Frame<'_>,
        reading: &mut Reading<'_, '_, S>,
    ) -> Result<(), Broken> {
        self.budget.control_frame(&self.settings)?;
        // What it says may be longer, but not what it takes to say it.
        let bytes_max = self.settings.header_bytes_max as usize + frame::PAYLOAD_MAX;
        match OpenBlock::go_on(&mut self.open_block, frame, bytes_max)? {
            Some(block) => self.on_block(block.stream, &block.bytes, block.ends_stream, reading),
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
        reading: &mut Reading<'_, '_, S>,
    ) -> Result<(), Broken> {
        if id <= self.last_stream {
            self.answer_calls(&mut reading.calls, reading.service);
            return self.on_trailers(id, block, ends_stream);
        }
        let head = self.heads.head(block, reading.service)?;
        if self.phase == Phase::Leaving {
            return Ok(());
        }
        self.last_stream = id;
        self.budget.request();
        let is_full = self.streams.len() >= self.settings.streams_max as usize;
        if let Head::Good { quick: Some(quick), content_length } = head
            && !ends_stream
            && !is_full
            && let Some(body) = self.body_in(reading, id, content_length)?
        {
            self.call(id, quick, body, reading);
            return Ok(());
        }
        // Whatever else is said, is said after the answers to the calls before it.
        self.answer_calls(&mut reading.calls, reading.service);
        match head {
            _ if is_full => self.reset(id, ErrorCode::RefusedStream),
            Head::Good { quick: Some(quick), content_length } if !ends_stream => {
                self.collect(id, quick, content_length);
            }
            Head::Good { content_length, .. }
                if ends_stream && content_length.is_some_and(|length| length > 0) =>
            {
                self.reset(id, ErrorCode::Protocol);
            }
            Head::Good { content_length, .. } => self.route_head(id, content_length, ends_stream),
            Head::Malformed => self.reset(id, ErrorCode::Protocol),
            Head::TooLarge => self.refuse(id, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ends_stream),
        }
        Ok(())
    }

    /// The whole body of a request, if it is what follows its head. It is taken off what is left.
    #[inline]
    fn body_in<'b>(
        &mut self,
        reading: &mut Reading<'_, 'b, S>,
        id: u32,
        content_length: Option<u64>,
    ) -> Result<Option<&'b [u8]>, Broken> {
        let mut after = reading.rest;
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
        self.inbound.came(data.payload.len())?;
        if let Some(raise) = self.inbound.read(data.payload.len()) {
            self.answer_calls(&mut reading.calls, reading.service);
            frame::write_raise(0, raise, &mut self.outgoing);
        }
        reading.rest = after;
        Ok(Some(body))
    }

    /// All of a call has come, and its head was the last that was read: it is answered with others, or routed.
    #[inline]
    fn call<'b>(&mut self, id: u32, quick: S::Quick, body: &'b [u8], reading: &mut Reading<'_, 'b, S>) {
        let outbound = Outbound::new(self.stream_outbound);
        if reading.calls.add(reading.service, (id, outbound), quick, body) {
            return;
        }
        self.answer_calls(&mut reading.calls, reading.service);
        match self.heads.request() {
            Some(head) => self.route_whole(id, head, body, outbound),
            None => self.reset(id, ErrorCode::Protocol),
        }
    }

    /// The head of a call has come, but not yet all of its body.
    fn collect(&mut self, id: u32, quick: S::Quick, content_length: Option<u64>) {
        match self.heads.request() {
            Some(head) => {
                let request = Incoming::Collecting { quick, head: Box::new(head), body: Vec::new() };
                let outbound = Outbound::new(self.stream_outbound);
                self.open(id, request, outbound).content_left = content_length;
            }
            None => self.reset(id, ErrorCode::Protocol),
        }
    }

    pub(super) fn open(
        &mut self,
        id: u32,
        request: Incoming<S::Quick>,
        outbound: Outbound,
    ) -> &mut Stream<S::Quick> {
        let stream = Stream::new(request, self.settings.stream_window, outbound, self.now());
        self.streams.entry(id).insert(stream).into_mut()
    }

    /// Routes a request whose head was the last that was read.
    fn route_head(&mut self, id: u32, content_length: Option<u64>, ends_stream: bool) {
        let Some(head) = self.heads.request() else { return self.reset(id, ErrorCode::Protocol) };
        let pieces = self.route(id, head);
        let request = if ends_stream {
            // Its receiver is kept in `to_route`.
            let _ = pieces.send(Piece::End);
            Incoming::Ended
        } else {
            Incoming::Routed(pieces)
        };
        let outbound = Outbound::new(self.stream_outbound);
        self.open(id, request, outbound).content_left = content_length;
    }

    /// Routes a request that was to be answered at once, and that has come whole. Its body no longer holds a window.
    fn route_whole(&mut self, id: u32, head: Request<()>, body: &[u8], outbound: Outbound) {
        let pieces = self.route(id, head);
        // Its receiver is kept in `to_route`.
        let _ = pieces.send(Piece::Collected(Bytes::copy_from_slice(body)));
        let _ = pieces.send(Piece::End);
        self.open(id, Incoming::Ended, outbound);
    }

    fn route(&mut self, id: u32, head: Request<()>) -> UnboundedSender<Piece> {
        let (pieces, body) = RequestBody::new(id, &self.tasks);
        self.to_route.push_back((id, head.map(|()| body)));
        pieces
    }

    /// Answers with nothing but a status.
    fn refuse(&mut self, id: u32, status: StatusCode, ends_stream: bool) {
        self.answers.write_head(id, status.as_u16(), &HeaderMap::new(), true, &mut self.outgoing);
        if !ends_stream {
            self.reset(id, ErrorCode::No);
        }
    }

    fn on_trailers(&mut self, id: u32, block: &[u8], ends_stream: bool) -> Result<(), Broken> {
        let trailers = self.heads.trailers(block)?;
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            return Err(Broken::new(ErrorCode::StreamClosed, "HEADERS come on a stream that has ended"));
        };
        let is_short = stream.content_left.is_some_and(|left| left > 0);
        let Some(trailers) = trailers.filter(|_| ends_stream && !is_short) else {
            self.reset(id, ErrorCode::Protocol);
            return Ok(());
        };
        if let Incoming::Collecting { .. } = stream.request {
            self.route_collected(id);
        }
        if let Some(stream) = self.streams.get_mut(&id)
            && let Incoming::Routed(pieces) = std::mem::replace(&mut stream.request, Incoming::Ended)
        {
            let _ = pieces.send(Piece::Trailers(trailers));
        }
        Ok(())
    }

    pub(super) fn on_data(&mut self, frame: &Frame<'_>, service: &S) -> Result<(), Broken> {
        let (id, ends_stream) = (frame.stream, frame.has(frame::END_STREAM));
        if id.is_multiple_of(2) || id > self.last_stream && self.phase != Phase::Leaving {
            return Err(Broken::protocol("DATA come on a stream that was never opened"));
        }
        let (content, whole) = (frame.content()?, frame.payload.len());
        self.inbound.came(whole)?;
        if content.is_empty() && !ends_stream {
            self.budget.control_frame(&self.settings)?;
        }
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| !stream.request_has_ended()) else {
            self.give_back(whole);
            self.budget.control_frame(&self.settings)?;
            self.reset(id, ErrorCode::StreamClosed);
            return Ok(());
        };
        let fits = stream.inbound.came(whole);
        let left = stream.content_left.map(|left| left.checked_sub(content.len() as u64));
        self.give_back(whole - content.len());
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
            Incoming::Collecting { body, .. } => {
                body.extend_from_slice(content);
                let is_too_long = body.len() > COLLECTED_MAX;
                // It is bounded by that, and so need not wait for who reads it.
                let raise = stream.inbound.read(whole).filter(|_| !ends_stream);
                self.give_back(content.len());
                self.write_stream_window(id, raise);
                if is_too_long {
                    self.route_collected(id);
                    self.end_routed(id, ends_stream);
                } else if ends_stream {
                    self.finish_collected(id, service);
                }
            }
            Incoming::Routed(pieces) => {
                if !content.is_empty() {
                    stream.held += content.len();
                    // Nobody may be reading any more: what is held is given back with the stream.
                    let _ = pieces.send(Piece::Data(Bytes::copy_from_slice(content)));
                }
                let raise = stream.inbound.read(whole - content.len()).filter(|_| !ends_stream);
                self.write_stream_window(id, raise);
                self.end_routed(id, ends_stream);
            }
            Incoming::Ended => {}
        }
    }

    pub(super) fn write_stream_window(&mut self, id: u32, raise: Option<u32>) {
        if let Some(raise) = raise {
            frame::write_raise(id, raise, &mut self.outgoing);
        }
    }

    fn end_routed(&mut self, id: u32, ends_stream: bool) {
        if ends_stream
            && let Some(stream) = self.streams.get_mut(&id)
            && let Incoming::Routed(pieces) = std::mem::replace(&mut stream.request, Incoming::Ended)
        {
            let _ = pieces.send(Piece::End);
        }
    }

    /// A request that was to be answered at once is not, before all of it has come: what has is routed.
    fn route_collected(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Incoming::Collecting { head, body, .. } =
            std::mem::replace(&mut stream.request, Incoming::Ended)
        {
            let pieces = self.route(id, *head);
            let _ = pieces.send(Piece::Collected(body.into()));
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.request = Incoming::Routed(pieces);
            }
        }
    }

    /// All of a call has come, piece by piece.
    fn finish_collected(&mut self, id: u32, service: &S) {
        let Some(stream) = self.streams.remove(&id) else { return };
        self.time.request_ended();
        let Incoming::Collecting { quick, head, body } = stream.request else { return };
        let mut calls = Calls::new();
        if calls.add(service, (id, stream.outbound), quick, &body) {
            self.answer_calls(&mut calls, service);
        } else {
            self.route_whole(id, *head, &body, stream.outbound);
        }
    }
}
