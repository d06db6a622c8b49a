//! The server's side of one connection: bytes read become bytes to write.
//!
//! No IO and no clock: the time is told by [`Connection::tick`]. What always holds:
//! - what the client can make the connection hold is bounded, as [`Http2Settings`] adds it up;
//! - a call answered at once was read and answered within one call of [`Connection::read`], or waits for nothing but the
//!   client's windows;
//! - a stream's task lives no longer than its stream.

mod batch;
mod budget;
mod control;
mod recv;
mod send;
#[cfg(test)]
mod tests;
mod time;

use super::{
    ConnectionError, ErrorCode, Http2Settings, PartialHeaderBlock, ReadBuffer, RequestBody, Service,
    flow_control::{DEFAULT_WINDOW, RecvWindow, SendWindow},
    frame::{self, Frame, PREFACE},
    request_headers::RequestDecoder,
    response_headers::ResponseEncoder,
    routed::{Task, TaskSender},
    stream::Stream,
};
use batch::{Batch, Input};
use budget::Budget;
use hashbrown::HashMap;
use http::Request;
use std::{collections::VecDeque, time::Duration};

/// What is to be written and not read by the client, beyond which nothing more is read from it. What tasks answer waits too.
const UNREAD_MAX: usize = 256 * 1024;

/// How much room for what is to be written a connection keeps while there is nothing to write.
const KEPT_MAX: usize = 16 * 1024;

/// The server's side of one connection.
pub(super) struct Connection<S: Service> {
    settings: Http2Settings,
    incoming: ReadBuffer,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is already written.
    written: usize,
    phase: Phase,
    /// What the client did, if it ended otherwise than it should.
    failure: Option<&'static str>,
    heads: RequestDecoder<S::FastPath>,
    answers: ResponseEncoder,
    streams: HashMap<u32, Stream<S::FastPath>, foldhash::fast::RandomState>,
    /// The newest stream of the client; zero before the first.
    last_stream: u32,
    /// A header block whose end has not come.
    partial_block: Option<PartialHeaderBlock>,
    recv_window: RecvWindow,
    send_window: SendWindow,
    /// What the client's SETTINGS say of the window of a new stream.
    stream_outbound: u32,
    /// Requests that are to be given tasks, first come first.
    to_route: VecDeque<(u32, Request<RequestBody>)>,
    tasks: TaskSender,
    budget: Budget,
    time: time::Times,
}

/// How far the connection has come. It never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Phase {
    /// The client has not said its preface.
    AwaitingPreface,
    /// It has, but not its SETTINGS.
    AwaitingSettings,
    Open,
    /// The client was asked to start nothing more.
    Draining,
    /// It knows: what it starts now is not looked at.
    GoingAway,
    /// Nothing is read any more.
    Failed,
    /// Not even written.
    Closed,
}

impl<S: Service> Connection<S> {
    /// A connection just made, at time zero. Its tasks talk to it by `tasks`.
    pub(super) fn new(settings: Http2Settings, tasks: TaskSender) -> Self {
        let mut connection = Self {
            settings,
            incoming: ReadBuffer::default(),
            outgoing: Vec::new(),
            written: 0,
            phase: Phase::AwaitingPreface,
            failure: None,
            heads: RequestDecoder::new(settings.header_bytes_max),
            answers: ResponseEncoder::new(),
            streams: HashMap::default(),
            last_stream: 0,
            partial_block: None,
            recv_window: RecvWindow::new(settings.connection_window.max(DEFAULT_WINDOW)),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            stream_outbound: DEFAULT_WINDOW,
            to_route: VecDeque::new(),
            tasks,
            budget: Budget::default(),
            time: time::Times::default(),
        };
        connection.greet();
        connection
    }

    /// Whether more is to be read: not while the client leaves unread what it was answered.
    pub(super) fn wants_to_read(&self) -> bool {
        self.phase < Phase::Failed && self.unwritten().len() < UNREAD_MAX
    }

    /// Whether all has been said.
    pub(super) fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Closed => true,
            Phase::Failed => self.unwritten().is_empty(),
            Phase::GoingAway => self.streams.is_empty() && self.unwritten().is_empty(),
            _ => false,
        }
    }

    /// Why it ended otherwise than it should.
    pub(super) fn failure(&self) -> Option<&'static str> {
        self.failure
    }

    /// The bytes to be written next.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// The first `count` of the unwritten bytes have been written.
    pub(super) fn wrote(&mut self, count: usize) {
        let was_too_much = self.unwritten().len() >= UNREAD_MAX;
        self.written += count;
        self.time.on_write(count);
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            // Of a connection that had much to say at once, not all of the room is kept.
            self.outgoing.shrink_to(KEPT_MAX);
            self.written = 0;
        }
        if was_too_much && self.unwritten().len() < UNREAD_MAX {
            self.flush_all();
        }
    }

    /// Takes what was read.
    pub(super) fn read(&mut self, bytes: &[u8], service: &S) {
        if self.phase >= Phase::Failed {
            return;
        }
        self.time.on_read();
        let mut incoming = std::mem::take(&mut self.incoming);
        let taken = incoming.read(bytes, |rest| self.take_frames(rest, service));
        self.incoming = incoming;
        if let Err(broken) = taken {
            self.fail(broken);
        }
    }

    /// The next request that came and is to be routed.
    pub(super) fn take_routed(&mut self) -> Option<(u32, Request<RequestBody>)> {
        self.to_route.pop_front()
    }

    /// A request that was routed has its task.
    pub(super) fn set_task(&mut self, stream: u32, task: Task) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.task = Some(task);
        }
    }

    fn take_frames(&mut self, bytes: &mut &[u8], service: &S) -> Result<(), ConnectionError> {
        if self.phase == Phase::AwaitingPreface && !self.take_preface(bytes)? {
            return Ok(());
        }
        let mut input = Input { rest: bytes, service, batch: Batch::new() };
        let taken = self.take_each(&mut input);
        // Also if what came after them broke the protocol.
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

    /// Whether the preface has come whole.
    fn take_preface(&mut self, bytes: &mut &[u8]) -> Result<bool, ConnectionError> {
        let (said, expected) = (bytes.len().min(PREFACE.len()), PREFACE);
        if bytes[..said] != expected[..said] {
            return Err(ConnectionError::protocol("it does not speak HTTP/2"));
        }
        if said < PREFACE.len() {
            return Ok(false);
        }
        *bytes = &bytes[said..];
        self.phase = Phase::AwaitingSettings;
        Ok(true)
    }

    #[inline]
    fn take_frame(&mut self, frame: &Frame<'_>, input: &mut Input<'_, '_, S>) -> Result<(), ConnectionError> {
        if frame.kind != frame::HEADERS || input.batch.are_enough() {
            // Whatever the frame says, it says it after them.
            self.respond_to_batch(&mut input.batch, input.service);
        }
        if self.phase == Phase::AwaitingSettings && (frame.kind != frame::SETTINGS || frame.has(frame::ACK)) {
            return Err(ConnectionError::protocol("its first frame is not SETTINGS"));
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

    /// The client broke the protocol: it is told, and all that is under way is dropped.
    fn fail(&mut self, broken: ConnectionError) {
        if self.phase == Phase::AwaitingPreface && is_http1(self.incoming.kept()) {
            self.outgoing.clear();
            self.outgoing.extend_from_slice(HTTP1_REFUSAL.as_bytes());
        } else {
            self.write_goaway(self.last_stream, broken.code);
        }
        self.phase = Phase::Failed;
        self.failure = Some(broken.why);
        self.streams.clear();
        self.to_route.clear();
        self.incoming = ReadBuffer::default();
    }

    fn write_goaway(&mut self, last_stream: u32, code: ErrorCode) {
        let payload = [last_stream.to_be_bytes(), (code as u32).to_be_bytes()].concat();
        frame::write(frame::GOAWAY, 0, 0, &payload, &mut self.outgoing);
    }

    /// Ends a stream, if it is there, and tells the client why.
    fn reset(&mut self, stream: u32, code: ErrorCode) {
        frame::write(frame::RST_STREAM, 0, stream, &(code as u32).to_be_bytes(), &mut self.outgoing);
        self.close(stream);
    }

    /// Forgets a stream. What its body held of the connection's window is given back.
    fn close(&mut self, stream: u32) {
        if let Some(stream) = self.streams.remove(&stream) {
            self.release_window(stream.unreleased);
            self.time.request_ended();
        }
    }

    /// So many bytes of DATA have been read: others may come in their place.
    #[inline]
    fn release_window(&mut self, bytes: usize) {
        if let Some(raise) = self.recv_window.release(bytes) {
            frame::write_window_update(0, raise, &mut self.outgoing);
        }
    }

    /// How long ago the connection was made, as of the last tick.
    fn now(&self) -> Duration {
        self.time.now()
    }
}

/// Whether what came looks like the start of a request of HTTP/1.
fn is_http1(bytes: &[u8]) -> bool {
    const VERSION: &[u8] = b" HTTP/1.";
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    line.windows(VERSION.len()).any(|window| window == VERSION)
}

const HTTP1_REFUSAL: &str = "HTTP/1.1 505 HTTP Version Not Supported\r\n\
     content-type: text/plain\r\ncontent-length: 77\r\nconnection: close\r\n\r\n\
     this port speaks gRPC: send HTTP/2 from the first byte (h2c prior knowledge)\n";
