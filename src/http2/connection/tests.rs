//! The connection against a client that is played frame by frame.

use super::*;
use crate::http2::{
    Fields,
    hpack::{Decoder, write_indexed, write_literal},
    routed::FromTask,
};
use http::Response;
use proptest::prelude::*;
use std::{convert::Infallible, sync::Arc};
use tokio::sync::mpsc;

/// Echoes the bodies of calls to `/quick`, but for those that say `route`; never answers anything else.
struct Echo;

impl Service for Echo {
    type Quick = ();
    type Body = http_body_util::Empty<bytes::Bytes>;

    fn quick(&self, head: &Fields) -> Option<()> {
        (head.get(b":path") == Some(b"/quick")).then_some(())
    }

    fn answer(&self, (): (), body: &[u8], out: &mut Vec<u8>) -> bool {
        if body == b"route" {
            return false;
        }
        out.extend_from_slice(body);
        true
    }

    async fn route(self: Arc<Self>, _: Request<RequestBody>) -> Response<Self::Body> {
        std::future::pending::<Infallible>().await;
        unreachable!("nothing comes after for ever")
    }
}

/// What the server said, as a client reads it.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Said {
    Settings,
    Ack,
    Raise(u32, u32),
    Head(u32, Vec<(String, String)>),
    Data(u32, Vec<u8>),
    End(u32),
    Reset(u32, u32),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    GoAway(u32, u32),
}
use Said::*;

struct Client {
    server: Connection<Echo>,
    /// What its tasks would be told to tell it by.
    _from_tasks: mpsc::UnboundedReceiver<(u32, FromTask)>,
    decoder: Decoder,
    next_stream: u32,
}

impl Client {
    fn silent(settings: Http2Settings) -> Self {
        let (tasks, from_tasks) = mpsc::unbounded_channel();
        let server = Connection::new(settings, tasks);
        Self { server, _from_tasks: from_tasks, decoder: Decoder::new(), next_stream: 1 }
    }

    /// A client that has said its preface and these settings, and read what the server said to that.
    fn with(settings: Http2Settings, own: &[(u16, u32)]) -> Self {
        let mut client = Self::silent(settings);
        client.sends(&opening(own));
        assert!(matches!(&client.hears()[..], [Settings, Raise(0, _), Ack]));
        client
    }

    fn new() -> Self {
        Self::with(Http2Settings::default(), &[])
    }

    fn sends(&mut self, bytes: &[u8]) {
        self.server.read(bytes, &Echo);
    }

    fn sends_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.sends(&frame_bytes(kind, flags, stream, payload));
    }

    /// Sends a head; its stream.
    fn starts(&mut self, path: &str, flags: u8) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.sends_frame(frame::HEADERS, frame::END_HEADERS | flags, stream, &head(path));
        stream
    }

    /// Makes a call in the common form: head and body come together.
    fn calls(&mut self, body: &[u8]) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        self.sends(&call(stream, body));
        stream
    }

    /// What the server says, and reads on.
    fn hears(&mut self) -> Vec<Said> {
        let bytes = self.server.unwritten().to_vec();
        self.server.wrote(bytes.len());
        let mut rest = &bytes[..];
        let mut said = Vec::new();
        while let Some(frame) = Frame::take(&mut rest).expect("the server keeps to the protocol") {
            self.hear(&frame, &mut said);
        }
        assert!(rest.is_empty(), "whole frames only");
        said
    }

    fn hear(&mut self, frame: &Frame<'_>, said: &mut Vec<Said>) {
        let stream = frame.stream;
        let number = |at: usize| {
            u32::from_be_bytes(frame.payload[at..at + 4].try_into().expect("a payload with a number"))
        };
        said.push(match frame.kind {
            frame::SETTINGS if frame.has(frame::ACK) => Ack,
            frame::SETTINGS => Settings,
            frame::WINDOW_UPDATE => Raise(stream, number(0)),
            frame::HEADERS => {
                let mut fields = Fields::default();
                self.decoder.decode(frame.payload, usize::MAX, &mut fields).expect("a good block");
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                Head(stream, fields.iter().map(|(name, value)| (text(name), text(value))).collect())
            }
            frame::DATA => Data(stream, frame.payload.to_vec()),
            frame::RST_STREAM => Reset(stream, number(0)),
            frame::PING if frame.has(frame::ACK) => Pong(frame.payload.to_vec()),
            frame::PING => Ping(frame.payload.to_vec()),
            frame::GOAWAY => GoAway(number(0), number(4)),
            other => panic!("a frame of kind {other}"),
        });
        if matches!(frame.kind, frame::HEADERS | frame::DATA) && frame.has(frame::END_STREAM) {
            said.push(End(stream));
        }
    }

    /// Holds that the server ended the connection with this error.
    fn is_broken_with(&mut self, code: ErrorCode) {
        assert!(matches!(self.hears().last(), Some(GoAway(_, said)) if *said == code as u32));
        assert!(self.server.is_over() && self.server.why_broken().is_some());
    }
}

fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::write(kind, flags, stream, payload, &mut bytes);
    bytes
}

fn opening(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    frame::write_settings(settings, &mut bytes);
    bytes
}

fn head(path: &str) -> Vec<u8> {
    let mut block = Vec::new();
    write_indexed(3, &mut block);
    write_indexed(6, &mut block);
    write_literal(b":path", path.as_bytes(), false, &mut block);
    write_literal(b"content-type", b"application/grpc", false, &mut block);
    block
}

/// The head of a quick call to an authority, with one header more, which may be for the table.
fn head_to(authority: &str, (name, value): (&str, &str), indexed: bool) -> Vec<u8> {
    let mut block = Vec::new();
    write_literal(b":authority", authority.as_bytes(), false, &mut block);
    block.extend(head("/quick"));
    write_literal(name.as_bytes(), value.as_bytes(), indexed, &mut block);
    block
}

fn call(stream: u32, body: &[u8]) -> Vec<u8> {
    call_with(&head("/quick"), stream, body)
}

fn call_with(block: &[u8], stream: u32, body: &[u8]) -> Vec<u8> {
    [
        frame_bytes(frame::HEADERS, frame::END_HEADERS, stream, block),
        frame_bytes(frame::DATA, frame::END_STREAM, stream, body),
    ]
    .concat()
}

/// A fuzzer's find: a head with a zero byte was answered if its body came with it, and refused if the body came later.
#[test]
fn a_head_that_cannot_be_routed_is_refused_however_its_body_comes() {
    let mut block = head("/quick");
    write_literal(b"x", b"a\0b", false, &mut block);
    let call = |stream| {
        let head = frame_bytes(frame::HEADERS, frame::END_HEADERS, stream, &block);
        (head, frame_bytes(frame::DATA, frame::END_STREAM, stream, b"abc"))
    };
    let mut client = Client::new();
    let (head, body) = call(1);
    client.sends(&[head, body].concat());
    let at_once = client.hears();
    let (head, _) = call(3);
    client.sends(&head);
    let refused = |stream| Reset(stream, ErrorCode::Protocol as u32);
    assert_eq!(client.hears(), [refused(3)]);
    assert_eq!(at_once.first(), Some(&refused(1)));
}

#[test]
fn a_line_that_could_be_routed_vouches_for_no_other() {
    let mut client = Client::new();
    for (stream, authority, is_good) in [(1, "a", true), (3, "a b", false), (5, "a", true), (7, "", true)] {
        // No two blocks are the same.
        let block = head_to(authority, ("x-stream", &stream.to_string()), false);
        client.sends(&call_with(&block, stream, b"abc"));
        let said = client.hears();
        if is_good {
            assert_eq!(said, answer(stream, b"abc"), "{authority:?}");
        } else {
            assert_eq!(said[0], Reset(stream, ErrorCode::Protocol as u32), "{authority:?}");
        }
    }
}

/// An answer that was made at once.
fn answer(stream: u32, body: &[u8]) -> Vec<Said> {
    let field = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        Head(stream, vec![field(":status", "200"), field("content-type", "application/grpc")]),
        Data(stream, body.to_vec()),
        Head(stream, vec![field("grpc-status", "0")]),
        End(stream),
    ]
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_call_is_answered_where_it_was_read_and_leaves_nothing_behind() {
    let mut client = Client::new();
    for body in [&b"one"[..], b"two", b"", b"three"] {
        let stream = client.calls(body);
        assert_eq!(client.hears(), answer(stream, body));
    }
    assert!(client.server.streams.is_empty());
}

/// How often the connection allocates for calls with these header blocks, after as many others of their kind.
fn allocations_of_calls(block: impl Fn(u32) -> Vec<u8>) -> u64 {
    const CALLS: u32 = 200;
    let mut client = Client::new();
    let calls: Vec<_> = (0..2 * CALLS).map(|n| call_with(&block(n), 2 * n + 1, b"a body")).collect();
    let mut answer_all = |calls: &[Vec<u8>]| {
        for call in calls {
            client.server.read(call, &Echo);
            let written = client.server.unwritten();
            assert_eq!(written[3], frame::HEADERS, "an answer");
            client.server.wrote(written.len());
        }
    };
    let (warm_up, measured) = calls.split_at(CALLS as usize);
    answer_all(warm_up);
    let allocated = allocation_counter::measure(|| answer_all(measured)).count_total;
    assert!(client.server.streams.is_empty() && client.server.why_broken().is_none());
    allocated
}

#[test]
fn a_call_is_answered_without_allocating() {
    assert_eq!(allocations_of_calls(|_| head("/quick")), 0);
}

#[test]
fn a_header_that_differs_call_by_call_makes_nothing_be_allocated() {
    for indexed in [false, true] {
        let traced = |n| {
            let trace = format!("00-{n:032x}-{n:016x}-01");
            head_to("limits.example", ("traceparent", &trace), indexed)
        };
        assert_eq!(allocations_of_calls(traced), 0, "indexed: {indexed}");
    }
}

#[test]
fn a_body_in_pieces_is_the_same_body() {
    let mut client = Client::new();
    let stream = client.starts("/quick", 0);
    client.sends_frame(frame::DATA, 0, stream, b"in ");
    client.sends_frame(frame::DATA, 0, stream, b"pieces");
    assert_eq!(client.hears(), []);
    client.sends_frame(frame::DATA, frame::END_STREAM, stream, b"");
    assert_eq!(client.hears(), answer(stream, b"in pieces"));
}

#[test]
fn an_answer_waits_for_the_windows_and_no_longer() {
    let mut client = Client::with(Http2Settings::default(), &[(4, 3)]);
    let stream = client.calls(b"a body");
    assert_eq!(client.hears()[1..], [Data(stream, b"a b".to_vec())]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &2_u32.to_be_bytes());
    assert_eq!(client.hears(), [Data(stream, b"od".to_vec())]);
    // A window that is set larger is larger for what waits too.
    client.sends(&frame_bytes(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]));
    let mut rest = answer(stream, b"y");
    rest[0] = Ack;
    assert_eq!(client.hears(), rest);
    assert!(client.server.streams.is_empty());
}

#[test]
fn a_client_that_keeps_no_table_is_understood() {
    let mut client = Client::with(Http2Settings::default(), &[(1, 0)]);
    for _ in 0..3 {
        let stream = client.calls(b"body");
        assert_eq!(client.hears(), answer(stream, b"body"));
    }
    // And one that gives its table up later, or makes it smaller.
    for size in [0, 4095] {
        let mut client = Client::new();
        let stream = client.calls(b"body");
        assert_eq!(client.hears(), answer(stream, b"body"));
        let [_, _, s0, s1] = u32::to_be_bytes(size);
        client.sends_frame(frame::SETTINGS, 0, 0, &[0, 1, 0, 0, s0, s1]);
        assert_eq!(client.hears(), [Ack]);
        let stream = client.calls(b"body");
        // The acknowledged size has to be met at the start of the next block: 0x20 is "the table holds 0 bytes".
        let said = client.server.unwritten();
        assert_eq!(said[frame::HEADER], 0x20, "a table of {size} bytes");
        assert_eq!(client.hears(), answer(stream, b"body"));
        for _ in 0..3 {
            let stream = client.calls(b"body");
            assert_eq!(client.hears(), answer(stream, b"body"));
        }
    }
}

#[test]
fn a_header_block_that_was_seen_before_means_what_the_table_says_now() {
    let mut client = Client::new();
    let mut block = head("/quick");
    write_literal(b"x-first", b"", true, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 1, &block);
    client.sends_frame(frame::DATA, frame::END_STREAM, 1, b"1");
    // The same bytes, again and again: a path, and the newest entry of the table.
    let mut same = head("/quick");
    write_indexed(crate::http2::hpack::NEWEST, &mut same);
    for stream in [3, 5] {
        client.sends_frame(frame::HEADERS, frame::END_HEADERS, stream, &same);
        client.sends_frame(frame::DATA, frame::END_STREAM, stream, b"!");
    }
    client.hears();
    // Now the newest entry is a connection header, which HTTP/2 forbids.
    let mut block = head("/quick");
    write_literal(b"upgrade", b"x", true, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 7, &block);
    assert_eq!(client.hears(), [Reset(7, ErrorCode::Protocol as u32)]);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 9, &same);
    assert_eq!(client.hears(), [Reset(9, ErrorCode::Protocol as u32)]);
}

#[test]
fn what_cannot_be_answered_at_once_is_routed_as_it_came() {
    let mut client = Client::new();
    client.calls(b"route");
    let stream = client.starts("/other", frame::END_STREAM);
    let routed: Vec<_> = std::iter::from_fn(|| client.server.take_routed()).collect();
    let paths: Vec<_> = routed.iter().map(|(id, request)| (*id, request.uri().path().to_owned())).collect();
    assert_eq!(paths, [(1, "/quick".to_owned()), (stream, "/other".to_owned())], "first come, first routed");
    assert_eq!(client.hears(), [], "nothing of an answer has been said");
    // A client that gives up ends the stream.
    client.sends_frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    assert_eq!(client.server.streams.len(), 1);
}

#[test]
fn what_a_client_holds_back_is_bounded_by_the_windows() {
    let settings = Http2Settings { stream_window: 100, connection_window: 0, ..Http2Settings::default() };
    let mut client = Client::silent(settings);
    client.sends(&opening(&[]));
    client.hears();
    let stream = client.starts("/other", 0);
    client.sends_frame(frame::DATA, 0, stream, &[0; 100]);
    assert_eq!(client.hears(), [], "nobody has read it");
    client.sends_frame(frame::DATA, 0, stream, &[0; 1]);
    assert_eq!(client.hears(), [Reset(stream, ErrorCode::FlowControl as u32)]);
}

#[test]
fn more_streams_than_agreed_are_refused_unseen() {
    let mut client = Client::with(Http2Settings { streams_max: 2, ..Http2Settings::default() }, &[]);
    client.starts("/other", 0);
    client.starts("/other", 0);
    let third = client.starts("/other", 0);
    assert_eq!(client.hears(), [Reset(third, ErrorCode::RefusedStream as u32)]);
    client.sends_frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    client.starts("/other", 0);
    assert_eq!(client.hears(), []);
}

#[test]
fn a_drain_finishes_what_was_sent_before_the_client_knew() {
    let mut client = Client::new();
    let waiting = client.starts("/other", 0);
    client.server.start_drain();
    let last_possible = 0x7fff_ffff;
    let [GoAway(told, 0), Ping(payload)] = &client.hears()[..] else { panic!("a drain starts so") };
    assert_eq!(*told, last_possible);
    let payload = payload.clone();
    let stream = client.calls(b"in time");
    assert_eq!(client.hears(), answer(stream, b"in time"));
    client.sends_frame(frame::PING, frame::ACK, 0, &payload);
    assert_eq!(client.hears(), [GoAway(stream, 0)]);
    client.calls(b"too late");
    assert!(!client.hears().iter().any(|said| matches!(said, Head(..))));
    assert!(!client.server.is_over(), "one call is under way");
    client.sends_frame(frame::RST_STREAM, 0, waiting, &8_u32.to_be_bytes());
    assert!(client.server.is_over() && client.server.why_broken().is_none());
}

#[test]
fn floods_that_ask_for_nothing_end_the_connection() {
    let settings = Http2Settings { control_frames_max: 50, resets_max: 50, ..Http2Settings::default() };
    let flood = |mut send: Box<dyn FnMut(&mut Client)>| {
        let mut client = Client::with(settings, &[]);
        for _ in 0..200 {
            send(&mut client);
        }
        client.is_broken_with(ErrorCode::EnhanceYourCalm);
    };
    flood(Box::new(|client| client.sends_frame(frame::PING, 0, 0, &[0; 8])));
    flood(Box::new(|client| client.sends_frame(frame::SETTINGS, 0, 0, &[])));
    flood(Box::new(|client| client.sends_frame(frame::PRIORITY, 0, 1, &[0, 0, 0, 9, 9])));
    flood(Box::new(|client| client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])));
    flood(Box::new(|client| client.sends_frame(0xee, 0, 0, &[])));
    flood(Box::new(|client| {
        let stream = client.starts("/other", 0);
        client.sends_frame(frame::RST_STREAM, 0, stream, &[0; 4]);
    }));
    let mut last = None;
    flood(Box::new(move |client| {
        let stream = *last.get_or_insert_with(|| client.starts("/other", 0));
        client.sends_frame(frame::DATA, 0, stream, &[]);
    }));
    flood(Box::new(|client| {
        if client.server.open_block.is_none() && client.server.phase == Phase::Open {
            client.sends_frame(frame::HEADERS, 0, 1, &[]);
        }
        client.sends_frame(frame::CONTINUATION, 0, 1, &[]);
    }));
}

#[test]
fn a_budget_is_renewed_in_time_and_raised_by_requests() {
    let settings = Http2Settings { control_frames_max: 50, ..Http2Settings::default() };
    let mut client = Client::with(settings, &[]);
    for second in 0..1000 {
        client.server.tick(SECOND * second);
        client.sends_frame(frame::PING, 0, 0, &[0; 8]);
        client.sends_frame(frame::PING, 0, 0, &[1; 8]);
        client.hears();
    }
    for _ in 0..1000 {
        client.calls(b"");
        for _ in 0..4 {
            client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]);
        }
    }
    assert_eq!(client.server.why_broken(), None);
}

#[test]
fn headers_without_end_end_the_connection() {
    let mut client = Client::new();
    client.sends_frame(frame::HEADERS, 0, 1, &head("/quick"));
    for _ in 0..4 {
        client.sends_frame(frame::CONTINUATION, 0, 1, &[0; frame::MAX_PAYLOAD]);
    }
    client.is_broken_with(ErrorCode::EnhanceYourCalm);

    let mut client = Client::with(Http2Settings { header_bytes_max: 200, ..Http2Settings::default() }, &[]);
    let mut block = head("/quick");
    write_literal(b"x-long", &[b'x'; 200], false, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &block);
    assert_eq!(client.hears(), [Head(1, vec![(":status".into(), "431".into())]), End(1)]);
    client.next_stream = 3;
    let stream = client.calls(b"still served");
    assert_eq!(client.hears(), answer(stream, b"still served"));
}

#[test]
fn a_body_without_end_loses_its_stream() {
    let mut client = Client::new();
    client.server.tick(SECOND);
    let (quick, other) = (client.starts("/quick", 0), client.starts("/other", 0));
    let whole = client.starts("/other", frame::END_STREAM);
    client.server.tick(SECOND * 30);
    assert_eq!(client.hears(), []);
    client.server.tick(SECOND * 31);
    let mut said = client.hears();
    said.sort_by_key(|said| matches!(said, Reset(stream, _) if *stream == other));
    assert_eq!(said, [Reset(quick, ErrorCode::Cancel as u32), Reset(other, ErrorCode::Cancel as u32)]);
    assert!(client.server.streams.contains_key(&whole), "a body that has ended is not slow");
}

#[test]
fn an_answer_that_its_window_holds_up_is_given_up() {
    let mut client = Client::with(Http2Settings::default(), &[(4, 0)]);
    let stream = client.calls(b"body");
    client.hears();
    client.server.tick(SECOND * 19);
    assert_eq!(client.hears(), []);
    client.server.tick(SECOND * 20);
    assert_eq!(client.hears(), [Reset(stream, ErrorCode::Cancel as u32)]);
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_and_then_given_up() {
    let mut client = Client::new();
    let body = [0; 10_000];
    client.sends(&frame_bytes(frame::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    while client.server.wants_to_read() {
        client.calls(&body);
    }
    assert!(client.server.unwritten().len() < UNREAD_MAX + 2 * body.len());
    client.server.tick(SECOND);
    client.server.tick(SECOND * 20);
    assert!(!client.server.is_over());
    client.server.tick(SECOND * 21);
    assert!(client.server.is_over());
    assert_eq!(client.server.why_broken(), Some("it does not read its answers"));
}

#[test]
fn a_silent_client_is_asked_and_then_given_up() {
    let mut client = Client::new();
    client.server.tick(SECOND * 60);
    let said = client.hears();
    let [Ping(payload)] = &said[..] else { panic!("{said:?}") };
    client.sends_frame(frame::PING, frame::ACK, 0, payload);
    client.server.tick(SECOND * 100);
    assert_eq!((client.hears(), client.server.why_broken()), (vec![], None), "it answered");
    client.server.tick(SECOND * 120);
    assert!(matches!(client.hears()[..], [Ping(_)]));
    client.server.tick(SECOND * 139);
    assert_eq!(client.server.why_broken(), None);
    client.server.tick(SECOND * 140);
    assert_eq!(client.server.why_broken(), Some("it does not answer a PING"));
}

#[test]
fn a_client_that_says_nothing_at_all_is_given_up() {
    let mut client = Client::silent(Http2Settings::default());
    client.sends(&PREFACE[..10]);
    client.server.tick(SECOND * 29);
    assert_eq!(client.server.why_broken(), None);
    client.server.tick(SECOND * 30);
    assert_eq!(client.server.why_broken(), Some("it did not speak in time"));
}

#[test]
fn a_client_without_requests_is_asked_to_leave() {
    let settings = Http2Settings { idle_timeout: SECOND * 100, ..Http2Settings::default() };
    let mut client = Client::with(settings, &[]);
    client.server.tick(SECOND * 50);
    client.calls(b"");
    client.server.tick(SECOND * 55);
    client.hears();
    for seconds in (60..=150).step_by(10) {
        client.server.tick(SECOND * seconds);
        client.sends_frame(frame::PING, 0, 0, &[0; 8]);
        assert_eq!(client.hears(), [Pong(vec![0; 8])], "it had asked something");
    }
    client.server.tick(SECOND * 170);
    assert!(client.hears().iter().any(|said| matches!(said, GoAway(_, 0))));
}

#[test]
fn a_request_of_http_1_is_told_what_to_speak() {
    let mut client = Client::silent(Http2Settings::default());
    client.sends(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n");
    let said = String::from_utf8(client.server.unwritten().to_vec()).expect("text");
    let (head, body) = said.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 505 "), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
}

/// What a client might send, right or wrong.
fn anything() -> impl Strategy<Value = Vec<u8>> {
    let stream = prop_oneof![0..12_u32, any::<u32>()];
    let payload = prop_oneof![
        Just(head("/quick")),
        Just(head("/other")),
        prop::collection::vec(any::<u8>(), 0..20),
        Just(vec![0, 0, 0, 1]),
        Just(vec![0; 8]),
    ];
    let loose = (0..11_u8, any::<u8>(), stream, payload)
        .prop_map(|(kind, flags, stream, payload)| frame_bytes(kind, flags, stream & 0x7fff_ffff, &payload));
    let whole = (0..40_u32, prop::collection::vec(any::<u8>(), 0..40))
        .prop_map(|(stream, body)| call(stream * 2 + 1, &body));
    prop_oneof![3 => loose, 3 => whole, 1 => prop::collection::vec(any::<u8>(), 0..30)]
}

proptest! {
    #[test]
    fn it_does_not_matter_how_the_bytes_are_cut(
        frames in prop::collection::vec(anything(), 0..12), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let bytes = [opening(&[]), frames.concat()].concat();
        let mut whole = Client::silent(Http2Settings::default());
        whole.sends(&bytes);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Client::silent(Http2Settings::default());
        let mut start = 0;
        for cut in cuts.into_iter().chain([bytes.len()]) {
            if pieces.server.wants_to_read() {
                pieces.sends(&bytes[start..cut]);
            }
            start = cut;
        }
        prop_assert_eq!(whole.server.why_broken(), pieces.server.why_broken());
        prop_assert_eq!(whole.hears(), pieces.hears());
    }
}
