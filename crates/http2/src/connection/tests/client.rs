//! A client that the tests drive frame by frame, and the frames that it receives.

use super::*;
use crate::{
    BodyMemory, FieldNames,
    hpack::{Decoder, write_indexed, write_literal},
    task_event::TaskEvent,
};
use std::sync::Arc;
use tokio::sync::mpsc;

/// A frame from the server, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Received {
    Settings,
    Ack,
    WindowUpdate(u32, u32),
    Head(u32, Vec<(String, String)>),
    Data(u32, Vec<u8>),
    End(u32),
    Reset(u32, u32),
    Ping(Vec<u8>),
    PingAck(Vec<u8>),
    GoAway(u32, u32),
}
use Received::*;

pub(super) struct Client {
    pub(super) server: Connection<Echo>,
    /// Wake-ups of the connection by its tasks.
    _from_tasks: mpsc::UnboundedReceiver<(u32, TaskEvent)>,
    decoder: Decoder,
    pub(super) next_stream: u32,
}

impl Client {
    pub(super) fn silent(settings: Http2Settings) -> Self {
        let (tasks, from_tasks) = mpsc::unbounded_channel();
        let server = Connection::new(settings, tasks);
        Self { server, _from_tasks: from_tasks, decoder: Decoder::new(FieldNames::none()), next_stream: 1 }
    }

    /// A client whose connection shares this memory for incomplete requests.
    pub(super) fn sharing(memory: &Arc<BodyMemory>) -> Self {
        let mut client = Self::silent(Http2Settings::default());
        client.server = client.server.with_share(memory.share());
        client.sends(&opening(&[]));
        client.receives();
        client
    }

    /// A client that has sent its preface and these settings, and has read the server's response to them.
    pub(super) fn with(settings: Http2Settings, own: &[(u16, u32)]) -> Self {
        let mut client = Self::silent(settings);
        client.sends(&opening(own));
        assert!(matches!(&client.receives()[..], [Settings, WindowUpdate(0, _), Ack]));
        client
    }

    pub(super) fn new() -> Self {
        Self::with(Http2Settings::default(), &[])
    }

    pub(super) fn sends(&mut self, bytes: &[u8]) {
        self.server.read(bytes, &Echo);
    }

    pub(super) fn sends_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.sends(&frame_bytes(kind, flags, stream, payload));
    }

    /// Sends HEADERS. Returns the stream.
    pub(super) fn opens(&mut self, path: &str, flags: u8) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.sends_frame(frame::HEADERS, frame::END_HEADERS | flags, stream, &head(path));
        stream
    }

    /// Makes a call in the common form: HEADERS and DATA in one read.
    pub(super) fn calls(&mut self, body: &[u8]) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.sends(&call(stream, body));
        stream
    }

    /// Returns the frames that the server has sent.
    pub(super) fn receives(&mut self) -> Vec<Received> {
        let bytes = self.server.unwritten().to_vec();
        self.server.wrote(bytes.len());
        let mut rest = &bytes[..];
        let mut received = Vec::new();
        while let Some(frame) = Frame::take(&mut rest).expect("the server keeps to the protocol") {
            self.decode(&frame, &mut received);
        }
        assert!(rest.is_empty(), "whole frames only");
        received
    }

    fn decode(&mut self, frame: &Frame<'_>, received: &mut Vec<Received>) {
        let stream = frame.stream;
        let number = |at: usize| {
            u32::from_be_bytes(frame.payload[at..at + 4].try_into().expect("a payload with a number"))
        };
        received.push(match frame.kind {
            frame::SETTINGS if frame.has(frame::ACK) => Ack,
            frame::SETTINGS => Settings,
            frame::WINDOW_UPDATE => WindowUpdate(stream, number(0)),
            frame::HEADERS => {
                self.decoder.decode(frame.payload, usize::MAX).expect("a good block");
                let fields = self.decoder.fields();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Head(stream, fields.all().map(|(name, value)| (text(name), text(value))).collect())
            }
            frame::DATA => Data(stream, frame.payload.to_vec()),
            frame::RST_STREAM => Reset(stream, number(0)),
            frame::PING if frame.has(frame::ACK) => PingAck(frame.payload.to_vec()),
            frame::PING => Ping(frame.payload.to_vec()),
            frame::GOAWAY => GoAway(number(0), number(4)),
            other => panic!("a frame of kind {other}"),
        });
        if matches!(frame.kind, frame::HEADERS | frame::DATA) && frame.has(frame::END_STREAM) {
            received.push(End(stream));
        }
    }

    /// Asserts that the server ended the connection with this error.
    pub(super) fn fails_with(&mut self, code: ErrorCode) {
        assert!(matches!(self.receives().last(), Some(GoAway(_, received)) if *received == code as u32));
        assert!(self.server.is_finished() && self.server.failure().is_some());
    }
}

pub(super) fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(kind, flags, stream, payload, &mut bytes);
    bytes
}

pub(super) fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::write_settings(settings, &mut bytes);
    bytes
}

pub(super) fn head(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    write_indexed(3, &mut block);
    write_indexed(6, &mut block);
    write_literal(b":path", path.as_bytes(), false, &mut block);
    write_literal(b"content-type", b"application/grpc", false, &mut block);
    block
}

/// The head of a fast-path call to an authority, with another header that may be indexed.
pub(super) fn head_to(authority: &str, (name, value): (&str, &str), indexed: bool) -> Vec<u8> {
    let mut block = Vec::new();
    write_literal(b":authority", authority.as_bytes(), false, &mut block);
    block.extend(head("/fast"));
    write_literal(name.as_bytes(), value.as_bytes(), indexed, &mut block);
    block
}

pub(super) fn call(stream: u32, body: &[u8]) -> Vec<u8> {
    call_with(&head("/fast"), stream, body)
}

pub(super) fn call_with(block: &[u8], stream: u32, body: &[u8]) -> Vec<u8> {
    [
        frame_bytes(frame::HEADERS, frame::END_HEADERS, stream, block),
        frame_bytes(frame::DATA, frame::END_STREAM, stream, body),
    ]
    .concat()
}

/// A response of the fast path, as received.
pub(super) fn response(stream: u32, body: &[u8]) -> Vec<Received> {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        Head(stream, vec![field(":status", "200"), field("content-type", "application/grpc")]),
        Data(stream, body.to_vec()),
        Head(stream, vec![field("grpc-status", "0")]),
        End(stream),
    ]
}
