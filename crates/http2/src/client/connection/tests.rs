//! The client half against a server with frames written by the tests.

use super::*;
use crate::hpack::write_literal;

const BODY: &[u8] = b"the body";

/// Records a response.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Recorded {
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Response for Recorded {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        self.fields.push((text(name), text(value)));
    }

    fn data(&mut self, piece: &[u8]) {
        self.body.extend_from_slice(piece);
    }
}

fn complete(fields: &[(&str, &str)], body: &[u8]) -> StreamEnd<Recorded> {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    StreamEnd::Complete(Recorded { fields, body: body.to_vec() })
}

fn new_connection() -> Connection<Recorded> {
    Connection::new(RequestEncoder::new("/path", &[(":authority", "test")]))
}

/// A connection and the frames of its server.
struct Script {
    connection: Connection<Recorded>,
    finished: Vec<Finished<Recorded>>,
}

impl Script {
    /// A connection that has received these SETTINGS.
    fn with_settings(settings: &[(u16, u32)]) -> Self {
        let mut script = Self { connection: new_connection(), finished: Vec::new() };
        assert_eq!(script.connection.has_room(1), Ok(false), "no request before the server's SETTINGS");
        let mut bytes = Vec::new();
        frame::write_settings(settings, &mut bytes);
        script.connection.read(&bytes, &mut script.finished).expect("valid SETTINGS");
        script.written();
        script
    }

    fn try_receive(
        &mut self,
        kind: u8,
        flags: u8,
        stream: u32,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, payload, &mut bytes);
        self.connection.read(&bytes, &mut self.finished)
    }

    fn receives(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_receive(kind, flags, stream, payload).expect("a valid frame");
    }

    /// Takes the frames written, as (type, flags, stream, length of payload).
    fn written(&mut self) -> Vec<(u8, u8, u32, usize)> {
        let bytes = self.connection.unwritten().to_vec();
        self.connection.wrote(bytes.len());
        let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let Some(frame) = Frame::take(&mut rest).expect("valid frames") {
            frames.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
        }
        assert!(rest.is_empty(), "whole frames only");
        frames
    }

    /// Takes the requests that have ended.
    fn ended(&mut self) -> Vec<(u64, StreamEnd<Recorded>)> {
        self.finished.drain(..).map(|finished| (finished.token, finished.end)).collect()
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        write_literal(name.as_bytes(), value.as_bytes(), true, &mut block);
    }
    block
}

#[test]
fn a_response_is_headers_body_and_trailers() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"abc", 11);
    let written = script.written();
    assert_eq!((written[0].0, written[0].1, written[0].2), (frame::HEADERS, frame::END_HEADERS, 1));
    assert_eq!(written[1], (frame::DATA, frame::END_STREAM, 1, 3));

    script.receives(frame::HEADERS, frame::END_HEADERS, 1, &block(&[(":status", "200")]));
    script.receives(frame::DATA, 0, 1, BODY);
    assert_eq!(script.ended(), []);
    let trailers = block(&[("grpc-status", "0")]);
    script.receives(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &trailers);
    let expected = complete(&[(":status", "200"), ("grpc-status", "0")], BODY);
    assert_eq!(script.ended(), [(11, expected.clone())]);
    assert_eq!(script.connection.in_flight(), 0);

    // The same fields by index: entry 62 is the newest, grpc-status.
    script.connection.start(b"abc", 12);
    script.receives(frame::HEADERS, frame::END_HEADERS, 3, &[0xbf]);
    script.receives(frame::DATA, 0, 3, BODY);
    script.receives(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3, &[0xbe]);
    assert_eq!(script.ended(), [(12, expected)]);
}

#[test]
fn bytes_may_arrive_singly_and_header_blocks_in_continuation_frames() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"abc", 5);
    let headers = block(&[(":status", "200")]);
    let trailers = block(&[("grpc-status", "0"), ("grpc-message", "")]);
    let (one, two) = trailers.split_at(4);
    let mut bytes = Vec::new();
    frame::write(frame::HEADERS, frame::END_HEADERS, 1, &headers, &mut bytes);
    frame::write(frame::DATA, 0x8, 1, &[&[3], BODY, &[0; 3]].concat(), &mut bytes);
    frame::write(frame::HEADERS, frame::END_STREAM, 1, one, &mut bytes);
    frame::write(frame::CONTINUATION, 0, 1, &[], &mut bytes);
    frame::write(frame::CONTINUATION, frame::END_HEADERS, 1, two, &mut bytes);
    for byte in bytes {
        script.connection.read(&[byte], &mut script.finished).expect("a valid frame");
    }
    let fields = [(":status", "200"), ("grpc-status", "0"), ("grpc-message", "")];
    assert_eq!(script.ended(), [(5, complete(&fields, BODY))]);
}

#[test]
fn max_concurrent_streams_is_respected() {
    let mut script = Script::with_settings(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    script.connection.start(b"a", 1);
    script.connection.start(b"a", 2);
    assert_eq!(script.connection.has_room(1), Ok(false));
    script.receives(frame::RST_STREAM, 0, 3, &7_u32.to_be_bytes());
    assert_eq!(script.ended(), [(2, StreamEnd::Reset(7))]);
    assert_eq!(script.connection.has_room(1), Ok(true));
}

#[test]
fn the_servers_windows_are_respected() {
    let mut script = Script::with_settings(&[]);
    let body = vec![0; 30_000];
    script.connection.start(&body, 1);
    let written = script.written();
    assert_eq!(written[1..], [(frame::DATA, 0, 1, 16_384), (frame::DATA, frame::END_STREAM, 1, 13_616)]);
    script.connection.start(&body, 2);
    assert_eq!(script.connection.has_room(body.len()), Ok(false), "65,535 bytes are nearly used up");
    script.receives(frame::WINDOW_UPDATE, 0, 0, &30_000_u32.to_be_bytes());
    assert_eq!(script.connection.has_room(body.len()), Ok(true));

    script.receives(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]);
    assert_eq!(script.connection.has_room(10), Err(WindowTooSmall { window: 9, body: 10 }));
}

#[test]
fn the_clients_window_is_returned_when_half_is_used() {
    let mut script = Script::with_settings(&[]);
    let piece = [0; 16_384];
    for _ in 0..OWN_WINDOW as usize / 2 / piece.len() {
        assert_eq!(script.written(), [], "not before half of it is used");
        script.receives(frame::DATA, 0, 1, &piece);
    }
    assert_eq!(script.written(), [(frame::WINDOW_UPDATE, 0, 0, 4)]);
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let mut script = Script::with_settings(&[]);
    script.receives(frame::SETTINGS, 0, 0, &[]);
    script.receives(frame::SETTINGS, frame::ACK, 0, &[]);
    script.receives(frame::PING, 0, 0, b"12345678");
    script.receives(frame::PING, frame::ACK, 0, b"12345678");
    assert_eq!(script.written(), [(frame::SETTINGS, frame::ACK, 0, 0), (frame::PING, frame::ACK, 0, 8)]);
}

#[test]
fn after_goaway_processed_streams_finish_and_nothing_starts() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"a", 1);
    script.connection.start(b"a", 2);
    script.receives(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
    assert_eq!(script.ended(), [(2, StreamEnd::Unprocessed)]);
    assert_eq!(script.connection.has_room(1), Ok(false));
    assert_eq!(script.connection.goaway_error(), Some("ENHANCE_YOUR_CALM"));
    assert_eq!(script.connection.in_flight(), 1);
    let only_headers = block(&[(":status", "200"), ("grpc-status", "14")]);
    script.receives(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &only_headers);
    assert_eq!(script.ended(), [(1, complete(&[(":status", "200"), ("grpc-status", "14")], b""))]);
}

#[test]
fn a_connection_without_stream_ids_takes_no_more_requests() {
    let mut script = Script::with_settings(&[]);
    script.connection.next_stream = frame::STREAM_MAX;
    script.connection.start(b"a", 1);
    assert!(script.connection.is_used_up());
    assert_eq!(script.connection.has_room(1), Ok(false));
}

#[test]
fn closing_returns_the_requests_in_flight() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"a", 3);
    assert_eq!(script.connection.close().collect::<Vec<_>>(), [3]);
    assert_eq!(script.connection.has_room(1), Ok(false));
    assert_eq!(script.written(), []);
}

#[test]
fn protocol_violations_of_the_server_are_errors() {
    for (what, kind, flags, stream, payload) in [
        ("PUSH_PROMISE", frame::PUSH_PROMISE, 0, 1, &[0; 8][..]),
        ("CONTINUATION without HEADERS", frame::CONTINUATION, 0, 1, &[]),
        ("half a setting", frame::SETTINGS, 0, 0, &[0, 1, 0]),
        ("INITIAL_WINDOW_SIZE out of range", frame::SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 0]),
        ("window overflow", frame::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ("a short ping", frame::PING, 0, 0, &[1]),
        ("a short GOAWAY", frame::GOAWAY, 0, 0, &[1]),
        ("an unreadable header block", frame::HEADERS, frame::END_HEADERS, 1, &[0xff]),
    ] {
        let mut script = Script::with_settings(&[]);
        script.connection.start(b"a", 1);
        assert!(script.try_receive(kind, flags, stream, payload).is_err(), "{what}");
    }
    let mut http1 = new_connection();
    assert!(http1.read(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut Vec::new()).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_client_panic(pieces: Vec<Vec<u8>>, frames: Vec<(u8, u8, u8, Vec<u8>)>) {
        let mut script = Script::with_settings(&[]);
        script.connection.start(b"a", 1);
        for (kind, flags, stream, payload) in frames {
            let _ = script.try_receive(kind % 10, flags, u32::from(stream % 4), &payload);
        }
        for piece in pieces {
            let _ = script.connection.read(&piece, &mut script.finished);
        }
    }
}
