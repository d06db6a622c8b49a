//! One HTTP/2 connection: its streams, its windows and its end.
//!
//! A call is started only when it can be sent whole: within the server's limit of streams and the connection's
//! window. So a stream needs no memory of what is still to be sent.

use super::{
    answer::{Answer, Failure, Outcome},
    request_headers::RequestHeaders,
};
use crate::http2::{
    ConnectionError, PartialHeaderBlock, ReadBuffer, error_name,
    flow_control::{DEFAULT_WINDOW, RecvWindow, SendWindow, WINDOW_MAX, WindowOverflow},
    frame::{self, Frame, PREFACE, setting},
    hpack::{Decoder, Fields},
};
use hashbrown::HashMap;

/// The largest message that can be sent. Half of the smallest window a server starts with: servers give back window
/// when half of it is used, so that a call never waits for room that cannot come.
pub(crate) const MESSAGE_MAX: usize = 32_767;

/// This client's window for the whole connection; given back when half of it is used.
const OWN_WINDOW: u32 = 1 << 30;
/// This client's window for one stream: far beyond any answer, so that it is never given back.
const OWN_STREAM_WINDOW: u32 = 16 << 20;
/// More than any server sends before or after an answer.
const HEADER_BLOCK_MAX: usize = 64 << 10;

/// No call with such a message can ever be sent to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's window of {window} bytes is too small for a request of {message} bytes")]
pub(crate) struct WindowTooSmall {
    window: u32,
    message: usize,
}

/// A call that has come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Finished {
    /// What was given to [`Connection::start`].
    pub(crate) started: u64,
    pub(crate) outcome: Outcome,
}

/// The client's side of one connection.
pub(crate) struct Connection {
    incoming: ReadBuffer,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is already written.
    written: usize,
    headers: RequestHeaders,
    decoder: Decoder,
    /// Those of the block that was read last.
    fields: Fields,
    /// The calls under way, by stream.
    calls: HashMap<u32, Call, foldhash::fast::RandomState>,
    /// Odd and rising; beyond [`frame::STREAM_MAX`] the connection is used up.
    next_stream: u32,
    recv_window: RecvWindow,
    send_window: SendWindow,
    /// What the server said in its SETTINGS; `None` until it did, and until then no call starts.
    server: Option<ServerSettings>,
    /// A header block whose end has not come.
    partial_block: Option<PartialHeaderBlock>,
    /// The error code of the server's GOAWAY.
    gone_away: Option<u32>,
}

struct Call {
    started: u64,
    answer: Answer,
}

struct ServerSettings {
    max_streams: u32,
    stream_window: u32,
}

impl Connection {
    /// A connection just made. Its first bytes are ready to be written.
    pub(crate) fn new(headers: RequestHeaders) -> Self {
        let mut outgoing = PREFACE.to_vec();
        let settings = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, OWN_STREAM_WINDOW)];
        frame::write_settings(&settings, &mut outgoing);
        frame::write_window_update(0, OWN_WINDOW - DEFAULT_WINDOW, &mut outgoing);
        Self {
            incoming: ReadBuffer::default(),
            outgoing,
            written: 0,
            headers,
            decoder: Decoder::new(),
            fields: Fields::default(),
            calls: HashMap::default(),
            next_stream: 1,
            recv_window: RecvWindow::new(OWN_WINDOW),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            server: None,
            partial_block: None,
            gone_away: None,
        }
    }

    /// Whether a call with a message of this length, at most [`MESSAGE_MAX`], can be started now.
    pub(crate) fn has_room(&self, message: usize) -> Result<bool, WindowTooSmall> {
        let Some(server) = &self.server else {
            return Ok(false);
        };
        if message > server.stream_window as usize {
            return Err(WindowTooSmall { window: server.stream_window, message });
        }
        Ok(!self.takes_no_more()
            && self.calls.len() < server.max_streams as usize
            && self.send_window.available() >= message)
    }

    /// Starts a call, for which there must be room. `started` comes back with its end.
    pub(crate) fn start(&mut self, message: &[u8], started: u64) {
        debug_assert!(message.len() <= MESSAGE_MAX && self.has_room(message.len()) == Ok(true));
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.headers.next();
        frame::write(frame::HEADERS, frame::END_HEADERS, stream, block, &mut self.outgoing);
        let mut rest = message;
        while rest.len() > frame::PAYLOAD_MAX {
            let (piece, after) = rest.split_at(frame::PAYLOAD_MAX);
            frame::write(frame::DATA, 0, stream, piece, &mut self.outgoing);
            rest = after;
        }
        frame::write(frame::DATA, frame::END_STREAM, stream, rest, &mut self.outgoing);
        self.send_window.consume(message.len());
        self.calls.insert(stream, Call { started, answer: Answer::default() });
    }

    /// Whether the server has said its settings, without which no call can start.
    pub(crate) fn is_ready(&self) -> bool {
        self.server.is_some()
    }

    /// How many calls are under way.
    pub(crate) fn in_flight(&self) -> usize {
        self.calls.len()
    }

    /// Whether no further call will ever start here: the server is going away, or the stream ids are used up.
    pub(crate) fn takes_no_more(&self) -> bool {
        self.gone_away.is_some() || self.next_stream > frame::STREAM_MAX
    }

    /// Why the server is going away, if it said an error.
    pub(crate) fn farewell(&self) -> Option<&'static str> {
        self.gone_away.filter(|&code| code != 0).map(error_name)
    }

    /// The bytes to be written next.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// The first `count` of the unwritten bytes have been written.
    pub(crate) fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.written = 0;
        }
    }

    /// Takes what was read; calls that come to their end are added to `finished`.
    pub(crate) fn read(&mut self, bytes: &[u8], finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let taken = incoming.read(bytes, |rest| self.take_frames(rest, finished));
        self.incoming = incoming;
        taken
    }

    /// The connection has ended: whatever was under way has failed, and nothing more is written or started.
    pub(crate) fn end(&mut self, failure: Failure, finished: &mut Vec<Finished>) {
        self.gone_away.get_or_insert(0);
        self.outgoing.clear();
        self.written = 0;
        let outcome = Outcome::Failed(failure);
        finished.extend(self.calls.drain().map(|(_, call)| Finished { started: call.started, outcome }));
    }

    fn take_frames(
        &mut self,
        bytes: &mut &[u8],
        finished: &mut Vec<Finished>,
    ) -> Result<(), ConnectionError> {
        while let Some(frame) = Frame::take(bytes)? {
            if self.server.is_none() && frame.kind != frame::SETTINGS {
                return Err(ConnectionError::protocol("its first frame is not SETTINGS"));
            }
            if self.partial_block.is_some() && frame.kind != frame::CONTINUATION {
                return Err(ConnectionError::protocol("a header block is interrupted"));
            }
            match frame.kind {
                frame::DATA => self.on_data(&frame, finished)?,
                frame::HEADERS => self.on_headers(&frame, finished)?,
                frame::CONTINUATION => self.on_continuation(&frame, finished)?,
                frame::RST_STREAM => {
                    let failure = Failure::Reset(frame.number()?);
                    self.finish(frame.stream, finished, |_| Outcome::Failed(failure));
                }
                frame::SETTINGS => self.on_settings(&frame)?,
                frame::PING if !frame.has(frame::ACK) => {
                    frame::write(frame::PING, frame::ACK, 0, frame.ping()?, &mut self.outgoing);
                }
                frame::GOAWAY => self.on_goaway(&frame, finished)?,
                // A stream's own window is of no interest: its call was sent whole.
                frame::WINDOW_UPDATE if frame.stream == 0 => {
                    self.send_window.adjust((frame.number()? & WINDOW_MAX).into())?;
                }
                frame::PUSH_PROMISE => return Err(ConnectionError::protocol("it pushes though told not to")),
                // PRIORITY, and kinds that are yet to be invented, are to be ignored.
                _ => {}
            }
        }
        Ok(())
    }

    fn on_data(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        // Padding uses the window too, and so does what comes for a call that is over.
        self.recv_window.receive(frame.payload.len())?;
        if let Some(raise) = self.recv_window.release(frame.payload.len()) {
            frame::write_window_update(0, raise, &mut self.outgoing);
        }
        let content = frame.content()?;
        if let Some(call) = self.calls.get_mut(&frame.stream) {
            call.answer.data(content);
        }
        if frame.has(frame::END_STREAM) {
            self.finish(frame.stream, finished, Answer::outcome);
        }
        Ok(())
    }

    fn on_headers(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        let content = frame.content()?;
        if frame.has(frame::END_HEADERS) {
            return self.on_header_block(frame.stream, content, frame.has(frame::END_STREAM), finished);
        }
        self.partial_block = Some(PartialHeaderBlock::start(frame, content));
        Ok(())
    }

    fn on_continuation(
        &mut self,
        frame: &Frame<'_>,
        finished: &mut Vec<Finished>,
    ) -> Result<(), ConnectionError> {
        match PartialHeaderBlock::extend(&mut self.partial_block, frame, HEADER_BLOCK_MAX)? {
            Some(block) => self.on_header_block(block.stream, &block.bytes, block.ends_stream, finished),
            None => Ok(()),
        }
    }

    fn on_header_block(
        &mut self,
        stream: u32,
        block: &[u8],
        ends_stream: bool,
        finished: &mut Vec<Finished>,
    ) -> Result<(), ConnectionError> {
        // Decoded even when the call is over, for the decoder's table.
        self.decoder.decode(block, HEADER_BLOCK_MAX, &mut self.fields)?;
        if let Some(call) = self.calls.get_mut(&stream) {
            for (name, value) in self.fields.iter() {
                call.answer.field(name, value);
            }
        }
        if ends_stream {
            self.finish(stream, finished, Answer::outcome);
        }
        Ok(())
    }

    fn on_settings(&mut self, frame: &Frame<'_>) -> Result<(), ConnectionError> {
        let Some(settings) = frame.settings()? else { return Ok(()) };
        let server = self
            .server
            .get_or_insert(ServerSettings { max_streams: u32::MAX, stream_window: DEFAULT_WINDOW });
        for (name, value) in settings {
            match name {
                setting::HEADER_TABLE_SIZE => self.headers.table_resized(value),
                setting::MAX_CONCURRENT_STREAMS => server.max_streams = value,
                setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(WindowOverflow.into()),
                setting::INITIAL_WINDOW_SIZE => server.stream_window = value,
                _ => {}
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut self.outgoing);
        Ok(())
    }

    fn on_goaway(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = frame.payload.first_chunk::<8>() else {
            return Err(ConnectionError::frame_size("a GOAWAY has a wrong length"));
        };
        let last = u32::from_be_bytes([l0 & 0x7f, l1, l2, l3]);
        self.gone_away = Some(u32::from_be_bytes([c0, c1, c2, c3]));
        // What comes after the last stream that the server has looked at will never be answered.
        let unseen = self.calls.extract_if(|&stream, _| stream > last);
        let outcome = Outcome::Failed(Failure::ConnectionLost);
        finished.extend(unseen.map(|(_, call)| Finished { started: call.started, outcome }));
        Ok(())
    }

    fn finish(
        &mut self,
        stream: u32,
        finished: &mut Vec<Finished>,
        outcome: impl FnOnce(&Answer) -> Outcome,
    ) {
        if let Some(call) = self.calls.remove(&stream) {
            finished.push(Finished { started: call.started, outcome: outcome(&call.answer) });
        }
    }
}

#[cfg(test)]
mod tests;
