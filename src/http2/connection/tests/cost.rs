//! Work per byte that a client sends. An attack may cost at most [`RATIO_MAX`] times what honest calls cost.
//!
//! The exception are entries of the dynamic table by index: RFC 7541 lets a byte stand for 4 KiB, which have to be copied and
//! checked. A list of usual size costs at most [`EXPANSION_MAX`] times as much per byte; larger ones end the connection.

use super::{client::*, *};
use crate::http2::{
    hpack::{NEWEST, write_indexed, write_literal},
    steps,
};
use std::fmt::Write as _;

const RATIO_MAX: f64 = 3.0;

/// See above: a KiB of fields by index, in a request as short as possible.
const EXPANSION_MAX: f64 = 12.0;

/// Bytes that each load sends, unless the connection is ended before.
const BYTES: usize = 400_000;

/// Bytes sent after `prepare`, and steps for them. The responses are read after each piece.
fn measure(mut prepare: impl FnMut(&mut Client), mut piece: impl FnMut(u32) -> Vec<u8>) -> (usize, usize) {
    let mut client = Client::new();
    prepare(&mut client);
    let drop_written = |client: &mut Client| client.server.wrote(client.server.unwritten().len());
    drop_written(&mut client);
    steps::take();
    let mut sent = 0;
    for round in 0.. {
        if sent >= BYTES || client.server.is_finished() {
            break;
        }
        let bytes = piece(round);
        sent += bytes.len();
        client.sends(&bytes);
        drop_written(&mut client);
    }
    (sent, steps::take())
}

/// Calls as a tracing Envoy makes them: ten fields by index, and one that differs.
fn honest() -> (usize, usize) {
    let fields =
        [":authority", "te", "content-type", "x-envoy-internal", "x-forwarded-for", "user-agent", "x-a"];
    let mut first = Vec::new();
    for name in fields {
        let value = if name == "te" { "trailers" } else { "application/grpc" };
        write_literal(name.as_bytes(), value.as_bytes(), true, &mut first);
    }
    let block = |round: u32| {
        let mut block = Vec::new();
        write_indexed(3, &mut block);
        write_indexed(6, &mut block);
        write_literal(b":path", b"/fast", false, &mut block);
        if round == 0 {
            block.extend(&first);
        } else {
            (0..fields.len()).for_each(|back| write_indexed(NEWEST + fields.len() - 1 - back, &mut block));
        }
        let trace = format!("00-{round:032x}-{round:016x}-01");
        write_literal(b"traceparent", trace.as_bytes(), false, &mut block);
        block
    };
    measure(|_| {}, |round| call_with(&block(round), 2 * round + 1, &[b'x'; 60]))
}

/// Opens as many streams as allowed, each with a response that its window lets through but the connection's does not.
fn block_streams_by_the_connection(client: &mut Client) {
    client.sends_frame(frame::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    for _ in 0..1000 {
        client.calls(&[b'x'; 500]);
    }
}

/// Opens as many streams as allowed, each with a response of which its own window let some through and is below zero now.
fn block_streams_by_their_own_windows(client: &mut Client) {
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
    client.sends_frame(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 100]);
    for _ in 0..1000 {
        client.calls(&[b'x'; 500]);
    }
    client.sends_frame(frame::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
}

/// An entry of the dynamic table that is as large as the table.
fn insert_large_entry(client: &mut Client) {
    insert_entry(client, 4064);
}

fn insert_entry(client: &mut Client, bytes: usize) {
    let mut block = head("/fast");
    write_literal(&vec![b'n'; bytes], b"", true, &mut block);
    client.sends(&call_with(&block, 1, b""));
}

fn window_update(stream: u32, by: u32) -> Vec<u8> {
    frame_bytes(frame::WINDOW_UPDATE, 0, stream, &by.to_be_bytes())
}

fn setting(value: u32) -> Vec<u8> {
    let payload = [&[0, 4][..], &value.to_be_bytes()].concat();
    frame_bytes(frame::SETTINGS, 0, 0, &payload)
}

fn request(stream: u32, block: &[u8]) -> Vec<u8> {
    frame_bytes(frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, stream, block)
}

/// A block of 8,000 bytes that differs from that of any other round.
fn repeated(field: &[u8], round: u32) -> Vec<u8> {
    let mut block = field.repeat(8_000 / field.len());
    write_literal(b"x-round", round.to_string().as_bytes(), false, &mut block);
    block
}

/// A request with a list of so many times the newest entry, in a block of a few bytes, at other positions than in the one
/// before.
fn lists_at_changing_positions(round: u32, count: usize) -> Vec<u8> {
    let mut block = head("/fast");
    (0..round % 2).for_each(|_| write_indexed(15, &mut block));
    block.extend(vec![0xbe; count]);
    request(2 * round + 3, &block)
}

#[test]
fn an_attack_costs_at_most_three_times_the_steps_of_honest_calls_per_byte() {
    let mut table = String::from("load | bytes until the end | steps per byte | ratio\n");
    let (bytes, steps) = honest();
    let honest = steps as f64 / bytes as f64;
    writeln!(table, "honest calls | {bytes} | {honest:.2} | 1.0").expect("a string grows");
    let mut worst: f64 = 0.0;
    let mut attack = |name: &str, (bytes, steps): (usize, usize)| {
        let cost = steps as f64 / bytes as f64;
        worst = worst.max(cost / honest);
        writeln!(table, "{name} | {bytes} | {cost:.2} | {:.2}", cost / honest).expect("a string grows");
    };
    attack(
        "WINDOW_UPDATE of the connection, streams blocked by it",
        measure(block_streams_by_the_connection, |_| window_update(0, 1)),
    );
    attack(
        "WINDOW_UPDATE of the connection, streams blocked by their own windows",
        measure(block_streams_by_their_own_windows, |_| window_update(0, 1)),
    );
    attack(
        "WINDOW_UPDATE of streams",
        measure(block_streams_by_their_own_windows, |round| window_update(2 * (round % 1000) + 1, 1)),
    );
    attack(
        "INITIAL_WINDOW_SIZE frame by frame",
        measure(block_streams_by_their_own_windows, |round| setting(round % 2)),
    );
    attack(
        "INITIAL_WINDOW_SIZE many times a frame",
        measure(block_streams_by_their_own_windows, |_| {
            let payload: Vec<u8> = (0..2_700).flat_map(|n| [0, 4, 0, 0, 0, n as u8 % 2]).collect();
            frame_bytes(frame::SETTINGS, 0, 0, &payload)
        }),
    );
    attack(
        "HEADER_TABLE_SIZE many times a frame",
        measure(|_| {}, |_| frame_bytes(frame::SETTINGS, 0, 0, &[0, 1, 0, 0, 0, 0].repeat(2_700))),
    );
    attack("PING", measure(|_| {}, |_| frame_bytes(frame::PING, 0, 0, &[0; 8])));
    attack("malformed requests", measure(|_| {}, |round| request(2 * round + 1, &[0x82; 20])));
    attack(
        "malformed requests and WINDOW_UPDATE of the connection, streams blocked by it",
        measure(block_streams_by_the_connection, |round| {
            let mut bytes = request(2 * (1000 + round) + 1, &[]);
            (0..8).for_each(|_| bytes.extend(window_update(0, 1)));
            bytes
        }),
    );
    attack(
        "a large entry by index, again and again",
        measure(insert_large_entry, |round| request(2 * round + 3, &repeated(&[0xbe], round))),
    );
    attack(
        "new entries with the name of a large one",
        measure(insert_large_entry, |round| request(2 * round + 3, &repeated(&[0x7e, 0x00], round))),
    );
    let expansion = |name: &str, entry_bytes, count| {
        let (bytes, steps) = measure(
            |client| insert_entry(client, entry_bytes),
            |round| lists_at_changing_positions(round, count),
        );
        let cost = steps as f64 / bytes as f64;
        (bytes, steps as f64, format!("{name} | {bytes} | {cost:.2} | {:.2}\n", cost / honest))
    };
    let (bytes, steps, row) = expansion("usual lists by index at changing positions", 860, 1);
    table += &row;
    assert!(steps / bytes as f64 <= EXPANSION_MAX * honest, "\n{table}");
    let (bytes, steps, row) = expansion("the largest lists by index at changing positions", 4064, 3);
    table += &row;
    assert!(bytes < BYTES, "the connection was not ended\n{table}");
    assert!(steps < 12e6 * honest, "as much as 12 MB of honest calls in ten seconds\n{table}");
    println!("{table}");
    assert!(worst <= RATIO_MAX, "\n{table}");
}
