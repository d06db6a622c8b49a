//! Bounds on the memory and work that a client can cause.

use super::{
    client::{Received::*, *},
    *,
};
use crate::{
    BodyMemory,
    hpack::{write_indexed, write_literal},
    task_event::TaskEvent,
};
use bytes::Bytes;
use http::Response;
use tokio::sync::oneshot;

#[test]
fn unread_bodies_are_bounded_by_the_windows() {
    let settings = Http2Settings { stream_window: 100, connection_window: 0, ..Http2Settings::default() };
    let mut client = Client::silent(settings);
    client.sends(&opening(&[]));
    client.receives();
    let stream = client.opens("/other", 0);
    client.sends_frame(frame::DATA, 0, stream, &[0; 100]);
    assert_eq!(client.receives(), [], "the service has read nothing");
    client.sends_frame(frame::DATA, 0, stream, &[0; 1]);
    assert_eq!(client.receives(), [Reset(stream, ErrorCode::FlowControl as u32)]);
}

/// 900 connections with four unfinished messages each held 965 MiB.
#[test]
fn incomplete_requests_of_all_connections_share_one_budget() {
    let memory = BodyMemory::new(1 << 20);
    for path in ["/fast", "/other"] {
        let mut clients: Vec<Client> = (0..50).map(|_| Client::sharing(&memory)).collect();
        let mut refused = 0;
        for client in &mut clients {
            for _ in 0..4 {
                let stream = client.opens(path, 0);
                (0..14).for_each(|_| client.sends_frame(frame::DATA, 0, stream, &[0; 1_000]));
            }
            let is_refusal = |received: &Received| matches!(received, Reset(_, code) if *code == ErrorCode::EnhanceYourCalm as u32);
            refused += client.receives().iter().filter(|received| is_refusal(received)).count();
            assert!(memory.used() <= memory.max());
        }
        assert!(refused > 100, "{path}: {refused}");
        let held = memory.used();
        for client in &mut clients {
            client.server.tick(SECOND);
        }
        // Memory of the other requests is freed with their tasks, which do not run here.
        let expected = if path == "/fast" { held * 3 / 4 } else { held + 1 };
        assert!(memory.used() < expected, "those who hold too much give up requests");
        let mut honest = Client::sharing(&memory);
        let stream = honest.opens("/fast", 0);
        honest.sends_frame(frame::DATA, 0, stream, b"in two ");
        honest.sends_frame(frame::DATA, frame::END_STREAM, stream, b"frames");
        assert_eq!(honest.receives(), response(stream, b"in two frames"), "{path}");
        drop((clients, honest));
        assert_eq!(memory.used(), 0, "{path}");
    }
}

#[test]
fn incomplete_frames_and_header_blocks_are_part_of_the_budget() {
    let memory = BodyMemory::new(200_000);
    let mut one = Client::sharing(&memory);
    let long = frame_bytes(frame::DATA, 0, 1, &[0; 9_000]);
    one.sends(&long[..8_000]);
    assert!(memory.used() >= 8_000);
    let mut other = Client::sharing(&memory);
    other.sends_frame(frame::HEADERS, 0, 1, &[0; 9_000]);
    assert!(memory.used() >= 17_000);
    let mut third = Client::sharing(&memory);
    third.sends_frame(frame::HEADERS, 0, 1, &[0; 15_000]);
    third.fails_with(ErrorCode::EnhanceYourCalm);
    assert_eq!(third.server.end_reason(), Some(CloseReason::Memory));
    drop((one, other, third));
    assert_eq!(memory.used(), 0);
}

/// The ids of all streams that were ever reset were kept while the connection's window stayed closed.
#[test]
fn streams_closed_while_the_connections_window_is_closed_leave_its_queue() {
    let mut client = Client::with(Http2Settings { resets_max: u32::MAX, ..Http2Settings::default() }, &[]);
    for body in [0; DEFAULT_WINDOW as usize].chunks(frame::PAYLOAD_MAX) {
        client.calls(body);
    }
    client.receives();
    let kept = client.calls(b"kept");
    let mut longest = 0;
    for _ in 0..10_000 {
        let stream = client.calls(b"reset");
        client.sends_frame(frame::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        longest = longest.max(client.server.send_queues.blocked_by_connection());
        client.receives();
    }
    assert!(longest < 100, "{longest}");
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &100_u32.to_be_bytes());
    assert_eq!(client.receives(), response(kept, b"kept")[1..]);
    assert!(client.server.streams.is_empty() && client.server.failure().is_none());
}

#[test]
fn a_connection_that_waits_for_its_client_alone_may_be_evicted() {
    let mut client = Client::new();
    client.calls(b"one");
    client.opens("/fast", 0);
    client.opens("/other", 0);
    client.server.tick(SECOND);
    assert!(client.server.idle_since().is_some(), "requests without an end protect no connection");
    client.opens("/other", frame::END_STREAM);
    assert_eq!(client.server.idle_since(), None, "this one waits for its response");
}

/// A bidirectional stream with small requests and large responses, such as reflection.
#[test]
fn an_endless_response_waits_until_the_client_reads() {
    const WIDE: u32 = WINDOW_MAX - DEFAULT_WINDOW;
    const PIECE: usize = 100_000;
    let mut client = Client::with(Http2Settings::default(), &[(4, WIDE)]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &WIDE.to_be_bytes());
    let stream = client.opens("/other", 0);
    let (head, ()) = Response::new(()).into_parts();
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: false });
    let mut produced = 0;
    let mut last_is_sent = loop {
        let (sent, mut is_sent) = oneshot::channel();
        client.server.on_task(stream, TaskEvent::Data(Bytes::from_static(&[0; PIECE]), sent));
        produced += PIECE;
        if is_sent.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            break is_sent;
        }
        assert!(produced < 100 * PIECE, "the task never has to wait");
    };
    assert!(client.server.unwritten().len() < UNREAD_MAX + 2 * frame::PAYLOAD_MAX);
    client.server.tick(SECOND * 10);
    let mut received = 0;
    while !client.server.unwritten().is_empty() {
        let data = client.receives().into_iter().filter_map(|received| match received {
            Data(_, bytes) => Some(bytes.len()),
            _ => None,
        });
        received += data.sum::<usize>();
    }
    assert_eq!(received, produced);
    assert_eq!(last_is_sent.try_recv(), Err(oneshot::error::TryRecvError::Closed), "the task goes on");
}

#[test]
fn streams_beyond_max_concurrent_streams_are_refused() {
    let mut client = Client::with(Http2Settings { streams_max: 2, ..Http2Settings::default() }, &[]);
    client.opens("/other", 0);
    client.opens("/other", 0);
    let third = client.opens("/other", 0);
    assert_eq!(client.receives(), [Reset(third, ErrorCode::RefusedStream as u32)]);
    client.sends_frame(frame::RST_STREAM, 0, 1, &8_u32.to_be_bytes());
    client.opens("/other", 0);
    assert_eq!(client.receives(), []);
}

#[test]
fn floods_of_control_frames_end_the_connection() {
    let settings = Http2Settings { control_frames_max: 50, resets_max: 50, ..Http2Settings::default() };
    let flood = |mut send: Box<dyn FnMut(&mut Client)>| {
        let mut client = Client::with(settings, &[]);
        for _ in 0..200 {
            send(&mut client);
        }
        client.fails_with(ErrorCode::EnhanceYourCalm);
    };
    flood(Box::new(|client| client.sends_frame(frame::PING, 0, 0, &[0; 8])));
    flood(Box::new(|client| client.sends_frame(frame::SETTINGS, 0, 0, &[])));
    flood(Box::new(|client| client.sends_frame(frame::PRIORITY, 0, 1, &[0, 0, 0, 9, 9])));
    flood(Box::new(|client| client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])));
    flood(Box::new(|client| client.sends_frame(0xee, 0, 0, &[])));
    flood(Box::new(|client| {
        let stream = client.opens("/other", 0);
        client.sends_frame(frame::RST_STREAM, 0, stream, &[0; 4]);
    }));
    let mut last = None;
    flood(Box::new(move |client| {
        let stream = *last.get_or_insert_with(|| client.opens("/other", 0));
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
fn the_control_frame_budget_is_renewed_and_grows_with_requests() {
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
        client.receives();
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
fn endless_header_blocks_end_the_connection() {
    let mut client = Client::new();
    client.sends_frame(frame::HEADERS, 0, 1, &head("/fast"));
    for _ in 0..4 {
        client.sends_frame(frame::CONTINUATION, 0, 1, &[0; frame::PAYLOAD_MAX]);
    }
    client.fails_with(ErrorCode::EnhanceYourCalm);

    let mut client = Client::with(Http2Settings { header_bytes_max: 200, ..Http2Settings::default() }, &[]);
    let mut block = head("/fast");
    write_literal(b"x-long", &[b'x'; 200], false, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &block);
    assert_eq!(client.receives(), [Head(1, vec![(":status".into(), "431".into())]), End(1)]);
    client.next_stream = 3;
    let stream = client.calls(b"still served");
    assert_eq!(client.receives(), response(stream, b"still served"));
}

/// Malformed requests were reset without being counted.
#[test]
fn provoked_resets_count_as_resets_of_the_client() {
    let settings = Http2Settings { resets_max: 50, ..Http2Settings::default() };
    for (count, is_too_many) in [(50, false), (51, true)] {
        let mut client = Client::with(settings, &[]);
        for n in 0..count {
            client.sends_frame(frame::HEADERS, frame::END_HEADERS, 2 * n + 1, &[]);
        }
        if is_too_many {
            client.fails_with(ErrorCode::EnhanceYourCalm);
        } else {
            assert_eq!(client.server.failure(), None);
        }
    }
}

/// Each malformed request allowed eight more control frames, so that their bound was never reached.
#[test]
fn malformed_and_refused_requests_allow_no_control_frames() {
    let settings = Http2Settings { control_frames_max: 50, streams_max: 1, ..Http2Settings::default() };
    for block in [Vec::new(), head("/other")] {
        let mut client = Client::with(settings, &[]);
        client.opens("/other", 0);
        for n in 1..100 {
            client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 2 * n + 1, &block);
            client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        }
        client.fails_with(ErrorCode::EnhanceYourCalm);
    }
}

/// If a request gets copies of fields by index, these take more steps than they have bytes, whether the request before had the same fields
/// or not. Requests do not raise the bound.
#[test]
fn copies_of_fields_by_index_are_bounded() {
    let settings = Http2Settings { control_frames_max: 500, ..Http2Settings::default() };
    for (path, flags) in [("/other", frame::END_STREAM), ("/fast", 0)] {
        for varying in [0, 2] {
            let mut client = Client::with(settings, &[]);
            let mut block = head(path);
            write_literal(b"traceparent", b"", true, &mut block);
            client.sends_frame(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, 1, &block);
            for n in 1..100 {
                let mut block = head(path);
                (0..n % 2 * varying).for_each(|_| write_indexed(15, &mut block));
                block.extend([0xbe; 30]);
                client.sends_frame(frame::HEADERS, frame::END_HEADERS | flags, 2 * n + 1, &block);
            }
            client.fails_with(ErrorCode::EnhanceYourCalm);
        }
    }
}

/// A client that reads slowly, but never everything: what it had read stayed in memory, 301 MiB for one connection.
#[test]
fn bytes_already_written_leave_the_write_buffer() {
    const PIECE: usize = 100_000;
    const READ: usize = 50_000;
    let mut client = Client::with(Http2Settings::default(), &[(4, WINDOW_MAX)]);
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &(WINDOW_MAX - DEFAULT_WINDOW).to_be_bytes());
    let stream = client.opens("/other", 0);
    let (head, ()) = Response::new(()).into_parts();
    client.server.on_task(stream, TaskEvent::Head { head: Box::new(head), is_end: false });
    let (mut largest, mut capacity) = (0, 0);
    for _ in 0..1000 {
        let (sent, _) = oneshot::channel();
        client.server.on_task(stream, TaskEvent::Data(Bytes::from_static(&[0; PIECE]), sent));
        while client.server.unwritten().len() >= UNREAD_MAX {
            client.server.wrote(READ);
        }
        largest = largest.max(client.server.outgoing.len());
        capacity = capacity.max(client.server.outgoing.capacity());
    }
    println!("largest write buffer: {largest} bytes, capacity {capacity}");
    assert!(largest <= (UNREAD_MAX + frame::PAYLOAD_MAX) * (WRITTEN_SHARE + 1) / WRITTEN_SHARE, "{largest}");
    assert!(capacity <= 2 * largest, "{capacity}");
}
