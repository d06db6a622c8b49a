//! Work per byte that a client sends. An attack may cost at most [`RATIO_MAX`] times as much as honest calls.
//!
//! Once in ten seconds, header fields may cost more by the bound of control frames: the steps of about 30 kB of honest calls.

use super::{client::*, *};
use crate::{
    hpack::{NEWEST, write_indexed, write_literal, write_literal_of},
    steps,
    task_event::TaskEvent,
};
use http::Response;
use std::fmt::Write as _;

const RATIO_MAX: f64 = 3.0;

/// Bytes that each load sends, unless the connection ends earlier.
const BYTES: usize = 400_000;

/// Bytes sent after `prepare`, and the steps that they took. The responses are read after each piece.
fn measure(mut prepare: impl FnMut(&mut Client), mut piece: impl FnMut(u32) -> Vec<u8>) -> (usize, usize) {
    let mut client = Client::new();
    prepare(&mut client);
    let drop_written = |client: &mut Client| client.server.wrote(client.server.unwritten().len());
    drop_written(&mut client);
    let (mut sent, mut taken) = (0, 0);
    for round in 0.. {
        if sent >= BYTES || client.server.is_finished() {
            break;
        }
        let bytes = piece(round);
        sent += bytes.len();
        // Drops the steps of the client.
        steps::take();
        client.sends(&bytes);
        while let Some((id, _)) = client.server.take_routed() {
            let (head, ()) = Response::new(()).into_parts();
            client.server.on_task(id, TaskEvent::Head { head: Box::new(head), is_end: true });
        }
        drop_written(&mut client);
        taken += steps::take();
    }
    (sent, taken)
}

/// Calls of an Envoy that traces: ten fields by index, and another that differs.
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
    measure(take_all_responses, |round| call_with(&block(round), 2 * round + 1, &[b'x'; 60]))
}

/// Opens the window of the connection wide enough for any test.
fn take_all_responses(client: &mut Client) {
    client.sends_frame(frame::WINDOW_UPDATE, 0, 0, &0x7000_0000_u32.to_be_bytes());
}

/// Opens as many streams as allowed. The stream's window lets each response through, but the connection's window does not.
fn block_streams_by_the_connection(client: &mut Client) {
    client.sends_frame(frame::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
    for _ in 0..1000 {
        client.calls(&[b'x'; 500]);
    }
}

/// Opens as many streams as allowed. The stream's own window let some of each response through, and is below zero now.
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

/// An entry that leaves room for another entry with its name.
fn insert_large_name(client: &mut Client) {
    insert_entry(client, 1900);
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

/// A block of 8,000 bytes that differs from the blocks of all other rounds.
fn repeated(field: &[u8], round: u32) -> Vec<u8> {
    let mut block = field.repeat(8_000 / field.len());
    write_literal(b"x-round", round.to_string().as_bytes(), false, &mut block);
    block
}

/// Short requests with fields by index, at other positions than in the request before.
#[derive(Clone, Copy)]
struct ByIndex {
    /// Whether the requests take the fast path.
    is_fast: bool,
    /// Bytes of the path after its first segment.
    path_bytes: usize,
    /// Bytes of an entry, and the number of fields with this entry.
    entry: (usize, usize),
    /// Number of fields that the service reads.
    read: usize,
    /// Whether these fields have different names.
    read_once: bool,
}

impl ByIndex {
    fn measure(self) -> (usize, usize) {
        let path =
            format!("{}{}", if self.is_fast { "/fast" } else { "/other/" }, "p".repeat(self.path_bytes));
        let mut first = Vec::new();
        write_indexed(3, &mut first);
        write_indexed(6, &mut first);
        write_literal(b":path", path.as_bytes(), true, &mut first);
        write_literal(b"content-type", b"application/grpc", true, &mut first);
        write_literal(b"traceparent", &[b'0'; 55], true, &mut first);
        write_literal(&vec![b'n'; self.entry.0], b"", true, &mut first);
        let [entry, trace, content_type, path] = [NEWEST, NEWEST + 1, NEWEST + 2, NEWEST + 3];
        let shortest = move |round: u32, stream: u32| {
            let mut block = Vec::new();
            [3, 6, path].into_iter().for_each(|index| write_indexed(index, &mut block));
            (0..round % 2).for_each(|_| write_indexed(15, &mut block));
            (0..self.entry.1).for_each(|_| write_indexed(entry, &mut block));
            for nth in 0..self.read {
                let is_trace = self.read_once && nth % 2 == 1;
                write_indexed(if is_trace { trace } else { content_type }, &mut block);
            }
            match self.is_fast {
                true => call_with(&block, stream, b""),
                false => request(stream, &block),
            }
        };
        measure(
            |client| client.sends(&call_with(&first, 1, b"")),
            move |round| shortest(round, 2 * round + 3),
        )
    }

    fn name(self) -> String {
        let Self { is_fast, path_bytes, entry: (bytes, count), read, .. } = self;
        let path = if is_fast { "fast path" } else { "routed" };
        format!("{count} fields of {bytes} B and {read} that are read, by index, {path} + {path_bytes} B")
    }

    /// All kinds of requests.
    fn all() -> impl Iterator<Item = Self> {
        let paths = [(true, 0), (false, 0), (false, 1500)];
        paths.into_iter().flat_map(|(is_fast, path_bytes)| {
            let entries = [(10, 0), (10, 3), (10, 30), (10, 300), (1800, 1), (1800, 6), (1800, 8)];
            entries.into_iter().flat_map(move |entry| {
                let read =
                    [(0, true), (1, true), (2, true), (2, false), (3, false), (8, false), (100, false)];
                read.map(|(read, read_once)| Self { is_fast, path_bytes, entry, read, read_once })
            })
        })
    }
}

/// A call with these indices and a message of 60 bytes.
fn call_by_index(stream: u32, indices: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut block = head("/fast");
    indices.for_each(|index| write_indexed(index, &mut block));
    call_with(&block, stream, &[b'x'; 60])
}

/// Clients may send many headers of their own, in an order that differs from call to call. They are served without end: all these calls are
/// in the same period as the first.
#[test]
fn honest_lists_by_index_at_changing_positions_are_never_too_much() {
    for (sets, fields) in [(2, 30), (1, 100)] {
        let mut client = Client::new();
        take_all_responses(&mut client);
        let mut first = head("/fast");
        for n in 0..sets * fields {
            write_literal(format!("x{n}").as_bytes(), b"v", true, &mut first);
        }
        client.sends(&call_with(&first, 1, &[b'x'; 60]));
        for round in 0..20_000 {
            let start = if sets == 1 { round % fields } else { 0 };
            let set = round % sets * fields;
            let positions = (0..fields).map(|n| NEWEST + set + (start + n) % fields);
            client.sends(&call_by_index(2 * round as u32 + 3, positions));
            client.server.wrote(client.server.unwritten().len());
        }
        assert_eq!(client.server.failure(), None, "{sets} sets of {fields} fields");
    }
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
    attack(
        "a new entry with the name of a large one in each request",
        measure(insert_large_name, |round| {
            let mut block = head("/other");
            write_literal_of(NEWEST, round.to_string().as_bytes(), &mut block);
            request(2 * round + 3, &block)
        }),
    );
    let once = Http2Settings::default().control_frames_max as usize * steps::FIELD;
    let mut costliest = [(String::new(), (1, 0)), (String::new(), (1, 0))];
    for load in ByIndex::all() {
        let (bytes, steps) = load.measure();
        let measured = (bytes, steps.saturating_sub(once));
        let costs = |(bytes, steps): (usize, usize)| steps as f64 / bytes as f64;
        let costliest = &mut costliest[usize::from(load.is_fast)];
        if costs(measured) > costs(costliest.1) {
            *costliest = (load.name(), measured);
        }
    }
    costliest.iter().for_each(|(name, measured)| attack(name, *measured));
    println!("{table}");
    assert!(worst <= RATIO_MAX, "\n{table}");
}
