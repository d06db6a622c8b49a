//! Bounds on connections: clients that connect and send no request, or stay idle, do not lock others out.

use crate::support::{
    Server, eventually,
    frames::{END_HEADERS, END_STREAM, HEADERS, PING, RawConnection, call_head, call_headers},
};
use std::time::Duration;
use tidegate::api::pb::service::rate_limit_response::Code;

/// Connections of the attacker; `TIDEGATE_TEST_CONNECTIONS` raises it.
fn attackers() -> usize {
    std::env::var("TIDEGATE_TEST_CONNECTIONS").map_or(200, |text| text.parse().expect("a number"))
}

async fn is_served(server: &Server) {
    let answer = server.client().await.hit("demo", &[("api_key", "honest")]).await;
    assert_eq!(answer.expect("the server decides").overall_code(), Code::Ok);
}

#[tokio::test]
async fn idle_connections_do_not_lock_others_out() {
    let max = attackers().to_string();
    for bound in ["--max-connections", "--max-connections-per-peer"] {
        let server = Server::start(&[bound, &max]);
        let mut idle = Vec::new();
        for number in 0..attackers() {
            idle.push(match number % 2 {
                0 => RawConnection::silent(server.address()).await,
                _ => RawConnection::open(server.address()).await,
            });
        }
        is_served(&server).await;
    }
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_in_time() {
    let server = Server::start(&["--first-request-timeout", "300ms"]);
    let mut silent = RawConnection::silent(server.address()).await;
    let mut open = RawConnection::open(server.address()).await;
    assert_eq!(silent.end().await, Some(1), "PROTOCOL_ERROR: no preface");
    assert_eq!(open.end().await, Some(0), "NO_ERROR: no request");
    // On a busy machine a connection may be closed before its first request.
    let client = eventually("a connection with a request", async || {
        let client = server.client().await;
        client.clone().hit("demo", &[("api_key", "a")]).await.map(|_| client)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(900)).await;
    client.clone().hit("demo", &[("api_key", "a")]).await.expect("a connection that had a request is kept");
}

/// Ten addresses with 1,000 such connections each kept all new clients out for half a minute.
#[tokio::test]
async fn connections_with_requests_that_never_end_do_not_lock_others_out() {
    const ATTACKERS: usize = 50;
    let max = ATTACKERS.to_string();
    let server = Server::start(&["--max-connections", &max, "--keep-alive-interval", "200ms"]);
    let mut attackers = Vec::new();
    for _ in 0..ATTACKERS {
        let mut attacker = RawConnection::open(server.address()).await;
        attacker.send(HEADERS, END_HEADERS | END_STREAM, 1, &call_headers("/no")).await;
        attacker.next_frame_of(1).await;
        attacker.send(HEADERS, END_HEADERS, 3, &call_head()).await;
        attackers.push(attacker);
    }
    for attacker in &mut attackers {
        // The PING is sent at a tick, which also publishes the state of the connection.
        while attacker.next().await.is_some_and(|frame| frame.kind != PING) {}
    }
    for _ in 0..4 {
        is_served(&server).await;
    }
}
