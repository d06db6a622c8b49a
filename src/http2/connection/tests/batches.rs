//! Calls that come together.

use super::{
    client::{Said::*, *},
    *,
};
use std::slice;

/// What the server says to all of this, read at once.
fn hears(client: &mut Client, sent: &[Vec<u8>]) -> Vec<Said> {
    client.sends(&sent.concat());
    client.hears()
}

#[test]
fn calls_that_come_together_are_answered_in_their_order() {
    let mut client = Client::new();
    // More than are answered in one go, and the last of them in pieces.
    let bodies: Vec<_> = (0..40).map(|n| (2 * n + 1, format!("body {n}").into_bytes())).collect();
    let mut sent: Vec<_> = bodies.iter().map(|(stream, body)| call(*stream, body)).collect();
    let mut expected: Vec<_> = bodies.iter().flat_map(|(stream, body)| answer(*stream, body)).collect();
    sent.push(frame_bytes(frame::HEADERS, frame::END_HEADERS, 81, &head("/fast")));
    sent.push(frame_bytes(frame::DATA, 0, 81, b"in "));
    sent.push(frame_bytes(frame::DATA, frame::END_STREAM, 81, b"pieces"));
    expected.extend(answer(81, b"in pieces"));
    assert_eq!(hears(&mut client, &sent), expected);
    assert!(client.server.streams.is_empty());
}

#[test]
fn what_comes_between_calls_is_answered_between_them() {
    let mut client = Client::new();
    let ping = frame_bytes(frame::PING, 0, 0, b"8 bytes.");
    let expected = [answer(1, b"before"), vec![Pong(b"8 bytes.".to_vec())], answer(3, b"after")].concat();
    assert_eq!(hears(&mut client, &[call(1, b"before"), ping, call(3, b"after")]), expected);

    let malformed = frame_bytes(frame::HEADERS, frame::END_HEADERS, 7, &[]);
    let refused = vec![Reset(7, ErrorCode::Protocol as u32)];
    let expected = [answer(5, b"before"), refused, answer(9, b"after")].concat();
    assert_eq!(hears(&mut client, &[call(5, b"before"), malformed, call(9, b"after")]), expected);

    let full = Http2Settings { streams_max: 1, ..Http2Settings::default() };
    let mut client = Client::with(full, &[]);
    let waiting = frame_bytes(frame::HEADERS, frame::END_HEADERS, 3, &head("/other"));
    // Its body is discarded.
    let refused = vec![Reset(5, ErrorCode::RefusedStream as u32)];
    let sent = [call(1, b"before"), waiting, call(5, b"too many")];
    assert_eq!(hears(&mut client, &sent), [answer(1, b"before"), refused].concat());
}

#[test]
fn a_window_is_raised_after_the_calls_before_it() {
    let settings = Http2Settings { connection_window: DEFAULT_WINDOW, ..Http2Settings::default() };
    let (mut cut, mut whole) = (Client::silent(settings), Client::silent(settings));
    for client in [&mut cut, &mut whole] {
        client.sends(&opening(&[]));
        client.hears();
    }
    let sent: Vec<_> = (0..8).map(|n| call(2 * n + 1, &[b'x'; 6_000])).collect();
    let one_by_one: Vec<_> = sent.iter().flat_map(|call| hears(&mut cut, slice::from_ref(call))).collect();
    assert!(one_by_one.iter().any(|said| matches!(said, Raise(0, _))), "there is one");
    assert_eq!(hears(&mut whole, &sent), one_by_one);
}

#[test]
fn a_call_that_is_routed_leaves_those_around_it_to_be_answered() {
    let mut client = Client::new();
    let sent = [call(1, b"before"), call(3, b"route"), call(5, b"after")];
    assert_eq!(hears(&mut client, &sent), [answer(1, b"before"), answer(5, b"after")].concat());
    assert_eq!(client.server.take_routed().map(|(stream, _)| stream), Some(3));
    assert_eq!(client.server.streams.len(), 1);
}

#[test]
fn calls_before_a_broken_frame_are_answered() {
    let mut client = Client::new();
    let broken = frame_bytes(frame::PING, 0, 0, b"short");
    let said = hears(&mut client, &[call(1, b"one"), call(3, b"two"), broken]);
    let size = ErrorCode::FrameSize as u32;
    assert_eq!(said, [answer(1, b"one"), answer(3, b"two"), vec![GoAway(3, size)]].concat());
}

#[test]
fn calls_that_come_together_share_the_window_that_the_client_gave() {
    let mut client = Client::new();
    const BODY: usize = 15_000;
    let sent: Vec<_> = (0..5).map(|n| call(2 * n + 1, &[b'x'; BODY])).collect();
    let bytes_of_data = |said: &[Said]| -> usize {
        said.iter().map(|said| if let Data(_, bytes) = said { bytes.len() } else { 0 }).sum()
    };
    let in_window = bytes_of_data(&hears(&mut client, &sent));
    assert_eq!(in_window, DEFAULT_WINDOW as usize);
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes());
    assert_eq!(bytes_of_data(&client.hears()), 5 * BODY - in_window);
    assert!(client.server.streams.is_empty());
}
