//! Calls of the fast path, and requests that are routed.

use super::{
    client::{Received::*, *},
    *,
};

#[test]
fn a_fast_path_call_leaves_no_stream() {
    let mut client = Client::new();
    for body in [&b"one"[..], b"two", b"", b"three"] {
        let stream = client.calls(body);
        assert_eq!(client.receives(), response(stream, body));
    }
    assert!(client.server.streams.is_empty());
}

/// Number of allocations of the connection for a read of `together` calls with these header blocks, after as many other calls of their
/// kind.
fn allocations_of_calls(together: usize, block: impl Fn(u32) -> Vec<u8>) -> u64 {
    const CALLS: u32 = 240;
    let mut client = Client::new();
    let calls: Vec<_> = (0..2 * CALLS).map(|n| call_with(&block(n), 2 * n + 1, b"a body")).collect();
    let calls: Vec<_> = calls.chunks(together).map(|calls| calls.concat()).collect();
    let mut answer_all = |calls: &[Vec<u8>]| {
        for call in calls {
            client.server.read(call, &Echo);
            let written = client.server.unwritten();
            assert_eq!(written[3], frame::HEADERS, "an answer");
            client.server.wrote(written.len());
        }
    };
    let (warm_up, measured) = calls.split_at(calls.len() / 2);
    answer_all(warm_up);
    let allocated = allocation_counter::measure(|| answer_all(measured)).count_total;
    assert!(client.server.streams.is_empty() && client.server.failure().is_none());
    allocated
}

#[test]
fn a_fast_path_call_does_not_allocate() {
    for together in [1, 2, 16, 24] {
        assert_eq!(allocations_of_calls(together, |_| head("/fast")), 0, "{together} together");
    }
}

#[test]
fn a_header_that_differs_by_call_does_not_allocate() {
    for indexed in [false, true] {
        let traced = |n| {
            let trace = format!("00-{n:032x}-{n:016x}-01");
            head_to("limits.example", ("traceparent", &trace), indexed)
        };
        assert_eq!(allocations_of_calls(3, traced), 0, "indexed: {indexed}");
    }
}

#[test]
fn a_body_may_be_in_several_frames() {
    let mut client = Client::new();
    let stream = client.opens("/fast", 0);
    client.sends_frame(frame::DATA, 0, stream, b"in ");
    client.sends_frame(frame::DATA, 0, stream, b"pieces");
    assert_eq!(client.receives(), []);
    client.sends_frame(frame::DATA, frame::END_STREAM, stream, b"");
    assert_eq!(client.receives(), response(stream, b"in pieces"));
}

#[test]
fn a_response_waits_for_the_windows_only() {
    let mut client = Client::with(Http2Settings::default(), &[(4, 3)]);
    let stream = client.calls(b"a body");
    assert_eq!(client.receives()[1..], [Data(stream, b"a b".to_vec())]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &2_u32.to_be_bytes());
    assert_eq!(client.receives(), [Data(stream, b"od".to_vec())]);
    // A larger initial window also applies to what is blocked.
    client.sends(&frame_bytes(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]));
    let mut rest = response(stream, b"y");
    rest[0] = Ack;
    assert_eq!(client.receives(), rest);
    assert!(client.server.streams.is_empty());
}

#[test]
fn other_requests_are_routed_in_order() {
    let mut client = Client::new();
    client.calls(b"route");
    let stream = client.opens("/other", frame::END_STREAM);
    let routed: Vec<_> = std::iter::from_fn(|| client.server.take_routed()).collect();
    let paths: Vec<_> = routed.iter().map(|(id, request)| (*id, request.uri().path().to_owned())).collect();
    assert_eq!(paths, [(1, "/fast".to_owned()), (stream, "/other".to_owned())], "first come, first routed");
    assert_eq!(client.receives(), [], "nothing of an answer has been received");
    // A client that gives up ends the stream.
    client.sends_frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    assert_eq!(client.server.streams.len(), 1);
}

#[test]
fn a_drain_finishes_requests_sent_before_the_goaway() {
    let mut client = Client::new();
    let waiting = client.opens("/other", 0);
    client.server.start_drain(CloseReason::Drain);
    let last_possible = 0x7fff_ffff;
    let [GoAway(last, 0), Ping(payload)] = &client.receives()[..] else { panic!("a drain starts so") };
    assert_eq!(*last, last_possible);
    let payload = payload.clone();
    let stream = client.calls(b"in time");
    assert_eq!(client.receives(), response(stream, b"in time"));
    client.sends_frame(frame::PING, frame::ACK, 0, &payload);
    assert_eq!(client.receives(), [GoAway(stream, 0)]);
    client.calls(b"too late");
    assert!(!client.receives().iter().any(|received| matches!(received, Head(..))));
    assert!(!client.server.is_finished(), "one call is under way");
    client.sends_frame(frame::RST_STREAM, 0, waiting, &8_u32.to_be_bytes());
    assert!(client.server.is_finished() && client.server.failure().is_none());
}

/// The client's preface was read as a frame, which failed the connection with FRAME_SIZE_ERROR.
#[test]
fn a_drain_that_starts_before_the_preface_finishes_requests_sent_before_the_goaway() {
    for received in [0, 10, PREFACE.len()] {
        let mut client = Client::silent(Http2Settings::default());
        let opening = opening(&[]);
        client.sends(&opening[..received]);
        client.server.start_drain(CloseReason::Drain);
        let [Settings, WindowUpdate(0, _), GoAway(frame::STREAM_MAX, 0), Ping(payload)] =
            &client.receives()[..]
        else {
            panic!("a drain starts so")
        };
        let payload = payload.clone();
        client.sends(&opening[received..]);
        assert_eq!(client.receives(), [Ack]);
        let stream = client.calls(b"in time");
        assert_eq!(client.receives(), response(stream, b"in time"), "after {received} bytes");
        client.sends_frame(frame::PING, frame::ACK, 0, &payload);
        assert_eq!(client.receives(), [GoAway(stream, 0)]);
        assert!(client.server.is_finished() && client.server.failure().is_none());
    }
}

#[test]
fn the_first_frame_is_settings_also_during_a_drain() {
    let mut client = Client::silent(Http2Settings::default());
    client.server.start_drain(CloseReason::Drain);
    client.sends(PREFACE);
    client.sends_frame(frame::PING, 0, 0, &[0; 8]);
    client.fails_with(ErrorCode::Protocol);
}

/// The server sent SETTINGS before the refusal, which HTTP/1 clients took for HTTP/0.9.
#[test]
fn a_client_of_http_1_is_sent_nothing_but_a_refusal() {
    for piece in [1, 5, 100] {
        let mut client = Client::silent(Http2Settings::default());
        for bytes in b"GET / HTTP/1.1\r\nhost: test\r\n\r\n".chunks(piece) {
            client.sends(bytes);
        }
        let response = String::from_utf8(client.server.unwritten().to_vec()).expect("text");
        let (head, body) = response.split_once("\r\n\r\n").expect("headers and a body");
        assert!(head.starts_with("HTTP/1.1 505 "), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
    }
}
