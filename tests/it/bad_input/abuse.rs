//! Valid or nearly valid use of the protocol that exhausts a server. A setting, which is low here, bounds each kind of abuse, and other
//! clients are served meanwhile.

use super::{Target, good, request};
use crate::support::{
    Server,
    frames::{
        CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, PING, RST_STREAM,
        RawConnection, SETTINGS, WINDOW_UPDATE, call_head, call_headers,
    },
    http2::plain,
};
use prost::Message;

/// More frames than any setting here allows.
const MANY: u32 = 5_000;

async fn abuser(server: &Target) -> RawConnection {
    RawConnection::open(server.server.address()).await
}

/// Asserts that the server ended the connection with ENHANCE_YOUR_CALM, and serves others.
async fn assert_calmed(mut abuser: RawConnection, mut server: Target) {
    // The GOAWAY may be lost if the server closes with unread bytes.
    assert!(matches!(abuser.end().await, None | Some(ENHANCE_YOUR_CALM)));
    server.serves().await;
}

#[tokio::test]
async fn a_slow_reader_loses_its_connection() {
    let mut server = Target::start(&["--write-timeout", "200ms"]).await;
    let mut abuser = abuser(&server).await;
    abuser.send(WINDOW_UPDATE, 0, 0, &0x7fff_0000_u32.to_be_bytes()).await;
    let body = plain(&request(vec![good()]).encode_to_vec());
    // Far more responses than the sockets hold; none is read.
    for id in (1..600_001).step_by(2) {
        let is_open = abuser.send(HEADERS, END_HEADERS, id, &call_head()).await
            && abuser.send(DATA, END_STREAM, id, &body).await;
        if !is_open {
            server.serves().await;
            return;
        }
        if id % 10_000 == 1 {
            server.serves().await;
        }
    }
    panic!("the server still answers a client that reads nothing");
}

#[tokio::test]
async fn a_response_that_no_window_allows_is_cancelled() {
    let mut server = Target::start(&["--write-timeout", "200ms"]).await;
    let mut abuser = abuser(&server).await;
    // No stream has any window.
    abuser.send(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]).await;
    abuser.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    abuser.send(DATA, END_STREAM, 1, &plain(&request(vec![good()]).encode_to_vec())).await;
    assert_eq!(abuser.reset_code().await, CANCEL);
    server.serves().await;
}

#[tokio::test]
async fn idle_connections_are_drained() {
    let server = Target::start(&["--idle-timeout", "200ms"]).await;
    let mut idle = abuser(&server).await;
    loop {
        let frame = idle.next().await.expect("a GOAWAY before the end");
        if frame.kind == PING {
            idle.send(PING, 1, 0, &frame.payload).await;
            break;
        }
    }
    assert_eq!(idle.end().await, Some(0));
}

/// Every call is answered, including calls between the GOAWAY and its acknowledgement.
#[tokio::test]
async fn a_busy_connection_is_drained_at_its_maximum_age() {
    let server = Target::start(&["--max-connection-age", "300ms"]).await;
    let mut busy = abuser(&server).await;
    let body = plain(&request(vec![good()]).encode_to_vec());
    let (mut stream, mut pinged, mut calls_after_goaway) = (1, None, 0);
    while calls_after_goaway < 3 {
        busy.send(HEADERS, END_HEADERS, stream, &call_head()).await;
        busy.send(DATA, END_STREAM, stream, &body).await;
        loop {
            let frame = busy.next().await.expect("the connection is open until the PING is acknowledged");
            match frame.kind {
                PING => pinged = Some(frame.payload),
                HEADERS if frame.flags & END_STREAM != 0 => break,
                kind => assert_ne!(kind, RST_STREAM),
            }
        }
        calls_after_goaway += u32::from(pinged.is_some());
        stream += 2;
    }
    busy.send(PING, 1, 0, &pinged.expect("a PING follows the GOAWAY")).await;
    assert_eq!(busy.end().await, Some(0));
}

#[tokio::test]
async fn a_client_that_does_not_acknowledge_pings_is_closed() {
    let args = ["--keep-alive-interval", "200ms", "--keep-alive-timeout", "200ms"];
    let server = Target::start(&args).await;
    let mut gone = abuser(&server).await;
    assert_eq!(gone.end().await, None, "a PING, and then the end");
}

#[tokio::test]
async fn a_client_that_never_sends_is_closed() {
    let server = Target::start(&["--first-request-timeout", "200ms"]).await;
    RawConnection::silent(server.server.address()).await.end().await;
}

#[tokio::test]
async fn connections_beyond_the_bound_are_closed_while_all_are_busy() {
    let server = Server::start(&["--max-connections", "2"]);
    // A watch keeps a connection busy.
    let (one, _other) = (watching(&server).await, watching(&server).await);
    assert!(RawConnection::silent(server.address()).await.next().await.is_none());
    drop(one);
    // The server may see the end of the client only after the next connection.
    while RawConnection::silent(server.address()).await.next().await.is_none() {}
    let refused = server.log().into_iter().filter(|line| line.contains("--max-connections")).count();
    assert_eq!(refused, 1, "logged, and not for each connection");
}

async fn watching(server: &Server) -> RawConnection {
    let mut connection = RawConnection::open(server.address()).await;
    connection.send(HEADERS, END_HEADERS, 1, &call_headers("/grpc.health.v1.Health/Watch")).await;
    connection.send(DATA, END_STREAM, 1, &[0; 5]).await;
    while connection.next_frame_of(1).await.kind != DATA {}
    connection
}

#[tokio::test]
async fn rapid_resets_are_bounded() {
    let server = Target::start(&["--max-resets", "1000"]).await;
    let mut abuser = abuser(&server).await;
    for id in (1..2 * MANY).step_by(2) {
        let is_open = abuser.send(HEADERS, END_HEADERS, id, &call_head()).await
            && abuser.send(RST_STREAM, 0, id, &CANCEL.to_be_bytes()).await;
        if !is_open {
            break;
        }
    }
    assert_calmed(abuser, server).await;
}

#[tokio::test]
async fn a_header_flood_is_bounded() {
    let server = Target::start(&["--max-header-bytes", "4096"]).await;
    let mut abuser = abuser(&server).await;
    abuser.send(HEADERS, 0, 1, &call_head()).await;
    for _ in 0..MANY {
        if !abuser.send(CONTINUATION, 0, 1, &[0x82; 1000]).await {
            break;
        }
    }
    assert_calmed(abuser, server).await;
}

#[tokio::test]
async fn floods_of_control_frames_are_bounded() {
    for (kind, payload) in [(PING, &[0; 8][..]), (SETTINGS, &[]), (WINDOW_UPDATE, &[0, 0, 0, 1]), (0xee, &[])]
    {
        let server = Target::start(&["--max-control-frames", "1000"]).await;
        let mut abuser = abuser(&server).await;
        for _ in 0..MANY {
            if !abuser.send(kind, 0, 0, payload).await {
                break;
            }
        }
        assert_calmed(abuser, server).await;
    }
}

#[tokio::test]
async fn bodies_without_end_are_cancelled() {
    let mut server = Target::start(&["--body-timeout", "200ms"]).await;
    let mut abuser = abuser(&server).await;
    abuser.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    abuser.send(DATA, 0, 1, b"\0\0\0").await;
    assert_eq!(abuser.reset_code().await, CANCEL);
    server.serves().await;

    // A long message is refused by its length, whatever its prefix claims; then the rest is discarded, and the stream is reset.
    let mut server = Target::start(&[]).await;
    let mut abuser = RawConnection::open(server.server.address()).await;
    abuser.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    abuser.send(DATA, 0, 1, &[&[0, 0xff, 0xff, 0xff, 0xff][..], &[0; 10_000]].concat()).await;
    for _ in 0..10 {
        abuser.send(DATA, 0, 1, &[0; 16_384]).await;
    }
    assert_eq!(abuser.reset_code().await, 0, "NO_ERROR");
    server.serves().await;
}
