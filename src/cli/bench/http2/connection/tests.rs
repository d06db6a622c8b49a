//! The connection against a server that is played frame by frame.

use super::*;
use crate::http2::hpack::write_literal;

const OK: &[u8] = b"\0\0\0\0\x02\x08\x01";

/// A connection and the bytes that its server sends.
struct Script {
    connection: Connection,
    finished: Vec<Finished>,
}

impl Script {
    /// A connection whose server has said these settings.
    fn with_settings(settings: &[(u16, u32)]) -> Self {
        let mut script =
            Self { connection: Connection::new(RequestHeaders::new("test", None)), finished: Vec::new() };
        assert_eq!(script.connection.has_room(1), Ok(false), "no call before the server's settings");
        let mut bytes = Vec::new();
        frame::write_settings(settings, &mut bytes);
        script.connection.read(&bytes, &mut script.finished).expect("good settings");
        script.written();
        script
    }

    fn try_read(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Result<(), ConnectionError> {
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, payload, &mut bytes);
        self.connection.read(&bytes, &mut self.finished)
    }

    fn reads(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.try_read(kind, flags, stream, payload).expect("a server that keeps to the protocol");
    }

    /// What the client has to say, as (kind, flags, stream, length of payload).
    fn written(&mut self) -> Vec<(u8, u8, u32, usize)> {
        let bytes = self.connection.unwritten().to_vec();
        self.connection.wrote(bytes.len());
        let mut rest = bytes.strip_prefix(PREFACE).unwrap_or(&bytes);
        let mut frames = Vec::new();
        while let Some(frame) = Frame::take(&mut rest).expect("the client keeps to the protocol") {
            frames.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
        }
        assert!(rest.is_empty(), "whole frames only");
        frames
    }

    fn outcomes(&mut self) -> Vec<(u64, Outcome)> {
        self.finished.drain(..).map(|finished| (finished.started, finished.outcome)).collect()
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
fn a_call_is_answered_by_headers_message_and_trailers() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"abc", 11);
    let written = script.written();
    assert_eq!((written[0].0, written[0].1, written[0].2), (frame::HEADERS, frame::END_HEADERS, 1));
    assert_eq!(written[1], (frame::DATA, frame::END_STREAM, 1, 3));

    script.reads(frame::HEADERS, frame::END_HEADERS, 1, &block(&[(":status", "200")]));
    script.reads(frame::DATA, 0, 1, OK);
    assert_eq!(script.outcomes(), []);
    let trailers = block(&[("grpc-status", "0")]);
    script.reads(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &trailers);
    assert_eq!(script.outcomes(), [(11, Outcome::Ok)]);
    assert_eq!(script.connection.in_flight(), 0);

    // The same fields by index: entry 62 is the newest, grpc-status.
    script.connection.start(b"abc", 12);
    script.reads(frame::HEADERS, frame::END_HEADERS, 3, &[0xbf]);
    script.reads(frame::DATA, 0, 3, OK);
    script.reads(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 3, &[0xbe]);
    assert_eq!(script.outcomes(), [(12, Outcome::Ok)]);
}

#[test]
fn a_failure_in_the_trailers_is_never_an_ok() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"abc", 1);
    script.reads(frame::HEADERS, frame::END_HEADERS, 1, &block(&[(":status", "200")]));
    script.reads(frame::DATA, 0, 1, OK);
    let trailers = block(&[("grpc-message", "broken"), ("grpc-status", "13")]);
    script.reads(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &trailers);
    assert_eq!(script.outcomes(), [(1, Outcome::Failed(Failure::Status(13)))]);
}

#[test]
fn bytes_may_come_one_by_one_and_headers_in_pieces() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"abc", 5);
    let headers = block(&[(":status", "200")]);
    let trailers = block(&[("grpc-status", "0"), ("grpc-message", "")]);
    let (one, two) = trailers.split_at(4);
    let mut bytes = Vec::new();
    frame::write(frame::HEADERS, frame::END_HEADERS, 1, &headers, &mut bytes);
    frame::write(frame::DATA, 0x8, 1, &[&[3], OK, &[0; 3]].concat(), &mut bytes);
    frame::write(frame::HEADERS, frame::END_STREAM, 1, one, &mut bytes);
    frame::write(frame::CONTINUATION, 0, 1, &[], &mut bytes);
    frame::write(frame::CONTINUATION, frame::END_HEADERS, 1, two, &mut bytes);
    for byte in bytes {
        script.connection.read(&[byte], &mut script.finished).expect("a server that keeps to the protocol");
    }
    assert_eq!(script.outcomes(), [(5, Outcome::Ok)]);
}

#[test]
fn the_servers_limit_of_streams_is_kept() {
    let mut script = Script::with_settings(&[(setting::MAX_CONCURRENT_STREAMS, 2)]);
    script.connection.start(b"a", 1);
    script.connection.start(b"a", 2);
    assert_eq!(script.connection.has_room(1), Ok(false));
    script.reads(frame::RST_STREAM, 0, 3, &7_u32.to_be_bytes());
    assert_eq!(script.outcomes(), [(2, Outcome::Failed(Failure::Reset(7)))]);
    assert_eq!(script.connection.has_room(1), Ok(true));
}

#[test]
fn the_servers_windows_are_kept() {
    let mut script = Script::with_settings(&[]);
    let message = vec![0; 30_000];
    script.connection.start(&message, 1);
    let written = script.written();
    assert_eq!(written[1..], [(frame::DATA, 0, 1, 16_384), (frame::DATA, frame::END_STREAM, 1, 13_616)]);
    script.connection.start(&message, 2);
    assert_eq!(script.connection.has_room(message.len()), Ok(false), "65,535 bytes are nearly used up");
    script.reads(frame::WINDOW_UPDATE, 0, 0, &30_000_u32.to_be_bytes());
    assert_eq!(script.connection.has_room(message.len()), Ok(true));

    script.reads(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 9]);
    assert_eq!(script.connection.has_room(10), Err(WindowTooSmall { window: 9, message: 10 }));
}

#[test]
fn the_clients_window_is_given_back() {
    let mut script = Script::with_settings(&[]);
    let piece = [0; 16_384];
    for _ in 0..OWN_WINDOW as usize / 2 / piece.len() {
        assert_eq!(script.written(), [], "not before half of it is used");
        script.reads(frame::DATA, 0, 1, &piece);
    }
    assert_eq!(script.written(), [(frame::WINDOW_UPDATE, 0, 0, 4)]);
}

#[test]
fn settings_and_pings_are_acknowledged() {
    let mut script = Script::with_settings(&[]);
    script.reads(frame::SETTINGS, 0, 0, &[]);
    script.reads(frame::SETTINGS, frame::ACK, 0, &[]);
    script.reads(frame::PING, 0, 0, b"12345678");
    script.reads(frame::PING, frame::ACK, 0, b"12345678");
    assert_eq!(script.written(), [(frame::SETTINGS, frame::ACK, 0, 0), (frame::PING, frame::ACK, 0, 8)]);
}

#[test]
fn after_a_goaway_what_was_seen_is_still_answered_and_nothing_is_started() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"a", 1);
    script.connection.start(b"a", 2);
    script.reads(frame::GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
    assert_eq!(script.outcomes(), [(2, Outcome::Failed(Failure::ConnectionLost))]);
    assert_eq!(script.connection.has_room(1), Ok(false));
    assert_eq!(script.connection.farewell(), Some("ENHANCE_YOUR_CALM"));
    assert_eq!(script.connection.in_flight(), 1);
    let only_headers = block(&[(":status", "200"), ("grpc-status", "14")]);
    script.reads(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &only_headers);
    assert_eq!(script.outcomes(), [(1, Outcome::Failed(Failure::Status(14)))]);
}

#[test]
fn a_connection_whose_stream_ids_are_used_up_takes_no_more() {
    let mut script = Script::with_settings(&[]);
    script.connection.next_stream = frame::STREAM_MAX;
    script.connection.start(b"a", 1);
    assert!(script.connection.takes_no_more());
    assert_eq!(script.connection.has_room(1), Ok(false));
}

#[test]
fn an_ended_connection_fails_what_was_under_way() {
    let mut script = Script::with_settings(&[]);
    script.connection.start(b"a", 3);
    script.connection.end(Failure::ConnectionLost, &mut script.finished);
    assert_eq!(script.outcomes(), [(3, Outcome::Failed(Failure::ConnectionLost))]);
    assert_eq!(script.connection.has_room(1), Ok(false));
    assert_eq!(script.written(), []);
}

#[test]
fn a_server_that_breaks_the_protocol_is_told_apart() {
    for (what, kind, flags, stream, payload) in [
        ("a push", frame::PUSH_PROMISE, 0, 1, &[0; 8][..]),
        ("a CONTINUATION of nothing", frame::CONTINUATION, 0, 1, &[]),
        ("half a setting", frame::SETTINGS, 0, 0, &[0, 1, 0]),
        ("a window beyond its bound", frame::SETTINGS, 0, 0, &[0, 4, 0xff, 0, 0, 0]),
        ("a window grown beyond its bound", frame::WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff]),
        ("a short ping", frame::PING, 0, 0, &[1]),
        ("a short GOAWAY", frame::GOAWAY, 0, 0, &[1]),
        ("an unreadable header block", frame::HEADERS, frame::END_HEADERS, 1, &[0xff]),
    ] {
        let mut script = Script::with_settings(&[]);
        script.connection.start(b"a", 1);
        assert!(script.try_read(kind, flags, stream, payload).is_err(), "{what}");
    }
    let mut http1 = Connection::new(RequestHeaders::new("test", None));
    assert!(http1.read(b"HTTP/1.1 400 Bad Request\r\n\r\n", &mut Vec::new()).is_err());
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_client_panic(pieces: Vec<Vec<u8>>, frames: Vec<(u8, u8, u8, Vec<u8>)>) {
        let mut script = Script::with_settings(&[]);
        script.connection.start(b"a", 1);
        for (kind, flags, stream, payload) in frames {
            let _ = script.try_read(kind % 10, flags, u32::from(stream % 4), &payload);
        }
        for piece in pieces {
            let _ = script.connection.read(&piece, &mut script.finished);
        }
    }
}
