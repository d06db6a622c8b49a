//! What the server waits for, and for how long.

use super::{
    client::{Said::*, *},
    *,
};

#[test]
fn a_body_without_end_loses_its_stream() {
    let mut client = Client::new();
    client.server.tick(SECOND);
    let (quick, other) = (client.starts("/fast", 0), client.starts("/other", 0));
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
    assert!(!client.server.is_finished());
    client.server.tick(SECOND * 21);
    assert!(client.server.is_finished());
    assert_eq!(client.server.failure(), Some("it does not read its answers"));
}

#[test]
fn a_silent_client_is_asked_and_then_given_up() {
    let mut client = Client::new();
    client.server.tick(SECOND * 60);
    let said = client.hears();
    let [Ping(payload)] = &said[..] else { panic!("{said:?}") };
    client.sends_frame(frame::PING, frame::ACK, 0, payload);
    client.server.tick(SECOND * 100);
    assert_eq!((client.hears(), client.server.failure()), (vec![], None), "it answered");
    client.server.tick(SECOND * 120);
    assert!(matches!(client.hears()[..], [Ping(_)]));
    client.server.tick(SECOND * 139);
    assert_eq!(client.server.failure(), None);
    client.server.tick(SECOND * 140);
    assert_eq!(client.server.failure(), Some("it does not answer a PING"));
}

#[test]
fn a_client_that_says_nothing_at_all_is_given_up() {
    let mut client = Client::silent(Http2Settings::default());
    client.sends(&PREFACE[..10]);
    client.server.tick(SECOND * 29);
    assert_eq!(client.server.failure(), None);
    client.server.tick(SECOND * 30);
    assert_eq!(client.server.failure(), Some("it did not speak in time"));
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
