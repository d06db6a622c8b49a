//! Frames on closed streams, and on streams with a complete response.

use super::{
    client::{Received::*, *},
    *,
};
use crate::{hpack::write_literal, task_event::TaskEvent};
use http::Response;

/// Completes the response to a request, as a task does if it refuses the request by its headers.
fn refuse(client: &mut Client, stream: u32) {
    let (head, ()) = Response::new(()).into_parts();
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: true });
    assert!(matches!(&client.receives()[..], [Head(..), End(_)]));
}

/// RFC 9113, section 5.1: the client may have sent frames before it received the reset. Trailers ended the connection, and with it every
/// other call.
#[test]
fn frames_on_a_stream_that_the_server_reset_are_discarded() {
    let settings = Http2Settings { streams_max: 1, ..Http2Settings::default() };
    let mut client = Client::with(settings, &[]);
    let open = client.opens("/other", 0);
    let refused = client.opens("/other", 0);
    assert_eq!(client.receives(), [Reset(refused, ErrorCode::RefusedStream as u32)]);
    client.sends_frame(frame::DATA, 0, refused, &[0; 100]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, refused, &9_u32.to_be_bytes());
    client.sends_frame(frame::WINDOW_UPDATE, 0, refused, &0_u32.to_be_bytes());
    let mut trailers = Vec::new();
    write_literal(b"x-trailer", b"1", true, &mut trailers);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, refused, &trailers);
    client.sends_frame(frame::RST_STREAM, 0, refused, &8_u32.to_be_bytes());
    assert_eq!(client.receives(), []);
    assert!(client.server.streams.contains_key(&open) && client.server.failure().is_none());
}

/// Discarded DATA still count against the connection's window, which is raised again.
#[test]
fn discarded_data_are_flow_controlled() {
    let settings = Http2Settings { streams_max: 0, connection_window: 0, ..Http2Settings::default() };
    let mut client = Client::silent(settings);
    client.sends(&opening(&[]));
    client.receives();
    let refused = client.opens("/other", 0);
    client.receives();
    for _ in 0..2 {
        client.sends_frame(frame::DATA, 0, refused, &[0; 16_384]);
    }
    assert_eq!(client.receives(), [WindowUpdate(0, 2 * 16_384)]);
    for _ in 0..2 {
        client.sends_frame(frame::DATA, 0, refused, &[0; 16_384]);
    }
    assert_eq!(client.receives(), [WindowUpdate(0, 2 * 16_384)]);
}

/// The connection's window shrank with each such stream, for good.
#[test]
fn data_that_reset_their_stream_are_returned_to_the_connections_window() {
    const DATA: usize = 16_000;
    let settings =
        Http2Settings { stream_window: DATA as u32 - 1, connection_window: 0, ..Http2Settings::default() };
    for (fields, code) in [
        (&[][..], ErrorCode::FlowControl),
        (&[("content-length", "5")][..], ErrorCode::Protocol),
        (&[("content-length", "20000")][..], ErrorCode::Protocol),
    ] {
        // The last request ends too early, within its window.
        let (length, flags) =
            if code == ErrorCode::FlowControl { (DATA, 0) } else { (DATA - 1, frame::END_STREAM) };
        let mut client = Client::silent(settings);
        client.sends(&opening(&[]));
        client.receives();
        let mut raised = 0;
        for n in 0..10 {
            let stream = 2 * n + 1;
            let mut block = head("/other");
            fields.iter().for_each(|(name, value)| {
                write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
            });
            client.sends_frame(frame::HEADERS, frame::END_HEADERS, stream, &block);
            client.sends_frame(frame::DATA, flags, stream, &vec![0; length]);
            let received = client.receives();
            assert!(received.contains(&Reset(stream, code as u32)), "{received:?}");
            raised += received
                .iter()
                .map(|received| match received {
                    WindowUpdate(0, increment) => *increment as usize,
                    _ => 0,
                })
                .sum::<usize>();
        }
        let left = DEFAULT_WINDOW as usize + raised - 10 * length;
        assert!(left >= DEFAULT_WINDOW as usize / 2, "{fields:?}: {left} bytes left");
        assert_eq!(client.server.failure(), None);
    }
}

#[test]
fn a_new_stream_id_below_an_earlier_one_is_a_protocol_error() {
    let mut client = Client::new();
    client.sends(&call(9, b"body"));
    client.receives();
    client.sends(&call(5, b"body"));
    client.fails_with(ErrorCode::Protocol);

    let mut client = Client::new();
    client.sends(&call(1, b"body"));
    client.receives();
    client.sends(&call(1, b"body"));
    client.fails_with(ErrorCode::StreamClosed);
}

/// The response could overtake the error, which was then never sent.
#[test]
fn errors_after_the_response_are_reported_as_before_it() {
    let zero = 0_u32.to_be_bytes();
    let largest = WINDOW_MAX.to_be_bytes();
    for has_response in [false, true] {
        let check = |flags: u8, fields: &[(&str, &str)], kind: u8, payload: &[u8], code: ErrorCode| {
            let mut client = Client::new();
            let mut block = head("/other");
            for (name, value) in fields {
                write_literal(name.as_bytes(), value.as_bytes(), false, &mut block);
            }
            client.sends_frame(frame::HEADERS, frame::END_HEADERS | flags, 1, &block);
            if has_response {
                refuse(&mut client, 1);
            }
            let flags = if kind == frame::DATA { frame::END_STREAM } else { 0 };
            client.sends_frame(kind, flags, 1, payload);
            assert_eq!(client.receives(), [Reset(1, code as u32)], "{has_response} {kind} {code:?}");
        };
        for flags in [0, frame::END_STREAM] {
            check(flags, &[], frame::WINDOW_UPDATE, &zero, ErrorCode::Protocol);
            check(flags, &[], frame::WINDOW_UPDATE, &largest, ErrorCode::FlowControl);
        }
        check(0, &[("content-length", "5")], frame::DATA, b"four", ErrorCode::Protocol);
    }
}

/// A request with a complete response is still received for a while, then reset without an error.
#[test]
fn a_request_is_reset_when_much_of_it_follows_its_response() {
    let mut client = Client::new();
    let stream = client.opens("/other", 0);
    refuse(&mut client, stream);
    client.sends_frame(frame::DATA, 0, stream, &[0; 16_384]);
    assert_eq!(client.receives(), []);
    client.sends_frame(frame::DATA, 0, stream, &[0; 1]);
    assert_eq!(client.receives(), [Reset(stream, ErrorCode::No as u32)]);
    // If it ends before, nothing is left of it.
    let stream = client.opens("/other", 0);
    refuse(&mut client, stream);
    client.sends_frame(frame::DATA, frame::END_STREAM, stream, b"the rest");
    assert_eq!(client.receives(), []);
    assert!(client.server.streams.is_empty());
}
