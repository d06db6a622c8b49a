//! Connections that violate the protocol, or disappear.

use super::{MEGABYTE, Target};
use crate::support::http2::{Connection, SHOULD_RATE_LIMIT, grpc};
use std::io;
use tokio::{io::AsyncWriteExt, net::TcpStream};

#[tokio::test]
async fn a_connection_that_violates_the_protocol_does_not_affect_others() {
    let mut server = Target::start(&[]).await;
    let noise: Vec<u8> = (0..=255).cycle().take(64 * 1024).collect();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let openings = [
        b"GET / HTTP/1.1\r\nhost: test\r\n\r\n".to_vec(),
        noise.clone(),
        preface.clone(),
        [preface.clone(), noise].concat(),
        // A SETTINGS frame that claims sixteen megabytes.
        [preface, b"\xff\xff\xff\x04\x00\x00\x00\x00\x00".to_vec()].concat(),
        vec![],
    ];
    for opening in openings {
        let mut stream = TcpStream::connect(server.server.address()).await.unwrap();
        // The server may close while this is being sent.
        let _: io::Result<()> = stream.write_all(&opening).await;
        server.serves().await;
    }
    // Endless headers end their own connection only.
    let hostile = Connection::open(server.server.address()).await;
    let head = grpc(SHOULD_RATE_LIMIT).header("x-long", "x".repeat(MEGABYTE));
    assert!(hostile.send(head, vec![]).await.is_err());
    server.serves().await;
}

/// Envoy cancels calls at their timeout. After a pause of the server it reads all cancellations at once.
#[tokio::test]
async fn a_thousand_calls_cancelled_during_a_pause_do_not_end_the_connection() {
    let mut server = Target::start(&[]).await;
    server.serves().await;
    server.server.freeze();
    for _ in 0..1000 {
        server.raw.abandon(grpc(SHOULD_RATE_LIMIT)).await;
    }
    server.server.signal(rustix::process::Signal::CONT);
    server.serves().await;
}

#[tokio::test]
async fn short_connections_leave_nothing_behind() {
    let mut server = Target::start(&[]).await;
    for _ in 0..200 {
        let connection = Connection::open(server.server.address()).await;
        connection.abandon(grpc(SHOULD_RATE_LIMIT)).await;
    }
    server.serves().await;
}
