//! Header blocks, and the dynamic tables of both directions.

use super::{
    client::{Received::*, *},
    *,
};
use crate::hpack::{NEWEST, write_indexed, write_literal, write_literal_of};

/// Found by fuzzing: a request with a zero byte in a header was served if its body arrived in the same read, else refused.
#[test]
fn invalid_headers_are_refused_with_and_without_a_body() {
    let mut block = head("/fast");
    write_literal(b"x", b"a\0b", false, &mut block);
    let call = |stream| {
        let head = frame_bytes(frame::HEADERS, frame::END_HEADERS, stream, &block);
        (head, frame_bytes(frame::DATA, frame::END_STREAM, stream, b"abc"))
    };
    let mut client = Client::new();
    let (head, body) = call(1);
    client.sends(&[head, body].concat());
    let at_once = client.receives();
    let (head, _) = call(3);
    client.sends(&head);
    let refused = |stream| Reset(stream, ErrorCode::Protocol as u32);
    assert_eq!(client.receives(), [refused(3)]);
    assert_eq!(at_once.first(), Some(&refused(1)));
}

/// The last valid target is remembered, so that it is not parsed again.
#[test]
fn a_valid_target_does_not_validate_another() {
    let mut client = Client::new();
    for (stream, path, is_valid) in
        [(1, "/fast", true), (3, "/fa st", false), (5, "/fast", true), (7, "x", false)]
    {
        // No two blocks are the same.
        let mut block = head(path);
        write_literal(b"x-stream", stream.to_string().as_bytes(), false, &mut block);
        client.sends(&call_with(&block, stream, b"abc"));
        let received = client.receives();
        if is_valid {
            assert_eq!(received, response(stream, b"abc"), "{path:?}");
        } else {
            assert_eq!(received[0], Reset(stream, ErrorCode::Protocol as u32), "{path:?}");
        }
    }
}

/// The header map of routed requests has its own bound, independent of `header_bytes_max`. Headers that the service does not read are not
/// in it.
#[test]
fn more_headers_than_a_map_can_hold_are_no_error() {
    let settings = Http2Settings { header_bytes_max: 4 << 20, ..Http2Settings::default() };
    let mut client = Client::with(settings, &[]);
    let mut block = head("/other");
    (0..33_000).for_each(|n| write_literal(format!("x{n}").as_bytes(), b"", false, &mut block));
    write_literal(b"traceparent", b"", false, &mut block);
    let (first, rest) = block.split_at(frame::PAYLOAD_MAX);
    client.sends_frame(frame::HEADERS, 0, 1, first);
    rest.chunks(frame::PAYLOAD_MAX).for_each(|piece| client.sends_frame(frame::CONTINUATION, 0, 1, piece));
    client.sends_frame(frame::CONTINUATION, frame::END_HEADERS, 1, &[]);
    assert_eq!(client.receives(), []);
    let (_, request) = client.server.take_routed().expect("it is routed");
    let names: Vec<_> = request.headers().keys().map(|name| name.as_str()).collect();
    assert_eq!(names, ["content-type", "traceparent"]);
}

#[test]
fn a_repeated_header_block_is_decoded_again_if_the_table_changed() {
    let mut client = Client::new();
    let mut block = head("/fast");
    write_literal(b"x-first", b"", true, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 1, &block);
    client.sends_frame(frame::DATA, frame::END_STREAM, 1, b"1");
    // The same bytes again and again: a path, and the newest entry of the table.
    let mut same = head("/fast");
    write_indexed(NEWEST, &mut same);
    for stream in [3, 5] {
        client.sends_frame(frame::HEADERS, frame::END_HEADERS, stream, &same);
        client.sends_frame(frame::DATA, frame::END_STREAM, stream, b"!");
    }
    client.receives();
    // Then the newest entry is a connection header, which HTTP/2 forbids.
    let mut block = head("/fast");
    write_literal(b"upgrade", b"x", true, &mut block);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 7, &block);
    assert_eq!(client.receives(), [Reset(7, ErrorCode::Protocol as u32)]);
    client.sends_frame(frame::HEADERS, frame::END_HEADERS, 9, &same);
    assert_eq!(client.receives(), [Reset(9, ErrorCode::Protocol as u32)]);
}

#[test]
fn a_client_without_dynamic_table_is_served() {
    let mut client = Client::with(Http2Settings::default(), &[(1, 0)]);
    for _ in 0..3 {
        let stream = client.calls(b"body");
        assert_eq!(client.receives(), response(stream, b"body"));
    }
    // A client may also give up its table later, or make it smaller.
    for size in [0, 4095] {
        let mut client = Client::new();
        let stream = client.calls(b"body");
        assert_eq!(client.receives(), response(stream, b"body"));
        let [_, _, s0, s1] = u32::to_be_bytes(size);
        client.sends_frame(frame::SETTINGS, 0, 0, &[0, 1, 0, 0, s0, s1]);
        assert_eq!(client.receives(), [Ack]);
        let stream = client.calls(b"body");
        // The next block has to start with the acknowledged size: 0x20 is "the table holds 0 bytes".
        let received = client.server.unwritten();
        assert_eq!(received[frame::HEADER], 0x20, "a table of {size} bytes");
        assert_eq!(client.receives(), response(stream, b"body"));
        for _ in 0..3 {
            let stream = client.calls(b"body");
            assert_eq!(client.receives(), response(stream, b"body"));
        }
    }
}

/// RFC 7541, section 4.2: the first block after the acknowledgement starts with the size update. Trailers did not.
#[test]
fn trailers_start_with_the_size_of_a_table_that_was_reduced_after_the_headers() {
    for earlier_calls in 0..3 {
        let mut client = Client::with(Http2Settings::default(), &[(4, 3)]);
        for _ in 0..earlier_calls {
            let stream = client.calls(b"abc");
            assert_eq!(client.receives(), response(stream, b"abc"));
        }
        let stream = client.calls(b"abcd");
        assert_eq!(client.receives().len(), 2, "the headers and a part of the body");
        client.sends_frame(frame::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0]);
        assert_eq!(client.receives(), [Ack]);
        client.sends_frame(frame::WINDOW_UPDATE, 0, stream, &1_u32.to_be_bytes());
        // After DATA with one byte: 0x20 is "the table holds 0 bytes".
        let received = client.server.unwritten();
        assert_eq!(received[frame::HEADER + 1 + frame::HEADER], 0x20, "after {earlier_calls} calls");
        assert_eq!(client.receives(), response(stream, b"d")[1..]);
        let stream = client.calls(b"abc");
        let received = client.server.unwritten();
        assert_ne!(received[frame::HEADER], 0x20, "the size is sent once");
        assert_eq!(client.receives(), response(stream, b"abc"));
    }
}

/// The codes of values that vary are checked ahead of time in the bytes of one read. How much is read at once must not matter.
#[test]
fn values_that_vary_are_valid_or_not_however_many_calls_are_read_at_once() {
    let values = |odd: Option<(u32, &'static str)>| {
        (0..40_u32).map(move |round| match odd {
            Some((at, value)) if at == round => value.to_owned(),
            _ => format!("00-{:032x}-{:016x}-00", round.wrapping_mul(0x9e37_79b9), round * 77),
        })
    };
    for (odd, damage, is_error) in [
        (None, None, false),
        (Some((21, "00-a b-c")), None, false),
        (Some((22, "\\\\0000000000000000000000000000000000000000000000000000000")), None, false),
        (None, Some((20, 0)), true),
        (None, Some((23, 0)), true),
    ] {
        let calls: Vec<Vec<u8>> = values(odd)
            .zip(0..)
            .map(|(value, round)| {
                let mut block = head("/fast");
                match round {
                    0 => write_literal(b"traceparent", value.as_bytes(), true, &mut block),
                    _ => write_literal_of(NEWEST, value.as_bytes(), &mut block),
                }
                if let (Some((at, byte)), Some(last)) = (damage, block.last_mut())
                    && at == round
                {
                    *last = byte;
                }
                call_with(&block, 2 * round + 1, b"abc")
            })
            .collect();
        let mut results = [1, 2, 3, 40].map(|at_once| {
            let mut client = Client::new();
            calls.chunks(at_once).for_each(|calls| client.sends(&calls.concat()));
            (client.server.failure(), client.receives())
        });
        assert_eq!(results[0].0.is_some(), is_error, "{odd:?} {damage:?}: {:?}", results[0].0);
        let [first, others @ ..] = &mut results;
        assert!(others.iter().all(|other| other == first), "{odd:?} {damage:?}");
        let calls_served = first.1.iter().filter(|received| matches!(received, Data(..))).count();
        assert_eq!(calls_served, damage.map_or(40, |(at, _)| at as usize), "{odd:?} {damage:?}");
    }
}
