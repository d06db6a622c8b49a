//! Calls of one read.

use super::{
    client::{Received::*, *},
    *,
};
use crate::{DeferredResponse, OnReset, task_event::TaskEvent};
use std::{
    slice,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

/// Sends all pieces in one read. Returns the server's frames.
fn receives(client: &mut Client, sent: &[Vec<u8>]) -> Vec<Received> {
    client.sends(&sent.concat());
    client.receives()
}

#[test]
fn a_batch_is_answered_in_order() {
    let mut client = Client::new();
    // More than one batch. The last is sent in pieces.
    let bodies: Vec<_> = (0..40).map(|n| (2 * n + 1, format!("body {n}").into_bytes())).collect();
    let mut sent: Vec<_> = bodies.iter().map(|(stream, body)| call(*stream, body)).collect();
    let mut expected: Vec<_> = bodies.iter().flat_map(|(stream, body)| response(*stream, body)).collect();
    sent.push(frame_bytes(frame::HEADERS, frame::END_HEADERS, 81, &head("/fast")));
    sent.push(frame_bytes(frame::DATA, 0, 81, b"in "));
    sent.push(frame_bytes(frame::DATA, frame::END_STREAM, 81, b"pieces"));
    expected.extend(response(81, b"in pieces"));
    assert_eq!(receives(&mut client, &sent), expected);
    assert!(client.server.streams.is_empty());
}

#[test]
fn frames_between_calls_are_answered_between_them() {
    let mut client = Client::new();
    let ping = frame_bytes(frame::PING, 0, 0, b"8 bytes.");
    let expected =
        [response(1, b"before"), vec![PingAck(b"8 bytes.".to_vec())], response(3, b"after")].concat();
    assert_eq!(receives(&mut client, &[call(1, b"before"), ping, call(3, b"after")]), expected);

    let malformed = frame_bytes(frame::HEADERS, frame::END_HEADERS, 7, &[]);
    let refused = vec![Reset(7, ErrorCode::Protocol as u32)];
    let expected = [response(5, b"before"), refused, response(9, b"after")].concat();
    assert_eq!(receives(&mut client, &[call(5, b"before"), malformed, call(9, b"after")]), expected);

    let full = Http2Settings { streams_max: 1, ..Http2Settings::default() };
    let mut client = Client::with(full, &[]);
    let waiting = frame_bytes(frame::HEADERS, frame::END_HEADERS, 3, &head("/other"));
    // Its body is discarded.
    let refused = vec![Reset(5, ErrorCode::RefusedStream as u32)];
    let sent = [call(1, b"before"), waiting, call(5, b"too many")];
    assert_eq!(receives(&mut client, &sent), [response(1, b"before"), refused].concat());
}

#[test]
fn a_window_is_raised_after_the_calls_before_it() {
    let settings = Http2Settings { connection_window: DEFAULT_WINDOW, ..Http2Settings::default() };
    let (mut cut, mut whole) = (Client::silent(settings), Client::silent(settings));
    for client in [&mut cut, &mut whole] {
        client.sends(&opening(&[]));
        client.receives();
    }
    let sent: Vec<_> = (0..8).map(|n| call(2 * n + 1, &[b'x'; 6_000])).collect();
    let one_by_one: Vec<_> = sent.iter().flat_map(|call| receives(&mut cut, slice::from_ref(call))).collect();
    assert!(one_by_one.iter().any(|received| matches!(received, WindowUpdate(0, _))), "there is one");
    assert_eq!(receives(&mut whole, &sent), one_by_one);
}

#[test]
fn a_routed_call_does_not_affect_others_of_its_read() {
    let mut client = Client::new();
    let sent = [call(1, b"before"), call(3, b"route"), call(5, b"after")];
    assert_eq!(receives(&mut client, &sent), [response(1, b"before"), response(5, b"after")].concat());
    assert_eq!(client.server.take_routed().map(|(stream, _)| stream), Some(3));
    assert_eq!(client.server.streams.len(), 1);
}

#[test]
fn calls_before_an_invalid_frame_are_answered() {
    let mut client = Client::new();
    let broken = frame_bytes(frame::PING, 0, 0, b"short");
    let received = receives(&mut client, &[call(1, b"one"), call(3, b"two"), broken]);
    let size = ErrorCode::FrameSize as u32;
    assert_eq!(received, [response(1, b"one"), response(3, b"two"), vec![GoAway(3, size)]].concat());
}

#[test]
fn a_batch_shares_the_connections_window() {
    let mut client = Client::new();
    const BODY: usize = 15_000;
    let sent: Vec<_> = (0..5).map(|n| call(2 * n + 1, &[b'x'; BODY])).collect();
    let bytes_of_data = |received: &[Received]| -> usize {
        received.iter().map(|received| if let Data(_, bytes) = received { bytes.len() } else { 0 }).sum()
    };
    let in_window = bytes_of_data(&receives(&mut client, &sent));
    assert_eq!(in_window, DEFAULT_WINDOW as usize);
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes());
    assert_eq!(bytes_of_data(&client.receives()), 5 * BODY - in_window);
    assert!(client.server.streams.is_empty());
}

#[test]
fn deferred_calls_keep_their_order_and_their_responses_are_written_when_they_are_there() {
    let mut client = Client::new();
    let sent = [call(1, b"before"), call(3, b"defer"), call(5, b"defer"), call(7, b"after")];
    let expected = [response(1, b"before"), response(7, b"after")].concat();
    assert_eq!(receives(&mut client, &sent), expected);
    let deferred: Vec<_> = std::iter::from_fn(|| client.server.take_deferred()).map(|(id, _)| id).collect();
    assert_eq!(deferred, [3, 5]);
    assert_eq!(client.server.streams.len(), 2);

    let cancelled = frame_bytes(frame::RST_STREAM, 0, 3, &8_u32.to_be_bytes());
    assert_eq!(receives(&mut client, &[cancelled]), []);
    for stream in [5, 3] {
        client.server.on_task(stream, later(None));
    }
    assert_eq!(client.receives(), response(5, b"later"));
    assert!(client.server.streams.is_empty());
}

#[test]
fn a_deferred_response_waits_for_the_windows() {
    let mut client = Client::with(Http2Settings::default(), &[(4, 3)]);
    assert_eq!(receives(&mut client, &[call(1, b"defer")]), []);
    client.server.on_task(1, later(None));
    let written = client.receives();
    assert_eq!(written.last(), Some(&Data(1, b"lat".to_vec())));
    let raised = frame_bytes(frame::WINDOW_UPDATE, 0, 1, &9_u32.to_be_bytes());
    let written = receives(&mut client, &[raised]);
    assert_eq!(written.first(), Some(&Data(1, b"er".to_vec())));
    assert!(client.server.streams.is_empty());
}

/// A deferred response with this hook.
fn later(on_reset: Option<OnReset>) -> TaskEvent {
    TaskEvent::FastPath(DeferredResponse { body: "later".into(), on_reset })
}

/// The hook of a response runs if its stream is reset: before the response reaches the connection, or after.
#[test]
fn a_hook_runs_when_its_call_is_reset_before_or_after_the_response() {
    let runs = Arc::new(AtomicU32::new(0));
    let hook = || {
        let runs = Arc::clone(&runs);
        Some(OnReset::new(move || _ = runs.fetch_add(1, Ordering::Relaxed)))
    };
    let mut client = Client::new();
    let (before, after, never) = (client.calls(b"defer"), client.calls(b"defer"), client.calls(b"defer"));
    client.sends_frame(frame::RST_STREAM, 0, before, &8_u32.to_be_bytes());
    for stream in [before, after, never] {
        client.server.on_task(stream, later(hook()));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    client.receives();
    client.sends_frame(frame::RST_STREAM, 0, after, &8_u32.to_be_bytes());
    client.sends_frame(frame::RST_STREAM, 0, after, &8_u32.to_be_bytes());
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}
