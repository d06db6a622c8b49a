//! One HTTP/2 connection of a client: its streams, its windows and its end.
//!
//! Invariant: a request starts only when it can be sent in full, within the server's limit of streams and the connection's window. Streams
//! therefore hold no unsent data.

use super::request_encoder::RequestEncoder;
use crate::{
    ConnectionError, FieldNames, PartialHeaderBlock, ReadBuffer, error_name,
    flow_control::{DEFAULT_WINDOW, RecvWindow, SendWindow, WINDOW_MAX, WindowOverflow},
    frame::{self, Frame, PREFACE, setting},
    hpack::Decoder,
};
use hashbrown::HashMap;

/// The largest body that can be sent: half of the smallest window that a server starts with. Servers raise a window when half of it is
/// used, so that a request never waits for a WINDOW_UPDATE that is never sent.
pub const BODY_MAX: usize = 32_767;

/// This client's window for the whole connection, raised again when half of it is used.
const OWN_WINDOW: u32 = 1 << 30;
/// This client's window for one stream: far larger than any response, so that it is never raised.
const OWN_STREAM_WINDOW: u32 = 16 << 20;
/// Bytes of a response's header block; more than any server sends.
const HEADER_BLOCK_MAX: usize = 64 << 10;

/// Receives the response of one request.
pub trait Response: Default {
    /// One field of the headers or trailers.
    fn field(&mut self, name: &[u8], value: &[u8]);

    /// A piece of the body; may be empty.
    fn data(&mut self, piece: &[u8]);
}

/// The server's stream window is smaller than the request: it can never be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's window of {window} bytes is too small for a request of {body} bytes")]
pub struct WindowTooSmall {
    window: u32,
    body: usize,
}

/// A request after the end of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished<R> {
    /// The token given to [`Connection::start`].
    pub token: u64,
    /// How the stream ended.
    pub end: StreamEnd<R>,
}

/// The end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd<R> {
    /// With END_STREAM.
    Complete(R),
    /// With RST_STREAM of this error code.
    Reset(u32),
    /// Not processed: after the last stream of a GOAWAY.
    Unprocessed,
}

/// The client half of one connection.
pub struct Connection<R> {
    incoming: ReadBuffer,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are already written.
    written: usize,
    encoder: RequestEncoder,
    decoder: Decoder,
    /// Requests in flight, by stream.
    requests: HashMap<u32, InFlight<R>, foldhash::fast::RandomState>,
    /// Odd and increasing; beyond [`frame::STREAM_MAX`] the connection starts nothing more.
    next_stream: u32,
    recv_window: RecvWindow,
    send_window: SendWindow,
    /// The server's SETTINGS; `None` until the first, and until then nothing starts.
    server: Option<ServerSettings>,
    /// A header block without END_HEADERS yet.
    partial_block: Option<PartialHeaderBlock>,
    /// The error code of the server's GOAWAY.
    goaway: Option<u32>,
}

struct InFlight<R> {
    token: u64,
    response: R,
}

struct ServerSettings {
    max_streams: u32,
    stream_window: u32,
}

impl<R: Response> Connection<R> {
    /// A new connection; the preface and SETTINGS are ready to be written.
    pub fn new(encoder: RequestEncoder) -> Self {
        let mut outgoing = PREFACE.to_vec();
        let settings = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, OWN_STREAM_WINDOW)];
        frame::write_settings(&settings, &mut outgoing);
        frame::write_window_update(0, OWN_WINDOW - DEFAULT_WINDOW, &mut outgoing);
        Self {
            incoming: ReadBuffer::default(),
            outgoing,
            written: 0,
            encoder,
            decoder: Decoder::new(FieldNames::none()),
            requests: HashMap::default(),
            next_stream: 1,
            recv_window: RecvWindow::new(OWN_WINDOW),
            send_window: SendWindow::new(DEFAULT_WINDOW),
            server: None,
            partial_block: None,
            goaway: None,
        }
    }

    /// Whether a request with a body of this length, at most [`BODY_MAX`], can start now.
    pub fn has_room(&self, body: usize) -> Result<bool, WindowTooSmall> {
        let Some(server) = &self.server else {
            return Ok(false);
        };
        if body > server.stream_window as usize {
            return Err(WindowTooSmall { window: server.stream_window, body });
        }
        Ok(!self.is_used_up()
            && self.requests.len() < server.max_streams as usize
            && self.send_window.available() >= body)
    }

    /// Starts a request. Expects [`Self::has_room`]. Its end carries `token`.
    pub fn start(&mut self, body: &[u8], token: u64) {
        debug_assert!(body.len() <= BODY_MAX && self.has_room(body.len()) == Ok(true));
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.encoder.next_block();
        frame::write(frame::HEADERS, frame::END_HEADERS, stream, block, &mut self.outgoing);
        let mut rest = body;
        while rest.len() > frame::PAYLOAD_MAX {
            let (piece, after) = rest.split_at(frame::PAYLOAD_MAX);
            frame::write(frame::DATA, 0, stream, piece, &mut self.outgoing);
            rest = after;
        }
        frame::write(frame::DATA, frame::END_STREAM, stream, rest, &mut self.outgoing);
        self.send_window.consume(body.len());
        self.requests.insert(stream, InFlight { token, response: R::default() });
    }

    /// Whether the server's SETTINGS have arrived; nothing starts before.
    pub fn is_ready(&self) -> bool {
        self.server.is_some()
    }

    /// Number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    /// Whether nothing will ever start here again: the server sent GOAWAY, or the stream ids are used up.
    pub fn is_used_up(&self) -> bool {
        self.goaway.is_some() || self.next_stream > frame::STREAM_MAX
    }

    /// The name of the error code of the server's GOAWAY, unless it is NO_ERROR.
    pub fn goaway_error(&self) -> Option<&'static str> {
        self.goaway.filter(|&code| code != 0).map(error_name)
    }

    /// The bytes to write next.
    pub fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// Marks the first `count` of the unwritten bytes as written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.written = 0;
        }
    }

    /// Processes bytes read; requests that end are added to `finished`.
    pub fn read(&mut self, bytes: &[u8], finished: &mut Vec<Finished<R>>) -> Result<(), ConnectionError> {
        let mut incoming = std::mem::take(&mut self.incoming);
        let taken = incoming.read(bytes, |rest| self.take_frames(rest, finished));
        self.incoming = incoming;
        taken
    }

    /// Ends the connection: nothing more is written or started. Returns the tokens of the requests in flight.
    pub fn close(&mut self) -> impl Iterator<Item = u64> {
        self.goaway.get_or_insert(0);
        self.outgoing.clear();
        self.written = 0;
        self.requests.drain().map(|(_, request)| request.token)
    }

    fn take_frames(
        &mut self,
        bytes: &mut &[u8],
        finished: &mut Vec<Finished<R>>,
    ) -> Result<(), ConnectionError> {
        while let Some(frame) = Frame::take(bytes)? {
            if self.server.is_none() && frame.kind != frame::SETTINGS {
                return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
            }
            if self.partial_block.is_some() && frame.kind != frame::CONTINUATION {
                return Err(ConnectionError::protocol("a header block is interrupted"));
            }
            match frame.kind {
                frame::DATA => self.on_data(&frame, finished)?,
                frame::HEADERS => self.on_headers(&frame, finished)?,
                frame::CONTINUATION => self.on_continuation(&frame, finished)?,
                frame::RST_STREAM => {
                    let code = frame.number()?;
                    self.finish(frame.stream, finished, |_| StreamEnd::Reset(code));
                }
                frame::SETTINGS => self.on_settings(&frame)?,
                frame::PING if !frame.has(frame::ACK) => {
                    frame::write(frame::PING, frame::ACK, 0, frame.ping()?, &mut self.outgoing);
                }
                frame::GOAWAY => self.on_goaway(&frame, finished)?,
                // Stream windows are not tracked, because each request was sent in full.
                frame::WINDOW_UPDATE if frame.stream == 0 => {
                    self.send_window.increase(frame.number()? & WINDOW_MAX)?;
                }
                frame::PUSH_PROMISE => {
                    return Err(ConnectionError::protocol("PUSH_PROMISE although ENABLE_PUSH is 0"));
                }
                // PRIORITY is deprecated, and unknown types must be ignored (RFC 9113, section 4.1).
                _ => {}
            }
        }
        Ok(())
    }

    fn on_data(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished<R>>) -> Result<(), ConnectionError> {
        // Padding counts against the window. So do DATA of a stream that has ended.
        self.recv_window.receive(frame.payload.len())?;
        if let Some(raise) = self.recv_window.release(frame.payload.len()) {
            frame::write_window_update(0, raise, &mut self.outgoing);
        }
        let content = frame.content()?;
        if let Some(request) = self.requests.get_mut(&frame.stream) {
            request.response.data(content);
        }
        if frame.has(frame::END_STREAM) {
            self.finish(frame.stream, finished, StreamEnd::Complete);
        }
        Ok(())
    }

    fn on_headers(
        &mut self,
        frame: &Frame<'_>,
        finished: &mut Vec<Finished<R>>,
    ) -> Result<(), ConnectionError> {
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
        finished: &mut Vec<Finished<R>>,
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
        finished: &mut Vec<Finished<R>>,
    ) -> Result<(), ConnectionError> {
        // Decoded even if the stream has ended: the block may change the dynamic table.
        self.decoder.decode(block, HEADER_BLOCK_MAX)?;
        if let Some(request) = self.requests.get_mut(&stream) {
            for (name, value) in self.decoder.fields().all() {
                request.response.field(name, value);
            }
        }
        if ends_stream {
            self.finish(stream, finished, StreamEnd::Complete);
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
                setting::HEADER_TABLE_SIZE => self.encoder.table_resized(value),
                setting::MAX_CONCURRENT_STREAMS => server.max_streams = value,
                setting::INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(WindowOverflow.into()),
                setting::INITIAL_WINDOW_SIZE => server.stream_window = value,
                _ => {}
            }
        }
        frame::write(frame::SETTINGS, frame::ACK, 0, &[], &mut self.outgoing);
        Ok(())
    }

    fn on_goaway(
        &mut self,
        frame: &Frame<'_>,
        finished: &mut Vec<Finished<R>>,
    ) -> Result<(), ConnectionError> {
        let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = frame.payload.first_chunk::<8>() else {
            return Err(ConnectionError::frame_size("wrong length of GOAWAY"));
        };
        let last = u32::from_be_bytes([l0 & 0x7f, l1, l2, l3]);
        self.goaway = Some(u32::from_be_bytes([c0, c1, c2, c3]));
        // The server processes no stream above the last one it names.
        let unprocessed = self.requests.extract_if(|&stream, _| stream > last);
        finished.extend(
            unprocessed.map(|(_, request)| Finished { token: request.token, end: StreamEnd::Unprocessed }),
        );
        Ok(())
    }

    fn finish(&mut self, stream: u32, finished: &mut Vec<Finished<R>>, end: impl FnOnce(R) -> StreamEnd<R>) {
        if let Some(request) = self.requests.remove(&stream) {
            finished.push(Finished { token: request.token, end: end(request.response) });
        }
    }
}

#[cfg(test)]
mod tests;
