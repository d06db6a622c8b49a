//! What a client cannot wear out.

use super::{
    client::{Said::*, *},
    *,
};
use crate::http2::{hpack::write_literal, routed::TaskEvent};
use bytes::Bytes;
use http::Response;
use tokio::sync::oneshot;

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

/// Reflection, say, whose stream of small questions has large answers.
#[test]
fn an_answer_without_end_waits_until_what_is_before_it_was_read() {
    const WIDE: u32 = WINDOW_MAX - DEFAULT_WINDOW;
    const PIECE: usize = 100_000;
    let mut client = Client::with(Http2Settings::default(), &[(4, WIDE)]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &WIDE.to_be_bytes());
    let stream = client.starts("/other", 0);
    let (head, ()) = Response::new(()).into_parts();
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: false });
    let mut told = 0;
    let mut last_is_sent = loop {
        let (sent, mut is_sent) = oneshot::channel();
        client.server.on_task(stream, TaskEvent::Data(Bytes::from_static(&[0; PIECE]), sent));
        told += PIECE;
        if is_sent.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            break is_sent;
        }
        assert!(told < 100 * PIECE, "the task is never told to wait");
    };
    assert!(client.server.unwritten().len() < UNREAD_MAX + 2 * frame::PAYLOAD_MAX);
    client.server.tick(SECOND * 10);
    let mut heard = 0;
    while !client.server.unwritten().is_empty() {
        let data = client.hears().into_iter().filter_map(|said| match said {
            Data(_, bytes) => Some(bytes.len()),
            _ => None,
        });
        heard += data.sum::<usize>();
    }
    assert_eq!(heard, told);
    assert_eq!(last_is_sent.try_recv(), Err(oneshot::error::TryRecvError::Closed), "the task goes on");
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
        if client.server.partial_block.is_none() && client.server.phase == Phase::Open {
            client.sends_frame(frame::HEADERS, 0, 1, &[]);
        }
        client.sends_frame(frame::CONTINUATION, 0, 1, &[]);
    }));
}

#[test]
fn a_budget_is_renewed_in_time_and_raised_by_requests() {
    let settings = Http2Settings {
        control_frames_max: 50,
        first_request_timeout: SECOND * 10_000,
        ..Http2Settings::default()
    };
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
    assert_eq!(client.server.failure(), None);
}

#[test]
fn headers_without_end_end_the_connection() {
    let mut client = Client::new();
    client.sends_frame(frame::HEADERS, 0, 1, &head("/fast"));
    for _ in 0..4 {
        client.sends_frame(frame::CONTINUATION, 0, 1, &[0; frame::PAYLOAD_MAX]);
    }
    client.is_broken_with(ErrorCode::EnhanceYourCalm);

    let mut client = Client::with(Http2Settings { header_bytes_max: 200, ..Http2Settings::default() }, &[]);
    let mut block = head("/fast");
    write_literal(b"x-long", &[b'x'; 200], false, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &block);
    assert_eq!(client.hears(), [Head(1, vec![(":status".into(), "431".into())]), End(1)]);
    client.next_stream = 3;
    let stream = client.calls(b"still served");
    assert_eq!(client.hears(), answer(stream, b"still served"));
}
