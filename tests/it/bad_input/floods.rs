//! Many invalid requests at once, repeatedly: memory does not grow.

use super::{MEGABYTE, Target, gzip, request, untyped};
use crate::support::{
    Server, descriptor, eventually,
    frames::{DATA, END_HEADERS, HEADERS, RawConnection, call_head},
    http2::{Connection, SHOULD_RATE_LIMIT, framed, grpc, plain},
};
use http::request::Builder;
use prost::Message;

/// Connections of a flood.
const SENDERS: usize = 8;

/// A request that several connections send repeatedly.
struct Flood {
    head: fn() -> Builder,
    body: Vec<u8>,
    times: usize,
}

/// About 32 MB of each request, as it is sent or as it is decoded.
fn floods() -> Vec<Flood> {
    let call: fn() -> Builder = || grpc(SHOULD_RATE_LIMIT);
    let gzipped: fn() -> Builder = || grpc(SHOULD_RATE_LIMIT).header("grpc-encoding", "gzip");
    let megabyte = request(vec![descriptor(&[("api_key", &"x".repeat(MEGABYTE))])]).encode_to_vec();
    let largest = request(vec![descriptor(&[("api_key", &"x".repeat(250_000))])]).encode_to_vec();
    let many = request(vec![descriptor(&[("api_key", "x")]); 10_000]).encode_to_vec();
    let bomb = gzip(&vec![0; 16 * MEGABYTE]);
    let bomb = framed(1, bomb.len().try_into().expect("short"), &bomb);
    vec![
        Flood { head: call, body: plain(&megabyte), times: 32 },
        Flood { head: call, body: plain(&largest), times: 128 },
        Flood { head: call, body: plain(&many), times: 32 },
        Flood { head: untyped, body: vec![b'x'; MEGABYTE], times: 32 },
        Flood { head: call, body: framed(0, 262_144, b"a shorter message"), times: 128 },
        Flood { head: call, body: plain(&[0x7b; 100_000]), times: 320 },
        Flood { head: gzipped, body: bomb, times: 32 },
    ]
}

async fn flood(server: &Server, flood: &Flood) {
    let mut senders = tokio::task::JoinSet::new();
    for _ in 0..SENDERS {
        let connection = Connection::open(server.address()).await;
        let (head, body, times) = (flood.head, flood.body.clone(), flood.times / SENDERS);
        senders.spawn(async move {
            for _ in 0..times {
                connection
                    .send(head(), body.clone())
                    .await
                    .expect("a refusal, not the end of the connection");
            }
        });
    }
    senders.join_all().await;
}

/// Anonymous resident memory of the process, in bytes.
fn resident(server: &Server) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("a line of Linux");
    let kibibytes: usize = line.trim_end_matches("kB").trim().parse().expect("a number");
    kibibytes * 1024
}

/// The allocator keeps some tens of megabytes of freed memory, however many requests there are. If one kind of request leaked its bytes,
/// the process would grow by 128 MB.
#[tokio::test]
async fn floods_of_bad_requests_leave_memory_where_it_was() {
    const ROUNDS: usize = 4;
    const SLACK: usize = 48 * MEGABYTE;
    let mut server = Target::start(&["--threads", "2"]).await;
    server.serves().await;
    let before = resident(&server.server);
    let floods = floods();
    for _ in 0..ROUNDS {
        for one in &floods {
            flood(&server.server, one).await;
        }
    }
    server.serves().await;
    let after = resident(&server.server);
    assert!(after < before + SLACK, "{before} bytes before, {after} after");
}

/// An idle server kept 864 MiB of 965 after 900 connections with unfinished messages had been closed.
#[tokio::test]
async fn memory_of_unfinished_messages_returns_after_their_connections_are_closed() {
    const CONNECTIONS: usize = 150;
    const SLACK: usize = 40 * MEGABYTE;
    let mut server = Target::start(&["--threads", "2"]).await;
    server.serves().await;
    let before = resident(&server.server);
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = RawConnection::open(server.server.address()).await;
        for stream in [1, 3, 5, 7] {
            connection.send(HEADERS, END_HEADERS, stream, &call_head()).await;
            let message = [&[0][..], &262_000_u32.to_be_bytes(), &[7; 255_000]].concat();
            for piece in message.chunks(16_384) {
                connection.send(DATA, 0, stream, piece).await;
            }
        }
        connections.push(connection);
    }
    let mut most = 0;
    eventually("the unfinished messages", async || {
        most = most.max(resident(&server.server));
        most > before + 2 * SLACK
    })
    .await;
    drop(connections);
    eventually("the memory", async || resident(&server.server) < before + SLACK).await;
}
