//! One HTTP/2 connection: its streams, its windows and its end.
//!
//! A call is started only when it can be sent whole: within the server's limit of streams and the connection's
//! window. So a stream needs no memory of what is still to be sent.

use super::{
    answer::{Answer, Failure, Outcome},
    request_headers::RequestHeaders,
};
use crate::http2::{
    Broken, error_name,
    frame::{self, Frame},
    hpack::{Decoder, Fields, HpackError},
};
use hashbrown::HashMap;

/// The largest message that can be sent. Half of the smallest window a server starts with: servers give back window
/// when half of it is used, so that a call never waits for room that cannot come.
pub(crate) const MAX_MESSAGE: usize = 32_767;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The window before any SETTINGS or WINDOW_UPDATE.
const DEFAULT_WINDOW: u32 = 65_535;
const MAX_WINDOW: u32 = 0x7fff_ffff;
/// This client's window for the whole connection; given back when half of it is used.
const OWN_WINDOW: u32 = 1 << 30;
/// This client's window for one stream: far beyond any answer, so that it is never given back.
const OWN_STREAM_WINDOW: u32 = 16 << 20;
const MAX_STREAM_ID: u32 = 0x7fff_ffff;
/// More than any server sends before or after an answer.
const MAX_HEADER_BLOCK: usize = 64 << 10;

mod setting {
    pub(super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(super) const ENABLE_PUSH: u16 = 2;
    pub(super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;
}

/// The connection cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ConnectionError {
    #[error("the server broke HTTP/2: {0}")]
    Frame(#[from] Broken),
    #[error("the server broke HTTP/2: {0}")]
    Protocol(&'static str),
    #[error("the server broke HTTP/2: {0}")]
    Headers(#[from] HpackError),
    #[error("the server's window of {window} bytes is too small for a request of {message} bytes")]
    WindowTooSmall { window: u32, message: usize },
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
    /// What was read of a frame that is not whole yet.
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is already written.
    written: usize,
    headers: RequestHeaders,
    decoder: Decoder,
    /// Those of the block that was read last.
    fields: Fields,
    /// The calls under way, by stream.
    calls: HashMap<u32, Call, foldhash::fast::RandomState>,
    /// Odd and rising; beyond [`MAX_STREAM_ID`] the connection is used up.
    next_stream: u32,
    /// How many bytes of DATA the server still takes.
    window: i64,
    /// Bytes of DATA read since the window was last given back.
    unreturned: u32,
    /// What the server said in its SETTINGS; `None` until it did, and until then no call starts.
    server: Option<ServerSettings>,
    /// A header block whose end has not come.
    open_block: Option<HeaderBlock>,
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

struct HeaderBlock {
    stream: u32,
    bytes: Vec<u8>,
    ends_stream: bool,
}

impl Connection {
    /// A connection just made. Its first bytes are ready to be written.
    pub(crate) fn new(headers: RequestHeaders) -> Self {
        let mut outgoing = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (name, value) in [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, OWN_STREAM_WINDOW)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(frame::SETTINGS, 0, 0, &settings, &mut outgoing);
        let raise = OWN_WINDOW - DEFAULT_WINDOW;
        frame::write(frame::WINDOW_UPDATE, 0, 0, &raise.to_be_bytes(), &mut outgoing);
        Self {
            incoming: Vec::new(),
            outgoing,
            written: 0,
            headers,
            decoder: Decoder::new(),
            fields: Fields::default(),
            calls: HashMap::default(),
            next_stream: 1,
            window: i64::from(DEFAULT_WINDOW),
            unreturned: 0,
            server: None,
            open_block: None,
            gone_away: None,
        }
    }

    /// Whether a call with a message of this length, at most [`MAX_MESSAGE`], can be started now.
    pub(crate) fn has_room(&self, message: usize) -> Result<bool, ConnectionError> {
        let Some(server) = &self.server else {
            return Ok(false);
        };
        if message > server.stream_window as usize {
            return Err(ConnectionError::WindowTooSmall { window: server.stream_window, message });
        }
        Ok(!self.takes_no_more()
            && self.calls.len() < server.max_streams as usize
            && self.window >= message as i64)
    }

    /// Starts a call, for which there must be room. `started` comes back with its end.
    pub(crate) fn start(&mut self, message: &[u8], started: u64) {
        debug_assert!(message.len() <= MAX_MESSAGE && self.has_room(message.len()) == Ok(true));
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.headers.next();
        frame::write(frame::HEADERS, frame::END_HEADERS, stream, block, &mut self.outgoing);
        let mut rest = message;
        while rest.len() > frame::MAX_PAYLOAD {
            let (piece, after) = rest.split_at(frame::MAX_PAYLOAD);
            frame::write(frame::DATA, 0, stream, piece, &mut self.outgoing);
            rest = after;
        }
        frame::write(frame::DATA, frame::END_STREAM, stream, rest, &mut self.outgoing);
        self.window -= message.len() as i64;
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
        self.gone_away.is_some() || self.next_stream > MAX_STREAM_ID
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
        if self.incoming.is_empty() {
            let mut rest = bytes;
            self.take_frames(&mut rest, finished)?;
            self.incoming.extend_from_slice(rest);
        } else {
            let mut incoming = std::mem::take(&mut self.incoming);
            incoming.extend_from_slice(bytes);
            let mut rest = &incoming[..];
            self.take_frames(&mut rest, finished)?;
            let taken = incoming.len() - rest.len();
            incoming.drain(..taken);
            self.incoming = incoming;
        }
        Ok(())
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
                return Err(ConnectionError::Protocol("its first frame is not SETTINGS"));
            }
            if self.open_block.is_some() && frame.kind != frame::CONTINUATION {
                return Err(ConnectionError::Protocol("a header block is interrupted"));
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
                    if frame.payload.len() != 8 {
                        return Err(ConnectionError::Protocol("a PING has a wrong length"));
                    }
                    frame::write(frame::PING, frame::ACK, 0, frame.payload, &mut self.outgoing);
                }
                frame::GOAWAY => self.on_goaway(&frame, finished)?,
                // A stream's own window is of no interest: its call was sent whole.
                frame::WINDOW_UPDATE if frame.stream == 0 => {
                    self.window += i64::from(frame.number()? & MAX_WINDOW);
                    if self.window > i64::from(MAX_WINDOW) {
                        return Err(ConnectionError::Protocol("a window grows beyond its bound"));
                    }
                }
                frame::PUSH_PROMISE => return Err(ConnectionError::Protocol("it pushes though told not to")),
                // PRIORITY, and kinds that are yet to be invented, are to be ignored.
                _ => {}
            }
        }
        if self.unreturned >= OWN_WINDOW / 2 {
            let returned = std::mem::take(&mut self.unreturned);
            frame::write(frame::WINDOW_UPDATE, 0, 0, &returned.to_be_bytes(), &mut self.outgoing);
        }
        Ok(())
    }

    fn on_data(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        // Padding uses the window too, and so does what comes for a call that is over.
        self.unreturned = self.unreturned.saturating_add(frame.payload.len() as u32);
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
        let ends_stream = frame.has(frame::END_STREAM);
        self.open_block = Some(HeaderBlock { stream: frame.stream, bytes: content.to_vec(), ends_stream });
        Ok(())
    }

    fn on_continuation(
        &mut self,
        frame: &Frame<'_>,
        finished: &mut Vec<Finished>,
    ) -> Result<(), ConnectionError> {
        let Some(mut block) = self.open_block.take_if(|block| block.stream == frame.stream) else {
            return Err(ConnectionError::Protocol("a CONTINUATION continues nothing"));
        };
        block.bytes.extend_from_slice(frame.payload);
        if frame.has(frame::END_HEADERS) {
            return self.on_header_block(block.stream, &block.bytes, block.ends_stream, finished);
        }
        if block.bytes.len() > MAX_HEADER_BLOCK {
            return Err(ConnectionError::Protocol("a header block does not end"));
        }
        self.open_block = Some(block);
        Ok(())
    }

    fn on_header_block(
        &mut self,
        stream: u32,
        block: &[u8],
        ends_stream: bool,
        finished: &mut Vec<Finished>,
    ) -> Result<(), ConnectionError> {
        // Decoded even when the call is over, for the decoder's table.
        self.decoder.decode(block, MAX_HEADER_BLOCK, &mut self.fields)?;
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
        if frame.has(frame::ACK) {
            return Ok(());
        }
        let (settings, []) = frame.payload.as_chunks::<6>() else {
            return Err(ConnectionError::Protocol("a SETTINGS has a wrong length"));
        };
        let server = self
            .server
            .get_or_insert(ServerSettings { max_streams: u32::MAX, stream_window: DEFAULT_WINDOW });
        for &[n0, n1, v0, v1, v2, v3] in settings {
            let value = u32::from_be_bytes([v0, v1, v2, v3]);
            match u16::from_be_bytes([n0, n1]) {
                setting::HEADER_TABLE_SIZE => self.headers.table_resized(value),
                setting::MAX_CONCURRENT_STREAMS => server.max_streams = value,
                setting::INITIAL_WINDOW_SIZE if value > MAX_WINDOW => {
                    return Err(ConnectionError::Protocol("a window is set beyond its bound"));
                }
                setting::INITIAL_WINDOW_SIZE => server.stream_window = value,
                _ => {}
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut self.outgoing);
        Ok(())
    }

    fn on_goaway(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), ConnectionError> {
        let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = frame.payload.first_chunk::<8>() else {
            return Err(ConnectionError::Protocol("a GOAWAY has a wrong length"));
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
