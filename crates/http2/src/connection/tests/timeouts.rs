//! Timeouts of a connection.

use super::{
    client::{Received::*, *},
    *,
};
use crate::{DeferredResponse, OnReset, task_event::TaskEvent};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

#[test]
fn a_unary_request_without_end_is_reset() {
    let mut client = Client::new();
    client.server.tick(SECOND);
    let (quick, other) = (client.opens("/fast", 0), client.opens("/other", 0));
    let whole = client.opens("/other", frame::END_STREAM);
    client.server.tick(SECOND * 30);
    assert_eq!(client.receives(), []);
    client.server.tick(SECOND * 31);
    let mut received = client.receives();
    received.sort_by_key(|received| matches!(received, Reset(stream, _) if *stream == other));
    assert_eq!(received, [Reset(quick, ErrorCode::Cancel as u32), Reset(other, ErrorCode::Cancel as u32)]);
    assert!(client.server.streams.contains_key(&whole), "its body has ended");
}

#[test]
fn a_response_that_waits_for_its_window_is_reset() {
    let mut client = Client::with(Http2Settings::default(), &[(4, 0)]);
    let stream = client.calls(b"body");
    client.receives();
    client.server.tick(SECOND * 19);
    assert_eq!(client.receives(), []);
    client.server.tick(SECOND * 20);
    assert_eq!(client.receives(), [Reset(stream, ErrorCode::Cancel as u32)]);
}

#[test]
fn a_client_that_reads_nothing_is_not_read_from_and_then_closed() {
    let mut client = Client::new();
    let body = [0; 10_000];
    client.sends(&frame_bytes(frame::WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()));
    while client.server.wants_to_read() {
        client.calls(&body);
    }
    assert!(client.server.unwritten().len() < UNREAD_MAX + 2 * body.len());
    client.server.tick(SECOND);
    client.server.tick(SECOND * 20);
    assert!(!client.server.is_finished());
    client.server.tick(SECOND * 21);
    assert!(client.server.is_finished());
    assert_eq!(client.server.failure(), Some("client does not read its responses"));
}

#[test]
fn a_silent_client_gets_a_ping_and_is_then_closed() {
    let mut client = Client::with(patient(), &[]);
    client.server.tick(SECOND * 60);
    let received = client.receives();
    let [Ping(payload)] = &received[..] else { panic!("{received:?}") };
    client.sends_frame(frame::PING, frame::ACK, 0, payload);
    client.server.tick(SECOND * 100);
    assert_eq!((client.receives(), client.server.failure()), (vec![], None), "it answered");
    client.server.tick(SECOND * 120);
    assert!(matches!(client.receives()[..], [Ping(_)]));
    client.server.tick(SECOND * 139);
    assert_eq!(client.server.failure(), None);
    client.server.tick(SECOND * 140);
    assert_eq!(client.server.failure(), Some("client does not answer a PING"));
}

/// Tasks that waited for the acknowledgement were kept for as long as the client sent anything else.
#[test]
fn a_client_that_does_not_acknowledge_a_response_is_closed() {
    let mut client = Client::with(patient(), &[]);
    let stream = client.opens("/other", frame::END_STREAM);
    let (task, mut received) = tokio::sync::oneshot::channel();
    client.server.on_task(stream, TaskEvent::Confirm(task));
    // The time counts from when the PING is written.
    client.server.tick(SECOND * 10);
    assert_eq!(client.receives(), [Ping(b"received".to_vec())]);
    for second in 11..31 {
        client.server.tick(SECOND * second);
        client.sends_frame(frame::PING, frame::ACK, 0, b"alive?  ");
        assert_eq!(client.server.failure(), None, "after {second} s");
    }
    client.server.tick(SECOND * 31);
    assert_eq!(client.server.end_reason(), Some(CloseReason::KeepAliveTimeout));
    assert!(client.server.is_finished());
    drop(client);
    assert!(received.try_recv().is_err());
}

/// The hook did not run, so that the service took the response for received.
#[test]
fn a_response_that_its_client_cannot_have_received_counts_as_reset_when_the_client_is_gone() {
    let mut client = Client::with(patient(), &[(4, 3)]);
    client.server.tick(SECOND * 60);
    let stream = client.calls(b"defer");
    client.server.tick(SECOND * 120);
    client.server.tick(SECOND * 139);
    let is_reset = Arc::new(AtomicBool::new(false));
    let hook = Arc::clone(&is_reset);
    let on_reset = Some(OnReset::new(move || hook.store(true, Ordering::Relaxed)));
    let response = DeferredResponse { body: bytes::Bytes::from_static(b"four"), on_reset };
    client.server.on_task(stream, TaskEvent::FastPath(response));
    assert!(client.receives().contains(&Data(stream, b"fou".to_vec())));
    client.server.tick(SECOND * 140);
    assert_eq!(client.server.end_reason(), Some(CloseReason::KeepAliveTimeout));
    client.server.end();
    assert!(is_reset.load(Ordering::Relaxed));
}

#[test]
fn a_client_without_a_preface_is_closed() {
    let mut client = Client::silent(Http2Settings::default());
    client.sends(&PREFACE[..10]);
    client.server.tick(SECOND * 9);
    assert_eq!(client.server.failure(), None);
    client.server.tick(SECOND * 10);
    assert_eq!(client.server.failure(), Some("no preface and SETTINGS in time"));
}

#[test]
fn a_client_without_requests_is_drained() {
    let settings = Http2Settings { idle_timeout: SECOND * 100, ..patient() };
    let mut client = Client::with(settings, &[]);
    client.server.tick(SECOND * 50);
    client.calls(b"");
    client.server.tick(SECOND * 55);
    client.receives();
    for seconds in (60..=150).step_by(10) {
        client.server.tick(SECOND * seconds);
        client.sends_frame(frame::PING, 0, 0, &[0; 8]);
        assert_eq!(
            client.receives(),
            [PingAck(vec![0; 8])],
            "the last request was less than the timeout ago"
        );
    }
    client.server.tick(SECOND * 170);
    assert!(client.receives().iter().any(|received| matches!(received, GoAway(_, 0))));
}

/// Settings under which only the timeout under test matters.
fn patient() -> Http2Settings {
    Http2Settings { first_request_timeout: SECOND * 10_000, ..Http2Settings::default() }
}

fn is_goaway(received: &Received) -> bool {
    matches!(received, GoAway(_, 0))
}

#[test]
fn a_connection_without_a_whole_request_is_ended() {
    // One connection has only a preface, another also a request that does not end.
    for starts_request in [false, true] {
        let mut client = Client::new();
        let stream = starts_request.then(|| client.opens("/other", 0));
        client.server.tick(SECOND * 9);
        assert_eq!(client.receives(), []);
        // Single control frames are no request.
        client.sends_frame(frame::PING, frame::ACK, 0, &[0; 8]);
        client.server.tick(SECOND * 10);
        let mut expected = vec![GoAway(stream.unwrap_or(0), 0)];
        expected.extend(stream.map(|stream| Reset(stream, ErrorCode::Cancel as u32)));
        assert_eq!(client.receives(), expected);
        assert!(client.server.is_finished());
    }
}

#[test]
fn a_connection_with_a_whole_request_outlives_the_first_deadline() {
    let mut quick = Client::new();
    quick.calls(b"body");
    let mut queued = Client::new();
    queued.opens("/other", frame::END_STREAM);
    for client in [&mut quick, &mut queued] {
        client.server.tick(SECOND);
        client.receives();
        client.server.tick(SECOND * 20);
        assert_eq!(client.receives(), []);
    }
}

/// A window raised by one byte every half second defeated the timeout for a response.
#[test]
fn a_window_raised_byte_by_byte_does_not_keep_a_response() {
    let mut client = Client::with(patient(), &[(4, 0)]);
    let stream = client.calls(&[7; 1000]);
    client.receives();
    for half_seconds in 0..40 {
        client.server.tick(SECOND / 2 * half_seconds);
        client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
        assert!(matches!(client.receives()[..], [Data(_, _)]), "after {half_seconds}");
    }
    client.server.tick(SECOND * 20);
    assert_eq!(client.receives(), [Reset(stream, ErrorCode::Cancel as u32)]);
}

#[test]
fn a_streaming_response_that_moves_on_is_not_reset() {
    let mut client = Client::with(patient(), &[(4, 0)]);
    let stream = client.opens("/other", frame::END_STREAM);
    let (head, ()) = http::Response::new(()).into_parts();
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: false });
    client.receives();
    for message in 0..10 {
        let (sent, _) = tokio::sync::oneshot::channel();
        client.server.tick(SECOND * 15 * message);
        client.server.on_task(stream, TaskEvent::Data(bytes::Bytes::from_static(&[0; 100]), sent));
        client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &50_u32.to_be_bytes());
        client.server.tick(SECOND * (15 * message + 10));
        client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &50_u32.to_be_bytes());
        let data = client.receives().into_iter().filter(|received| matches!(received, Data(_, _))).count();
        assert_eq!(data, 2);
        client.sends_frame(frame::PING, frame::ACK, 0, &[0; 8]);
    }
}

/// A client that read single bytes kept its connection without reading its responses.
#[test]
fn a_socket_drained_byte_by_byte_does_not_keep_the_connection() {
    let mut client = Client::with(patient(), &[]);
    client.calls(&[7; 1000]);
    for second in 0..20 {
        client.server.tick(SECOND * second);
        client.server.wrote(1);
        assert!(!client.server.is_finished(), "after {second} s");
    }
    client.server.tick(SECOND * 20);
    assert!(client.server.is_finished());
    assert_eq!(client.server.failure(), Some("client does not read its responses"));
}

#[test]
fn a_client_that_keeps_reading_is_kept_however_much_is_waiting() {
    let mut client = Client::with(patient(), &[]);
    client.calls(&[7; 1000]);
    for second in (0..200).step_by(10) {
        client.server.tick(SECOND * second);
        let waiting = client.server.unwritten().len();
        client.calls(&[7; 1000]);
        client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &1000_u32.to_be_bytes());
        client.server.wrote(waiting);
    }
    assert!(!client.server.is_finished());
}

/// An idle connection was kept by frames after the GOAWAY, if the client never acknowledged it.
#[test]
fn frames_after_the_goaway_do_not_keep_an_idle_connection() {
    let settings = Http2Settings { idle_timeout: SECOND * 100, ..patient() };
    let mut client = Client::with(settings, &[]);
    client.server.tick(SECOND * 100);
    assert!(client.receives().iter().any(is_goaway));
    for second in 101..120 {
        client.server.tick(SECOND * second);
        client.sends_frame(frame::PING, frame::ACK, 0, &[0; 8]);
        assert!(!client.server.is_finished());
    }
    client.server.tick(SECOND * 120);
    assert!(client.receives().iter().any(is_goaway));
    assert!(client.server.is_finished());
}

/// A drain waited for every connection on which nothing was ever sent.
#[test]
fn a_drain_waits_a_second_for_the_first_byte_and_longer_for_the_rest() {
    for (received, seconds) in [(0, 1), (1, 20)] {
        let mut client = Client::silent(patient());
        client.sends(&PREFACE[..received]);
        client.server.tick(SECOND * 5);
        client.server.start_drain(CloseReason::Drain);
        client.server.tick(SECOND * 6);
        assert!(matches!(client.receives()[2..], [GoAway(frame::STREAM_MAX, 0), Ping(_)]));
        client.server.tick(SECOND * (6 + seconds) - Duration::from_nanos(1));
        assert_eq!(client.receives(), [], "{received} bytes received");
        client.server.tick(SECOND * (6 + seconds));
        assert_eq!(client.receives(), [GoAway(0, 0)], "safe to retry: {received} bytes received");
        assert!(client.server.is_finished() && client.server.failure().is_none());
    }
}

/// The timeout for bodies ended every bidirectional stream that was open for as long.
#[test]
fn a_bidirectional_stream_outlives_the_timeout_for_bodies() {
    let mut client = Client::with(patient(), &[]);
    let (unary, streaming) = (client.opens("/other", 0), client.opens("/other", 0));
    let (head, ()) = http::Response::new(()).into_parts();
    client.server.on_task(streaming, TaskEvent::Head { head: Box::new(head), is_end: false });
    client.receives();
    client.server.tick(SECOND * 30);
    assert_eq!(client.receives(), [Reset(unary, ErrorCode::Cancel as u32)]);
    for second in (60..4000).step_by(30) {
        client.server.tick(SECOND * second);
        client.sends_frame(frame::PING, frame::ACK, 0, &[0; 8]);
        client.receives();
    }
    client.sends_frame(frame::DATA, frame::END_STREAM, streaming, b"later");
    assert_eq!((client.receives(), client.server.failure()), (vec![], None));
    assert!(client.server.streams.contains_key(&streaming));
}

#[test]
fn a_header_block_without_end_is_ended() {
    let mut client = Client::with(patient(), &[]);
    client.sends_frame(frame::HEADERS, 0, 1, &head("/fast"));
    for second in 0..30 {
        client.server.tick(SECOND * second);
        client.sends_frame(frame::CONTINUATION, 0, 1, &[]);
        assert_eq!(client.server.failure(), None);
    }
    client.server.tick(SECOND * 30);
    client.fails_with(ErrorCode::Protocol);
}

#[test]
fn an_evicted_connection_finishes_whole_requests_and_ignores_later_ones() {
    let mut client = Client::new();
    let stream = client.opens("/other", frame::END_STREAM);
    client.server.go_away(CloseReason::Evicted);
    assert_eq!(client.receives(), [GoAway(stream, 0)]);
    client.opens("/other", frame::END_STREAM);
    assert_eq!(client.receives(), []);
    assert!(!client.server.is_finished());
    let (mut head, ()) = http::Response::new(()).into_parts();
    head.status = http::StatusCode::OK;
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: true });
    assert!(matches!(client.receives()[..], [Head(..), End(_)]));
    assert!(client.server.is_finished());
}

/// Settings with a maximum age of a minute and ten seconds of grace.
fn aging() -> Http2Settings {
    let keep_alive_interval = SECOND * 10_000;
    Http2Settings { age_max: Some(SECOND * 60), age_grace: SECOND * 10, keep_alive_interval, ..patient() }
}

fn acknowledge_drain(client: &mut Client, received: &[Received]) {
    let ping = received.iter().find_map(|received| match received {
        Ping(payload) => Some(payload.clone()),
        _ => None,
    });
    client.sends_frame(frame::PING, frame::ACK, 0, &ping.expect("a PING after the GOAWAY"));
}

#[test]
fn a_connection_at_its_maximum_age_is_drained_and_its_calls_complete() {
    let mut client = Client::with(aging(), &[]);
    client.server.tick(SECOND * 59);
    let before = client.calls(b"before");
    assert_eq!(client.receives(), response(before, b"before"));
    client.server.tick(SECOND * 60);
    let received = client.receives();
    assert!(matches!(received[..], [GoAway(frame::STREAM_MAX, 0), Ping(_)]), "{received:?}");
    // The client sent this before it received the GOAWAY.
    let crossing = client.calls(b"crossing");
    assert_eq!(client.receives(), response(crossing, b"crossing"));
    let queued = client.opens("/other", frame::END_STREAM);
    acknowledge_drain(&mut client, &received);
    assert_eq!(client.receives(), [GoAway(queued, 0)]);
    client.server.tick(SECOND * 69);
    assert!(!client.server.is_finished(), "a call is open, and the grace is not over");
    let (head, ()) = http::Response::new(()).into_parts();
    client.server.on_task(queued, TaskEvent::Head { head: Box::new(head), is_end: true });
    assert!(matches!(client.receives()[..], [Head(..), End(_)]));
    assert!(client.server.is_finished());
    assert_eq!(client.server.failure(), None);
}

#[test]
fn a_call_that_outlasts_the_grace_ends_with_its_connection() {
    for acknowledges in [true, false] {
        let mut client = Client::with(aging(), &[]);
        let watch = client.opens("/other", frame::END_STREAM);
        client.server.tick(SECOND * 60);
        let received = client.receives();
        if acknowledges {
            acknowledge_drain(&mut client, &received);
            assert_eq!(client.receives(), [GoAway(watch, 0)]);
        }
        client.server.tick(SECOND * 70 - Duration::from_nanos(1));
        assert!(!client.server.is_finished() && client.server.wants_to_read());
        client.server.tick(SECOND * 70);
        let last = if acknowledges { vec![] } else { vec![GoAway(watch, 0)] };
        assert_eq!(client.receives(), last);
        assert!(client.server.is_finished() && client.server.streams.is_empty());
        assert_eq!(client.server.failure(), None);
    }
}

/// A busy client is never idle: only its age ends the connection.
#[test]
fn a_busy_connection_without_a_maximum_age_is_kept() {
    let mut client = Client::with(Http2Settings { age_max: None, ..aging() }, &[]);
    for second in (0..100_000).step_by(50) {
        client.server.tick(SECOND * second);
        let stream = client.calls(b"");
        assert_eq!(client.receives(), response(stream, b""));
    }
}
