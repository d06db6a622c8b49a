//! Memory that calls off the fast path can make the server hold: it is bounded by the number of open calls and by the bytes received,
//! whatever lengths are claimed.

use crate::support::{
    Server,
    frames::{DATA, END_HEADERS, END_STREAM, HEADERS, RawConnection, call_headers},
};
use tidegate::api::pb::health::{HealthCheckRequest, health_client::HealthClient};
use tonic::Code;

const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
const REFLECTION_ALPHA: &str = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";

/// Resident memory of the server, in KiB.
pub fn rss(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line for memory");
    line.trim_end_matches("kB").trim().parse().expect("a number")
}

/// Opens streams with these bytes as the start of their bodies, and waits until the server has handled them.
async fn open_streams(connection: &mut RawConnection, path: &str, count: u32, body: &[u8], flags: u8) {
    let headers = call_headers(path);
    for stream in (1..2 * count).step_by(2) {
        connection.send(HEADERS, END_HEADERS, stream, &headers).await;
        connection.send(DATA, flags, stream, body).await;
    }
    // Answered after everything before it.
    let last = 2 * count + 1;
    connection.send(HEADERS, END_HEADERS, last, &call_headers(CHECK)).await;
    connection.send(DATA, END_STREAM, last, &[0; 5]).await;
    while connection.next_frame_of(last).await.kind != DATA {}
}

/// A body that claims a message of four megabytes, or a message within the bound, and does not send it.
#[tokio::test]
async fn memory_follows_bytes_received_and_not_lengths_claimed() {
    const STREAMS: u32 = 1000;
    for path in [REFLECTION, REFLECTION_ALPHA, CHECK, WATCH] {
        for claimed in [4_u32 << 20, 256 << 10] {
            let server = Server::start(&[
                "--max-streaming-calls",
                "2000",
                "--max-streaming-calls-per-connection",
                "2000",
            ]);
            let before = rss(&server);
            let mut connection = RawConnection::open(server.address()).await;
            let prefix = [&[0], claimed.to_be_bytes().as_slice()].concat();
            open_streams(&mut connection, path, STREAMS, &prefix, 0).await;
            let grown = rss(&server).saturating_sub(before);
            println!("{path}: {STREAMS} streams that claim {claimed} bytes each: {grown} KiB more");
            assert!(grown < 64 << 10, "{path}: {grown} KiB for {STREAMS} claims of {claimed} bytes");
        }
    }
}

#[tokio::test]
async fn watches_are_bounded_per_connection_and_in_total() {
    const CONNECTIONS: usize = 10;
    const STREAMS: u32 = 1000;
    let server = Server::start(&["--max-streaming-calls", "500", "--max-streaming-calls-per-peer", "500"]);
    let before = rss(&server);
    let (mut connections, mut refused) = (Vec::new(), 0);
    for _ in 0..CONNECTIONS {
        let mut connection = RawConnection::open(server.address()).await;
        let headers = call_headers(WATCH);
        for stream in (1..2 * STREAMS).step_by(2) {
            connection.send(HEADERS, END_HEADERS, stream, &headers).await;
            connection.send(DATA, END_STREAM, stream, &[0; 5]).await;
        }
        // Each call is answered with HEADERS, which end the stream if the call is refused.
        for _ in 0..STREAMS {
            let head = loop {
                let frame = connection.next().await.expect("the connection stands");
                if frame.kind == HEADERS {
                    break frame;
                }
            };
            refused += usize::from(head.flags & END_STREAM != 0);
        }
        connections.push(connection);
    }
    let grown = rss(&server).saturating_sub(before);
    println!("{} watches, {refused} refused: {grown} KiB more", CONNECTIONS * STREAMS as usize);
    assert_eq!(refused, CONNECTIONS * STREAMS as usize - 500, "100 of each connection, until there are 500");
    assert!(grown < 64 << 10, "{grown} KiB");
    // Places of closed connections become free again.
    drop(connections.split_off(1));
    let mut next = RawConnection::open(server.address()).await;
    open_streams(&mut next, WATCH, 1, &[0; 5], END_STREAM).await;
}

#[tokio::test]
async fn a_watch_beyond_the_bound_gets_resource_exhausted() {
    let server = Server::start(&["--max-streaming-calls-per-connection", "1"]);
    let mut health = HealthClient::new(server.channel().await);
    let _open = health.watch(HealthCheckRequest::default()).await.expect("the first is open");
    let refusal = health.watch(HealthCheckRequest::default()).await.expect_err("the second is refused");
    assert_eq!(refusal.code(), Code::ResourceExhausted);
    assert!(refusal.message().contains("too many open streaming calls on this connection"), "{refusal}");
    health.check(HealthCheckRequest::default()).await.expect("unary calls are not bounded by it");
}
