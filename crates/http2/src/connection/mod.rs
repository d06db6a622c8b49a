//! The server half of one connection: bytes read become bytes to write.
//!
//! No IO and no clock: time is an argument of [`Connection::tick`]. Invariants:
//! - the memory that a client can make the connection use is bounded, as [`Http2Settings`] adds it up;
//! - the work per byte received is bounded (`tests/cost.rs`);
//! - a call of the fast path is decided within the [`Connection::read`] that completes it, and its response waits only for the client's
//!   windows, unless the service defers the response;
//! - a stream's task does not outlive its stream;
//! - the errors that a client is sent depend neither on how its bytes were cut, nor on when responses were ready.

mod batch;
mod budget;
mod closed_streams;
mod control;
mod deliveries;
mod phase;
mod recv;
mod reset_watches;
mod respond;
mod send;
mod send_queues;
mod stream;
#[cfg(test)]
mod tests;
mod time;
mod times;

use super::{
    BodyShare, ClassCounts, CloseReason, ConnectionError, DeferredBody, ErrorCode, HeldBytes, Http2Settings,
    OnReset, PartialHeaderBlock, ReadBuffer, RequestBody, Service, StreamRefusal,
    counts::{ConnectionEvent, Events},
    flow_control::{DEFAULT_WINDOW, RecvWindow, SendWindow},
    frame::{self, Frame, PREFACE},
    request_headers::RequestDecoder,
    response_headers::ResponseEncoder,
    routed::Task,
    steps,
    task_event::TaskSender,
};
use batch::{Batch, Input};
use budget::Budget;
use closed_streams::ClosedStreams;
use deliveries::Deliveries;
use hashbrown::HashMap;
use http::Request;
use phase::{Opening, Phase};
use reset_watches::ResetWatches;
use send_queues::{BlockedBy, SendQueues};
use std::{collections::VecDeque, time::Duration};
use stream::Stream;
use times::Times;

/// If the client has not read this many bytes, nothing more is read from it and no DATA is written.
const UNREAD_MAX: usize = 256 * 1024;

/// Capacity of the write buffer that a connection keeps while the buffer is empty.
const KEPT_MAX: usize = 16 * 1024;

/// Least ratio of unwritten bytes to written bytes that are still before them in the write buffer.
const WRITTEN_SHARE: usize = 4;

/// Longest HTTP/1 request line for whose end the connection waits before it refuses the client.
const REQUEST_LINE_MAX: usize = 8 * 1024;

/// Bytes of an incomplete frame or header block that a connection may keep beside its share of [`BodyShare`].
const PARTIAL_MAX: usize = 4 * 1024;

/// Content type of a TLS record with a ClientHello (RFC 8446, section 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// The failure of a connection whose client starts with TLS.
pub(super) const TLS_CLIENT_HELLO: &str = "TLS ClientHello on a connection without TLS";

/// The server half of one connection.
pub struct Connection<S: Service> {
    settings: Http2Settings,
    incoming: ReadBuffer,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are already written.
    written: usize,
    /// Number of bytes that were written and removed from `outgoing`.
    removed: u64,
    phase: Phase,
    opening: Opening,
    /// Whether the server's connection preface is written.
    has_preface: bool,
    /// The reason why the connection failed, if it did.
    failure: Option<&'static str>,
    /// The reason why the server ended the connection, or let it end.
    end_reason: Option<CloseReason>,
    request_decoder: RequestDecoder<S::FastPath>,
    response_encoder: ResponseEncoder,
    streams: HashMap<u32, Stream<S::FastPath>, foldhash::fast::RandomState>,
    /// The highest stream id of the client; zero before the first.
    last_stream: u32,
    closed: ClosedStreams,
    watches: ResetWatches,
    deliveries: Deliveries,
    send_queues: SendQueues,
    /// A header block without END_HEADERS yet.
    partial_block: Option<PartialHeaderBlock>,
    /// Memory for incomplete requests, and for an incomplete frame or header block.
    share: BodyShare,
    partial: Option<HeldBytes>,
    recv_window: RecvWindow,
    send_window: SendWindow,
    /// The client's SETTINGS_INITIAL_WINDOW_SIZE.
    initial_window: u32,
    /// Requests without a task yet, in the order received.
    to_route: VecDeque<(u32, Request<RequestBody>)>,
    /// Deferred responses without a task yet, in the order of their calls.
    deferred: VecDeque<(u32, DeferredBody)>,
    tasks: TaskSender,
    budget: Budget,
    time: Times,
    /// Responses of the fast path to the bytes of the last read.
    responses: ClassCounts,
    events: Events,
}

impl<S: Service> Connection<S> {
    /// A new connection, at time zero. Its tasks send their events through `tasks`.
    pub(super) fn new(settings: Http2Settings, tasks: TaskSender) -> Self {
        Self {
            settings,
            incoming: ReadBuffer::default(),
            outgoing: Vec::new(),
            written: 0,
            removed: 0,
            phase: Phase::Open,
            opening: Opening::AwaitingPreface,
            failure: None,
            end_reason: None,
            has_preface: false,
            request_decoder: RequestDecoder::new(settings.header_bytes_max, S::field_names()),
            response_encoder: ResponseEncoder::new(),
            streams: HashMap::default(),
            last_stream: 0,
            closed: ClosedStreams::default(),
            watches: ResetWatches::default(),
            deliveries: Deliveries::default(),
            send_queues: SendQueues::default(),
            partial_block: None,
            share: BodyShare::unlimited(),
            partial: None,
            recv_window: RecvWindow::new(settings.connection_window.max(DEFAULT_WINDOW)),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            initial_window: DEFAULT_WINDOW,
            to_route: VecDeque::new(),
            deferred: VecDeque::new(),
            tasks,
            budget: Budget::default(),
            time: Times::default(),
            responses: ClassCounts::default(),
            events: Events::default(),
        }
    }

    /// Sets the share of the memory for incomplete requests.
    pub(super) fn with_share(self, share: BodyShare) -> Self {
        Self { share, ..self }
    }

    /// Whether to read more. False while the client has not read too many bytes.
    pub(super) fn wants_to_read(&self) -> bool {
        self.phase < Phase::Closing && self.unwritten().len() < UNREAD_MAX
    }

    /// Whether the connection is over and everything is written.
    pub(super) fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Closed => true,
            Phase::Closing => self.unwritten().is_empty(),
            Phase::GoingAway => self.streams.is_empty() && self.unwritten().is_empty(),
            _ => false,
        }
    }

    /// The reason why the connection failed, if it did.
    pub(super) fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    /// The reason why the server ended the connection, or let it end; none if it did not.
    pub(super) fn end_reason(&self) -> Option<CloseReason> {
        self.end_reason
    }

    /// Events since they were last published, and the number of open streams.
    #[inline]
    pub(super) fn events(&mut self) -> (&mut Events, usize) {
        (&mut self.events, self.streams.len())
    }

    /// The bytes to write next.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// Marks the first `count` of the unwritten bytes as written.
    pub(super) fn wrote(&mut self, count: usize) {
        let was_too_much = self.unwritten().len() >= UNREAD_MAX;
        self.written += count;
        self.time.on_write(count);
        self.events.bytes_written += count;
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            // A connection that once had much to write keeps only a little of the capacity.
            self.outgoing.shrink_to(KEPT_MAX);
            self.removed += self.written as u64;
            self.written = 0;
        } else if self.written * WRITTEN_SHARE >= self.unwritten().len() {
            // For each byte written, a bounded number of bytes is moved.
            self.outgoing.drain(..self.written);
            self.removed += self.written as u64;
            self.written = 0;
        }
        if was_too_much && self.unwritten().len() < UNREAD_MAX {
            self.flush_connection();
        }
    }

    /// Drops the unwritten bytes: the client reads no more.
    pub(super) fn drop_unwritten(&mut self) {
        self.removed += self.written as u64;
        self.written = 0;
        self.outgoing = Vec::new();
    }

    /// Watches a stream whose response, or the first part of it, was just made.
    fn watch(&mut self, stream: u32, hook: OnReset) {
        let end = self.removed + self.outgoing.len() as u64;
        self.watches.add(stream, hook, self.time.now(), end);
    }

    /// Runs the hooks of responses that the client cannot have received, because the connection has ended before they were written.
    pub(super) fn end(mut self) {
        self.reset_incomplete();
        self.watches.on_end(self.removed + self.written as u64);
    }

    /// Runs the hooks of the streams whose responses are incomplete.
    fn reset_incomplete(&mut self) {
        let incomplete = self.streams.iter().filter(|(_, stream)| !stream.is_discarding());
        incomplete.for_each(|(&id, _)| self.watches.on_reset(id));
    }

    /// Processes bytes read.
    pub(super) fn read(&mut self, bytes: &[u8], service: &S) {
        if self.phase >= Phase::Closing {
            return;
        }
        self.time.on_read();
        self.events.bytes_read += bytes.len();
        self.responses = ClassCounts::default();
        let mut incoming = std::mem::take(&mut self.incoming);
        let taken = incoming.read(bytes, |rest| self.take_frames(rest, service));
        self.incoming = incoming;
        if let Err(error) = taken.and_then(|()| self.hold_partial()) {
            self.fail(error);
        }
    }

    /// Charges the memory of an incomplete frame and of an incomplete header block.
    #[inline]
    fn hold_partial(&mut self) -> Result<(), ConnectionError> {
        let is_little = self.incoming.kept().len() <= PARTIAL_MAX && self.partial_block.is_none();
        if is_little {
            if self.partial.is_some() {
                self.partial = None;
            }
            return Ok(());
        }
        let of_block = self.partial_block.as_ref().map_or(0, |block| block.bytes.capacity());
        let bytes = self.incoming.capacity() + of_block;
        let held = match &mut self.partial {
            Some(held) => held.set(bytes),
            None => self.share.hold(bytes).map(|held| self.partial = Some(held)),
        };
        held.map_err(|_| budget::no_memory())
    }

    /// The responses of the fast path to the bytes of the last read, by class.
    #[inline]
    pub(super) fn responses(&self) -> ClassCounts {
        self.responses
    }

    /// The next request to route.
    pub(super) fn take_routed(&mut self) -> Option<(u32, Request<RequestBody>)> {
        self.to_route.pop_front()
    }

    /// The next deferred response.
    pub(super) fn take_deferred(&mut self) -> Option<(u32, DeferredBody)> {
        self.deferred.pop_front()
    }

    /// Sets the task of a stream. If the stream has ended, the task is cancelled.
    pub(super) fn set_task(&mut self, stream: u32, task: Task) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.task = Some(task);
        }
    }

    fn take_frames(&mut self, bytes: &mut &[u8], service: &S) -> Result<(), ConnectionError> {
        if self.opening == Opening::AwaitingPreface && !self.take_preface(bytes)? {
            return Ok(());
        }
        let mut input = Input { rest: bytes, service, batch: Batch::new() };
        let taken = self.take_each(&mut input);
        // Responds even if a later frame is an error.
        self.respond_to_batch(&mut input.batch, service);
        *bytes = input.rest;
        taken
    }

    fn take_each(&mut self, input: &mut Input<'_, '_, S>) -> Result<(), ConnectionError> {
        while let Some(frame) = Frame::take(&mut input.rest)? {
            self.take_frame(&frame, input)?;
        }
        Ok(())
    }

    /// Takes the client's connection preface. Returns whether it is complete.
    fn take_preface(&mut self, bytes: &mut &[u8]) -> Result<bool, ConnectionError> {
        let length = bytes.len().min(PREFACE.len());
        if bytes[..length] != PREFACE[..length] {
            // Waits for the end of an HTTP/1 request line, so that it is recognised however it is cut.
            let is_line =
                bytes.len() < REQUEST_LINE_MAX && bytes.iter().all(|byte| (b' '..0x7f).contains(byte));
            return if is_line {
                Ok(false)
            } else if bytes.first() == Some(&TLS_HANDSHAKE) {
                Err(ConnectionError::protocol(TLS_CLIENT_HELLO))
            } else {
                Err(ConnectionError::protocol("no HTTP/2 connection preface"))
            };
        }
        if length < PREFACE.len() {
            return Ok(false);
        }
        *bytes = &bytes[length..];
        self.write_preface();
        self.opening = Opening::AwaitingSettings;
        Ok(true)
    }

    #[inline]
    fn take_frame(&mut self, frame: &Frame<'_>, input: &mut Input<'_, '_, S>) -> Result<(), ConnectionError> {
        steps::add(steps::FRAME);
        if frame.kind != frame::HEADERS || input.batch.is_full() {
            // Frames written because of this frame follow the responses to earlier calls.
            self.respond_to_batch(&mut input.batch, input.service);
        }
        if self.opening == Opening::AwaitingSettings
            && (frame.kind != frame::SETTINGS || frame.has(frame::ACK))
        {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        if self.partial_block.is_some() && frame.kind != frame::CONTINUATION {
            return Err(ConnectionError::protocol("a header block is interrupted"));
        }
        match frame.kind {
            frame::HEADERS => self.on_headers(frame, input),
            frame::DATA => self.on_data(frame, input.service),
            frame::CONTINUATION => self.on_continuation(frame, input),
            _ => self.on_control(frame),
        }
    }

    /// Fails the connection: sends a GOAWAY and drops all streams.
    fn fail(&mut self, error: ConnectionError) {
        // After the server's preface, a client of HTTP/1 would not recognise a refusal of its own protocol.
        if !self.has_preface && is_http1(self.incoming.kept()) {
            self.outgoing.extend_from_slice(HTTP1_REFUSAL.as_bytes());
        } else {
            self.write_preface();
            self.write_goaway(self.last_stream, error.code);
        }
        self.failure = Some(error.why);
        self.end_reason = Some(budget::end_reason(&error));
        self.stop_reading();
    }

    /// Drops all streams. The connection ends when everything is written. Requests that were received before still get their tasks.
    fn stop_reading(&mut self) {
        self.phase = Phase::Closing;
        self.reset_incomplete();
        self.streams.clear();
        self.incoming = ReadBuffer::default();
        self.partial_block = None;
        self.partial = None;
    }

    fn write_goaway(&mut self, last_stream: u32, code: ErrorCode) {
        let payload = [last_stream.to_be_bytes(), (code as u32).to_be_bytes()].concat();
        frame::write(frame::GOAWAY, 0, 0, &payload, &mut self.outgoing);
        self.events.frame(ConnectionEvent::GoawaySent);
    }

    /// Resets a stream because of an error of the client. Counts as a reset by the client.
    fn reset_for(&mut self, stream: u32, code: ErrorCode) -> Result<(), ConnectionError> {
        self.reset(stream, code);
        self.budget.reset(&self.settings)
    }

    /// Resets the stream of a refused request.
    fn refuse_stream(
        &mut self,
        stream: u32,
        refusal: StreamRefusal,
        code: ErrorCode,
    ) -> Result<(), ConnectionError> {
        self.events.refused(refusal);
        self.reset_for(stream, code)
    }

    /// Resets streams with a complete response and an incomplete request.
    fn reset_discarding(&mut self) {
        let discarding = self.streams.iter().filter(|(_, stream)| stream.is_discarding());
        let discarding: Vec<u32> = discarding.map(|(&id, _)| id).collect();
        for id in discarding {
            self.reset(id, ErrorCode::No);
        }
    }

    /// Sends RST_STREAM and closes the stream, if it is open.
    fn reset(&mut self, stream: u32, code: ErrorCode) {
        self.closed.on_reset(stream);
        self.events.frame(ConnectionEvent::ResetSent);
        frame::write(frame::RST_STREAM, 0, stream, &(code as u32).to_be_bytes(), &mut self.outgoing);
        if code != ErrorCode::No {
            // The client does not get the whole response: runs the hook.
            self.watches.on_reset(stream);
        }
        self.close(stream);
    }

    /// Closes a stream. Bytes of its request that no task has read are returned to the connection's window.
    fn close(&mut self, id: u32) {
        if let Some(stream) = self.streams.remove(&id) {
            match stream.blocked_by {
                None => {}
                Some(BlockedBy::Stream) => self.send_queues.remove_credit(id, stream.send_window.credit()),
                Some(BlockedBy::Connection) => {
                    let is_open = |id| self.streams.contains_key(&id);
                    self.send_queues.remove_closed(self.streams.len(), is_open);
                }
            }
            self.release_window(stream.unreleased);
            self.time.request_ended();
        }
    }

    /// Returns processed bytes of DATA to the connection's window.
    #[inline]
    fn release_window(&mut self, bytes: usize) {
        if let Some(increment) = self.recv_window.release(bytes) {
            frame::write_window_update(0, increment, &mut self.outgoing);
        }
    }

    /// Time since the connection's start, as of the last tick.
    fn now(&self) -> Duration {
        self.time.now()
    }
}

/// Whether the bytes start with a request line of HTTP/1.
fn is_http1(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b" HTTP/1.";
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line.windows(VERSION.len()).any(|window| window == VERSION)
}

const HTTP1_REFUSAL: &str = "HTTP/1.1 505 HTTP Version Not Supported\r\n\
     content-type: text/plain\r\ncontent-length: 77\r\nconnection: close\r\n\r\n\
     this port speaks gRPC: send HTTP/2 from the first byte (h2c prior knowledge)\n";
